// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces of encoded values in the order of CUDA streams against those of the host: kernels run by fibres, and
// transfers of a double of NCCL, in the streams of a double of the CUDA runtime.
#include "in_order.hpp"

#include "refusals.hpp"

#include <spar/stream_ordered_allreduce.cuh>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using cuda_double::device_array, cuda_double::stream;
using in_order::expect_costs, in_order::expect_launches_alone, in_order::expect_no_errors, in_order::graph,
    in_order::with_order;
using over_nccl::outcome, over_nccl::outcomes_on_devices;
using spar::rank_t, spar::two_shot, spar::storage::as_bfloat16, spar::storage::as_half, spar::storage::qsgd;

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

auto in_bfloat16(std::uint64_t piece) { return spar::compose(as_bfloat16{}, two_shot{.piece = piece}); }
template <int Bits>
auto in_qsgd(std::uint64_t piece, std::uint64_t seed = 5) {
  return spar::compose(qsgd<Bits>{.bucket = 32, .seed = seed}, two_shot{.piece = piece});
}

TEST_F(stream_ordered_allreduce, has_the_bits_of_the_host) {
  for (const rank_t ranks : {1, 2, 3, 4, 5}) {
    if (ranks % 2 == 0 && !spar_test::runs_all_cases()) continue;
    compare<float>(ranks, 403, in_qsgd<8>(64), ranks != 3, spar::average{});
    compare<float>(ranks, 403, in_bfloat16(60), ranks == 3);
  }
  compare<float>(4, 3, in_qsgd<8>(32), true, spar::average{}); // a block is empty
  compare<float>(2, 0, in_bfloat16(8), true);
  compare<float>(3, 90, in_bfloat16(8), true, spar::maximum{});
#if SPAR_ALL_CASES
  compare<double>(3, 200, in_qsgd<4>(4096), true);
  compare<double>(2, 100, spar::compose(as_half{}, two_shot{}), false);
#endif
}

/// What a call of P ranks puts into the stream: each rank encodes P - 1 blocks and a sum, and decodes P sums; it begins
/// its sum with a copy or a decoding. A message of bfloat16 is added by one kernel, one of QSGD by two. QSGD draws
/// numbers first.
TEST_F(stream_ordered_allreduce, a_call_neither_waits_nor_allocates) {
  constexpr std::size_t n = 300;
  const auto count = [&](rank_t ranks, const auto& parts, std::uint64_t message, auto kernels) {
    const auto peers = static_cast<std::uint64_t>(ranks - 1);
    expect_no_errors(with_order(ranks, 7, [&](spar::threads& control, auto& order) {
      auto reduce = spar::with_stream_ordered_allreduce(order, n, parts);
      EXPECT_EQ(reduce.bytes_sent(), 2 * peers * message);
      const stream work;
      const device_array<float> x(values_of<float>(control.rank(), 0, n));
      const spar::device_span values(x.data(), n, work);
      const std::uint64_t transfers = ranks == 1 ? 0 : 2;
      expect_costs(reduce, values,
                   {ranks == 1 ? 0 : kernels(control.rank()) + transfers, transfers, 2 * peers, 2 * peers * message});
      reduce.wait(work);

      expect_launches_alone(reduce, values);
    }));
  };
  for (const rank_t ranks : {1, 3}) {
    const auto p = static_cast<std::uint64_t>(ranks);
    count(ranks, in_bfloat16(32), 208,
          [p](rank_t) { return p + p + p; });            // 100 values, and 8 bytes to a multiple of 16
    count(ranks, in_qsgd<8>(32), 128, [p](rank_t rank) { // four buckets with 4 bytes more
      return 1 + p + (rank == 0 ? 1 + 2 * (p - 1) : 2 * (p - 1)) + p;
    });
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
