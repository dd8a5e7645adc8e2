// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces of encoded values in the order of CUDA streams against those of the host: kernels run by fibres, and
// transfers of a double of NCCL, in the streams of a double of the CUDA runtime.
#include "in_order.hpp"

#include "refusals.hpp"

#include <spar/stream_ordered_allreduce.cuh>
#if SPAR_ALL_CASES
#include <spar/cuda/values/zfp.cuh>
#endif

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using cuda_double::device_array, cuda_double::stream;
using in_order::expect_costs, in_order::expect_launches_alone, in_order::expect_no_errors, in_order::graph,
    in_order::with_order;
using over_nccl::outcome, over_nccl::outcomes_on_devices;
using spar::rank_t, spar::ring, spar::two_shot, spar::storage::as_bfloat16, spar::storage::as_half, spar::storage::qsgd;

class stream_ordered_allreduce : public over_nccl::on_device_nccl {};

/// Values that differ between ranks and steps, with both zeros.
template <class T>
std::vector<T> values_of(rank_t rank, int step, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank * 100 + step));
  std::normal_distribution<double> normal(0, 100);
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = i % 7 == 0 ? T(-0.0) : static_cast<T>(normal(random));
  return x;
}

/// The results of all steps, one after the other, as bytes.
class results {
 public:
  template <class T>
  void add(const std::vector<T>& x) {
    const auto at = bytes_.size();
    bytes_.resize(at + x.size() * sizeof(T));
    if (!x.empty()) std::memcpy(bytes_.data() + at, x.data(), x.size() * sizeof(T));
  }
  bool operator==(const results&) const = default;

 private:
  std::vector<std::byte> bytes_;
};

/// Four calls on the host, and in a stream: made by the host or, if `captures`, launched as the graph of one.
template <class T, class Composition, class Op = spar::sum>
void compare(rank_t ranks, std::size_t n, const Composition& parts, bool captures, Op op = {}) {
  constexpr int steps = 4;
  SCOPED_TRACE(testing::Message() << Composition::storage_type::name << ", " << ranks << " ranks, " << n << " values");
  const auto expected = on_ranks(ranks, [&](spar::threads& net) {
    results all;
    for (int step = 0; step < steps; ++step) {
      auto x = values_of<T>(net.rank(), step, n);
      spar::allreduce(net, std::span(x), parts, op);
      all.add(x);
    }
    return all;
  });
  std::vector<results> got(static_cast<std::size_t>(ranks));
  expect_no_errors(
      outcomes_on_devices(ranks, static_cast<std::uint64_t>(ranks) + n, [&](spar::threads& control, outcome&) {
        spar::nccl_stream order(control);
        auto reduce = spar::with_stream_ordered_allreduce<T>(order, n, parts, op);
        const stream work;
        const device_array<T> x(std::vector<T>(n, T(-1)));
        const spar::device_span values(x.data(), n, work);
        std::optional<graph> once;
        if (captures) once.emplace(work, [&] { reduce(values); });
        for (int step = 0; step < steps; ++step) {
          x.write(work, values_of<T>(control.rank(), step, n));
          if (captures)
            once->launch(work);
          else
            reduce(values);
          reduce.wait(work);
          got[static_cast<std::size_t>(control.rank())].add(x.read(work));
        }
        return std::vector<float>();
      }));
  EXPECT_TRUE(got == expected);
}

template <class Schedule = two_shot>
auto in_bfloat16(std::uint64_t piece) {
  return spar::compose(as_bfloat16{}, Schedule{.piece = piece});
}
template <int Bits, class Schedule = two_shot>
auto in_qsgd(std::uint64_t piece, std::uint64_t seed = 5) {
  return spar::compose(qsgd<Bits>{.bucket = 32, .seed = seed}, Schedule{.piece = piece});
}

