// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Entries in device memory that travel in the code of the storage coded, against the same calls on the host: kernels
// run by fibres, in the streams of a double of the CUDA runtime.
#include "feedback_suite.hpp"
#include "refusals.hpp"

#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/storage/coded.hpp>
#include <spar/transport/counting.hpp>

#include <random>
#include <utility>

namespace feedback_test {
namespace {

using spar::storage::coded;

class coded_on_device : public feedback {};

constexpr coded<> exact{.fast = true};
constexpr coded<7> rounded{.fast = true};

TEST_F(coded_on_device, has_the_bits_of_the_host) {
  for (const spar::rank_t ranks : {1, 2, 3, 5}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    on_host::machine::seed = static_cast<std::uint64_t>(ranks);
    const exact_topk select{.k = 40};
    const threshold_reuse reuse{.k = 30, .period = 4};
    compare_entries<float>(ranks, 900, spar::compose(select, exact, spar::recursive_doubling{.parts = 2}));
    compare_entries<double>(ranks, 700, spar::compose(select, exact, spar::split_allgather{}), spar::average{});
    compare_entries<std::int32_t>(ranks, 300, spar::compose(select, exact, spar::gather_and_merge{}));
    compare_entries<float, std::uint64_t>(ranks, 600, spar::compose(reuse, exact, spar::balanced_owners{.tau = 2}));
    compare_entries<float>(ranks, 300, spar::compose(exact_topk{.density = 1}, exact, spar::split_allgather{}));
    compare_entries<float>(ranks, 300, spar::compose(exact_topk{.k = 0}, exact, spar::split_allgather{}));
  }
}

/// Also the residuals have the bits of the host, which contain what the ranks' encodings lose.
TEST_F(coded_on_device, rounds_and_keeps_the_errors_like_the_host) {
  for (const spar::rank_t ranks : {1, 2, 3, 5}) {
    cuda_double::reset(static_cast<std::uint64_t>(ranks));
    const exact_topk select{.k = 40};
    compare_entries<float>(ranks, 600, spar::compose(select, rounded, spar::recursive_doubling{}));
    compare_entries<float>(ranks, 600, spar::compose(select, rounded, spar::ssar_split{}), spar::average{});
    compare_entries<float>(ranks, 600, spar::compose(select, rounded, spar::tree_of_topk{}));
    compare_entries<float>(ranks, 600, spar::compose(select, rounded, spar::quantile_owners{}));
    compare_entries<float>(ranks, 600, spar::compose(select, rounded, spar::ring{}));
    compare_entries<double>(ranks, 600, spar::compose(select, coded<20>{.fast = true}, spar::ssar_split{}));
    compare_entries<double>(
        ranks, 300,
        spar::compose(select, spar::storage::then<spar::storage::coo, spar::storage::qsgd<8>>{}, spar::dsar_split{}));
    compare_entries<float>(ranks, 600,
                           spar::compose(threshold_reuse{.k = 30, .period = 4}, rounded, spar::balanced_owners{}));
    compare_entries<float>(
        ranks, 300,
        spar::compose(select, spar::storage::then<coded<7>, spar::storage::qsgd<4>>{rounded, {}}, spar::dsar_split{}));
  }
}

/// As many bytes as on the host, in as many messages, also in the statistics of the codec: this call has no runs.
TEST_F(coded_on_device, sends_the_bytes_of_the_host) {
  constexpr std::size_t n = 20000;
  cuda_double::reset(3);
  on_ranks(3, [](spar::threads& net) {
    std::vector<std::uint32_t> indices;
    for (auto i = static_cast<std::uint32_t>(net.rank()); i < n; i += 17 + i % 3) indices.push_back(i);
    const std::vector<float> values = gradient<float>(net.rank(), 0, indices.size());
    const device_array<std::uint32_t> at(indices);
    const device_array<float> x(values);
    const auto mine = spar::stream_view<float, std::uint32_t, spar::cuda>::sparse(n, {at.data(), indices.size()},
                                                                                  {x.data(), values.size()});
    spar::on_device gpu(net);
    const auto sent_by = [&](const auto& call) {
      const spar::statistics before = net.statistics();
      call();
      const spar::statistics& after = net.statistics();
      return std::vector{
          after.messages_sent - before.messages_sent, after.bytes_sent - before.bytes_sent,
          after.coded_indices - before.coded_indices, after.coded_index_bytes - before.coded_index_bytes,
          after.coded_values - before.coded_values,   after.coded_value_bytes - before.coded_value_bytes};
    };
    const auto compare_with = [&](const auto& algorithm) {
      const auto on_host =
          sent_by([&] { (void)spar::allreduce(net, spar::sparse_view(n, indices, values), algorithm); });
      const auto on_device = sent_by([&] { (void)spar::allreduce(gpu, mine, nullptr, algorithm); });
      EXPECT_EQ(on_device, on_host);
      EXPECT_GT(on_host[3], 0U);
    };
    compare_with(spar::compose(exact, spar::recursive_doubling{}));
    compare_with(spar::compose(exact, spar::ssar_split{}));
    compare_with(spar::compose(rounded, spar::gather_and_merge{}));
    return 0;
  });
}

TEST_F(coded_on_device, refuses_a_rice_code_before_anything_is_sent) {
  cuda_double::reset(4);
  on_ranks(2, [](spar::threads& net) {
    spar::on_device gpu(net);
    const device_array<float> x(std::vector<float>(100, 1));
    const device_array<std::uint32_t> at(std::vector<std::uint32_t>{3});
    const auto mine = spar::stream_view<float, std::uint32_t, spar::cuda>::sparse(100, {at.data(), 1}, {x.data(), 1});
    const std::string refusal =
        "storage::coded without .fast = true encodes entries in device memory: there are no "
        "kernels for its Rice code, whose numbers differ in length; set .fast = true ('coded:fast' in a text), which "
        "gives the numbers of a block equal widths";
    const auto sent = net.statistics().messages_sent;
    const auto parts = spar::compose(exact_topk{.k = 3}, coded<>{}, spar::recursive_doubling{});
    const spar::device_span values(x.data(), 100);
    EXPECT_EQ(spar_test::refusal_of([&] { spar::allreduce(gpu, values, parts); }), refusal);
    EXPECT_EQ(spar_test::refusal_of([&] { (void)spar::allreduce(gpu, mine, nullptr, coded<7>{}); }), refusal);
    auto reduce = spar::with_device_feedback<float>(parts);
    EXPECT_EQ(spar_test::refusal_of([&] { reduce(gpu, values); }), refusal);
    EXPECT_EQ(net.statistics().messages_sent, sent);
    spar::allreduce(gpu, values, spar::compose(coded<>{}, spar::ring{})); // dense values, which have no indices
    return 0;
  });
}

TEST_F(coded_on_device, end_on_every_rank_if_cuda_fails_on_one) {
  const threshold_reuse select{.k = 20, .period = 4};
  EXPECT_GE(fail_each_cuda_call(2, 100, spar::compose(select, exact, spar::ssar_split{}), on_the_device{}), 10U);
  EXPECT_GE(fail_each_cuda_call(2, 100, spar::compose(select, rounded, spar::balanced_owners{}), on_the_device{}), 10U);
}

TEST_F(coded_on_device, leaves_no_memory_allocated) {
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  EXPECT_EQ(cuda_double::device_allocations(), 0U);
}

/// Codes that only the host makes, and malformed ones: the host decodes a copy, or says what is wrong.
TEST_F(coded_on_device, decodes_all_codes_of_the_host) {
  cuda_double::reset(5);
  on_ranks(1, [](spar::threads& net) {
    spar::on_device gpu(net);
    auto& work = gpu.transport().work();
    std::vector<std::uint32_t> indices;
    for (std::uint32_t i = 100; indices.size() < 400; i += indices.size() % 40 == 0 ? 5000 : 1)
      indices.push_back(i); // runs
    std::vector<float> values = gradient<float>(0, 0, indices.size());
    const spar::index_range range{50, 100000};
    const auto compare_code = [&](bool fast, std::size_t shift) {
      std::vector<std::byte> bytes(coded<>::bound<float, std::uint32_t>(range, indices.size()));
      bytes.resize(coded<>{.fast = fast}.encode(
          spar::coo_span<float, std::uint32_t>{std::span<const std::uint32_t>(indices), std::span<const float>(values)},
          range, std::span(bytes)));
      std::vector<std::byte> shifted(shift);
      shifted.insert(shifted.end(), bytes.begin(), bytes.end());
      const device_array<std::byte> in(shifted);
      const device_array<std::uint32_t> at(std::vector<std::uint32_t>(indices.size(), 0));
      const device_array<float> x(std::vector<float>(indices.size(), 0));
      const spar::entry_room<float, std::uint32_t> to{{at.data(), indices.size()}, {x.data(), indices.size()}};
      const auto decode = [&](std::size_t size) {
        spar::run_until_done(gpu.transport(), work.decode_entries(exact, {in.data() + shift, size}, range, to));
      };
      decode(bytes.size());
      EXPECT_EQ(cuda_double::values_at(at.data(), indices.size(), work.stream()), indices);
      EXPECT_EQ(bits(std::span<const float>(cuda_double::values_at(x.data(), values.size(), work.stream()))),
                bits(std::span<const float>(values)));
      try {
        decode(bytes.size() - 1);
        ADD_FAILURE() << "a message without its last byte";
      } catch (const spar::corrupt_message& e) {
        const std::string expected = "in a coded stream of 400 entries in " + std::to_string(bytes.size() - 1) +
                                     " bytes are malformed; expected indices from 50 to 100000 - 1";
        EXPECT_NE(std::string(e.what()).find(expected), std::string::npos) << e.what();
      }
    };
    compare_code(true, 0);  // runs
    compare_code(false, 0); // Rice codes
    for (std::uint32_t e = 0; e < indices.size(); ++e) indices[e] = 60 + e * 200;
    compare_code(true, 0);
    compare_code(true, 1); // at an address that the kernels do not read
    return 0;
  });
}

} // namespace
} // namespace feedback_test