TEST_F(stream_ordered_allreduce, has_the_bits_of_the_host) {
  for (rank_t ranks = 1; ranks <= 8; ++ranks) {
    if ((ranks % 2 == 0 || ranks > 5) && !spar_test::runs_all_cases()) continue;
    const bool captures = ranks % 3 == 0;
    compare<float>(ranks, 403, in_qsgd<8>(64), !captures, spar::average{});
    compare<float>(ranks, 403, in_bfloat16(60), captures);
    compare<float>(ranks, 403, in_bfloat16<ring>(60), !captures, spar::average{});
  }
  compare<float>(4, 3, in_qsgd<8>(32), true, spar::average{}); // a block is empty
  compare<float>(2, 0, in_bfloat16(8), true);
  compare<float>(3, 90, in_bfloat16(8), true, spar::maximum{});
#if SPAR_ALL_CASES
  compare<double>(3, 200, in_qsgd<4>(4096), true);
  for (rank_t ranks = 1; ranks <= 8; ++ranks) {
    const bool captures = ranks % 3 == 0;
    compare<double>(ranks, 100, spar::compose(as_half{}, two_shot{}), captures);
    compare<float>(ranks, 403, in_qsgd<8, ring>(64), !captures, spar::average{});
    compare<double>(ranks, 203, in_qsgd<4, ring>(64), captures);
    compare<float>(ranks, 203, spar::compose(as_half{}, ring{.piece = 30}), captures, spar::maximum{});
    compare<float>(ranks, 403, spar::compose(spar::storage::zfp{.rate = 8}, ring{.piece = 64}), captures);
    compare<double>(ranks, 403, spar::compose(spar::storage::zfp{.rate = 16}, two_shot{.piece = 64}), !captures);
    compare<float>(ranks, 403, spar::compose(spar::storage::zfp{.rate = 12}, two_shot{.piece = 64}), captures);
  }
  compare<float>(4, 3, in_qsgd<8, ring>(32), true); // a block is empty
  compare<double>(3, 90, in_bfloat16<ring>(8), true);
#endif
}

/// Two calls in pieces of 8 values, and two with whole blocks, whose bits the pieces must have. The last piece of the
/// first block is longer than those of the others.
template <class Schedule, class Codec = as_bfloat16>
void compare_pieces(std::uint64_t seed, bool captures, const Codec& codec = {}) {
  const auto ranks = static_cast<rank_t>(2 + seed % 7);
  const auto peers = static_cast<std::size_t>(ranks - 1), n = 33 * (peers + 1) + 1;
  constexpr std::size_t piece = 8;
  using calls = spar::detail::ordered_allreduce<float, Codec, Schedule>;
  SCOPED_TRACE(testing::Message() << Codec::name << ", " << Schedule::name << ", " << ranks << " ranks, seed " << seed
                                  << (captures ? ", captured" : ""));
  expect_no_errors(with_order(ranks, seed, [&](spar::threads& control, auto& order) {
    calls whole(ranks, n, codec, n), in_pieces(ranks, n, codec, piece);
    const spar::detail::ordered_host_memory host;
    const stream work;
    const std::vector<float> none(n);
    const device_array<float> x(none), y(none);
    const auto call = [&](calls& by, const device_array<float>& values) {
      by(order, spar::device_span(values.data(), n, work), &host.words().refused, spar::sum{});
    };
    EXPECT_EQ(in_pieces.bytes_sent(), 2 * peers * 5 * 16);
    std::optional<graph> once;
    if (captures) once.emplace(work, [&] { call(in_pieces, y); });
    for (int step = 0; step < 2; ++step) {
      x.write(work, values_of<float>(control.rank(), step, n));
      y.write(work, values_of<float>(control.rank(), step, n));
      const auto before = cuda_double::of_this_thread();
      if (captures)
        once->launch(work);
      else
        call(in_pieces, y);
      const auto after = cuda_double::of_this_thread();
      EXPECT_EQ(after.waits, before.waits);
      EXPECT_EQ(after.allocations, before.allocations);
      call(whole, x);
      order.wait(work);
      EXPECT_EQ(x.read(work), y.read(work));
    }
  }));
}
TEST_F(stream_ordered_allreduce, codes_pieces_during_the_transfers_of_others) {
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 70 : 1); ++seed) { // the first has 3 ranks
    for (const bool captures : {false, true}) {
      compare_pieces<two_shot>(seed, captures);
      compare_pieces<ring>(seed, captures);
#if SPAR_ALL_CASES // the random numbers depend on the indices of a piece
      compare_pieces<two_shot>(seed, captures, qsgd<8>{.bucket = 8, .seed = 5});
      compare_pieces<ring>(seed, captures, qsgd<8>{.bucket = 8, .seed = 5});
#endif
    }
  }
}
/// Calls of CUDA by which two streams wait for each other fail on rank 1, in a call of the host or while it is
/// captured.
TEST_F(stream_ordered_allreduce, with_two_streams_ends_if_cuda_fails) {
  const auto fail_at = [](std::uint64_t number, bool captures) {
    const auto ended = with_order(2, number, [&](spar::threads& control, auto& order) {
      constexpr std::size_t n = 100;
      const spar::detail::ordered_host_memory host;
      const stream work;
      const device_array<float> x(values_of<float>(control.rank(), 0, n));
      spar::detail::ordered_allreduce<float, as_bfloat16, two_shot> calls(2, n, {}, 16);
      const auto call = [&] {
        order.or_fail([&] { calls(order, spar::device_span(x.data(), n, work), &host.words().refused, spar::sum{}); });
      };
      std::optional<graph> once;
      if (control.rank() == 1) cuda_double::fail_at(number);
      if (captures)
        once.emplace(work, call), once->launch(work);
      else
        call();
      order.wait(work);
    });
    constexpr auto expected = "failed: cudaErrorUnknown, a planned error";
    EXPECT_NE(ended[1].error.find(expected), std::string::npos) << number << ": " << ended[1].error;
    EXPECT_TRUE(ended[0].error.empty() || ended[0].error.find(expected) != std::string::npos)
        << number << ": " << ended[0].error; // empty if rank 1 fails after its last transfer
  };
  // With four pieces, the streams wait for each other nine times, by four calls.
  const bool all = spar_test::runs_all_cases();
  for (std::uint64_t number = 1; number <= 9U * 4U; number += all ? 1 : 5) {
    fail_at(number, false);
    if (all && number % 9 == 2) fail_at(number, true); // takes a second, while NCCL waits for the graph
  }
}
#if SPAR_ALL_CASES
TEST_F(stream_ordered_allreduce, has_pieces_of_the_schedule_if_they_are_long) {
  constexpr std::uint64_t piece = 1 << 20, n = 2 * piece + 100;
  expect_no_errors(with_order(2, 1, [&](spar::threads&, auto& order) {
    auto whole = spar::with_stream_ordered_allreduce(order, n, in_bfloat16(piece - 1));
    auto in_two = spar::with_stream_ordered_allreduce(order, n, in_bfloat16(piece));
    EXPECT_EQ(whole.bytes_sent(), 2 * (piece * 2 + 112));
    EXPECT_EQ(in_two.bytes_sent(), 2 * 2 * piece * 2);
  }));
  compare<float>(2, n, in_bfloat16(piece), false);
  compare<float>(2, n, in_bfloat16<ring>(piece), true);
}
#endif

/// What a call of P ranks puts into the stream: each rank encodes P - 1 blocks and a sum, and decodes P sums; it begins
/// its sum with a copy or a decoding. A message of bfloat16 is added by one kernel, one of QSGD by two. QSGD counts the
/// call. Around a ring, each rank encodes P blocks, adds P - 1 messages, and decodes P sums, between P transfers.
TEST_F(stream_ordered_allreduce, a_call_neither_waits_nor_allocates) {
  const auto count = [&](rank_t ranks, const auto& parts, std::uint64_t message, auto kernels) {
    constexpr bool of_ring = std::is_same_v<typename std::decay_t<decltype(parts)>::schedule_type, ring>;
    const auto peers = static_cast<std::uint64_t>(ranks - 1), n = 100 * (peers + 1);
    expect_no_errors(with_order(ranks, 7, [&](spar::threads& control, auto& order) {
      auto reduce = spar::with_stream_ordered_allreduce(order, n, parts);
      EXPECT_EQ(reduce.bytes_sent(), 2 * peers * message);
      const stream work;
      const device_array<float> x(values_of<float>(control.rank(), 0, n));
      const spar::device_span values(x.data(), n, work);
      const std::uint64_t transfers = ranks == 1 ? 0 : of_ring ? peers + 1 : 2;
      expect_costs(reduce, values,
                   {ranks == 1 ? 0 : kernels(control.rank()) + transfers, transfers, 2 * peers, 2 * peers * message});
      reduce.wait(work);

      expect_launches_alone(reduce, values);
    }));
  };
  for (rank_t ranks = 1; ranks <= 8; ++ranks) {
    if (ranks != 1 && ranks != 3 && !spar_test::runs_all_cases()) continue;
    const auto p = static_cast<std::uint64_t>(ranks);
    count(ranks, in_bfloat16(32), 208,
          [p](rank_t) { return p + p + p; });            // 100 values, and 8 bytes to a multiple of 16
    count(ranks, in_qsgd<8>(32), 128, [p](rank_t rank) { // four buckets with 4 bytes more
      return 1 + p + (rank == 0 ? 1 + 2 * (p - 1) : 2 * (p - 1)) + p;
    });
    count(ranks, in_bfloat16<ring>(32), 208, [p](rank_t) { return p + (p - 1) + p; });
#if SPAR_ALL_CASES
    count(ranks, in_qsgd<8, ring>(32), 128, [p](rank_t) { return 1 + p + 2 * (p - 1) + p; });
    const spar::storage::zfp in_one_byte{.rate = 8}; // which is encoded by one kernel, after another has checked values
    count(ranks, spar::compose(in_one_byte, two_shot{}), 112,
          [p](rank_t rank) { return 2 * p + (rank == 0 ? 1 : 0) + 2 * (p - 1) + p; });
    count(ranks, spar::compose(in_one_byte, ring{}), 112, [p](rank_t) { return 2 * p + 2 * (p - 1) + p; });
#endif
  }
}

/// A rank's value, or a sum, becomes infinite in bfloat16: the rank that encodes it says so in `wait` or in the next
/// call, and the other rank finds that the first has failed.
TEST_F(stream_ordered_allreduce, reports_values_that_a_codec_cannot_encode) {
  constexpr float most = std::numeric_limits<float>::max();
  const auto errors = [&](std::vector<float> zero, std::vector<float> one, bool waits) {
    return with_order(2, 3, [&](spar::threads& control, auto& order) {
      auto reduce = spar::with_stream_ordered_allreduce(order, 2, in_bfloat16(8));
      const stream work;
      const device_array<float> x(control.rank() == 0 ? zero : one);
      const spar::device_span values(x.data(), 2, work);
      reduce(values);
      order.wait(work);
      if (waits) reduce.wait(work);
      if (!waits) reduce(values);
      order.wait(work);
    });
  };
  const std::string expected =
      "the storage bfloat16 cannot encode some values of a call in a CUDA stream, which cannot "
      "send them as they are: use another storage, or calls of a spar::on_device";
  for (const bool waits : {true, false}) {
    const auto own = errors({1, 2}, {-most, 3}, waits); // index 0 belongs to rank 0
    EXPECT_EQ(own[1].error, expected);
    const auto sum = errors({1, 2.0e38F}, {2, 1.405e38F}, waits);
    EXPECT_EQ(sum[1].error, expected);
  }
  expect_no_errors(errors({most, 1}, {std::numeric_limits<float>::infinity(), most / 2}, true)); // rank 0 keeps its own
}

TEST_F(stream_ordered_allreduce, refuses_other_options_and_memory) {
  for (const outcome& o : with_order(2, 1, [&](spar::threads& control, auto& order) {
         const auto seed = static_cast<std::uint64_t>(5 + control.rank());
         (void)spar::with_stream_ordered_allreduce(order, 50, in_qsgd<8>(32, seed));
       })) {
    EXPECT_NE(o.error.find("store.seed=5"), std::string::npos) << o.error;
    EXPECT_NE(o.error.find("store.seed=6"), std::string::npos) << o.error;
  }
  expect_no_errors(with_order(2, 1, [&](spar::threads& control, auto& order) {
    EXPECT_EQ(
        spar_test::refusal_of([&] { (void)spar::with_stream_ordered_allreduce(order, 98, in_qsgd<8>(48)); }),
        "the schedule two_shot has pieces of 48 values, but the storage qsgd8 encodes 32 values together: for calls "
        "in a CUDA stream, pieces must be multiples, or as large as a block");
    auto reduce = spar::with_stream_ordered_allreduce(order, 96, in_qsgd<8>(48));
    const stream work;
    const device_array<float> x(std::vector<float>(96));
    EXPECT_EQ(spar_test::refusal_of([&] { reduce(spar::device_span(x.data(), 95, work)); }),
              "the vector has length 95, but this spar::stream_ordered_allreduce was made for 96 values");
    std::vector<float> on_host(96);
    EXPECT_EQ(spar_test::refusal_of([&] { reduce(spar::device_span(on_host.data(), 96, work)); }),
              "the 96 values of a spar::device_span are in host memory; expected device memory");
    EXPECT_FALSE(control.dead());
  }));
}

} // namespace
