// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Misuse throws an error of one sentence with the values, before the rank sends anything. If ranks disagree, the rank
// that finds it throws `mismatch` and the others throw `peer_failed`; no rank hangs.
#include "support/compositions.hpp"
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace spar_test {

namespace {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

/// `text` is one sentence and contains all `parts`.
AssertionResult says(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts)
    if (text.find(part) == std::string::npos)
      return AssertionFailure() << '"' << text << "\" does not contain " << part;
  if (text.find('\n') != std::string::npos) return AssertionFailure() << text << " has more than one line";
  return AssertionSuccess();
}

/// Returns the text of the Error that `call` throws, or an empty text if `call` throws nothing.
template <class Error = spar::invalid_argument, class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

// --- errors before a message is sent ---

TEST(bad_input, options_of_recursive_doubling) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    const std::array<std::uint32_t, 1> indices{3};
    const std::array<float, 1> values{1};
    const auto error_with = [&](const spar::recursive_doubling& schedule) {
      return error_of([&] { spar::allreduce(net, spar::sparse_view(8, indices, values), schedule); });
    };
    EXPECT_TRUE(says(error_with({.dense_from = -1}), {"recursive_doubling", "dense_from is -1", "0 or more"}));
    EXPECT_TRUE(says(error_with({.parts = 0}), {"recursive_doubling", "parts is 0", "1 to 8"}));
    EXPECT_TRUE(says(error_with({.parts = 9}), {"recursive_doubling", "parts is 9", "1 to 8"}));
    EXPECT_EQ(net.statistics().messages_sent, 0U);
    EXPECT_EQ(error_with({.parts = 8}), "");
  });
}

/// Every collective that takes a stream rejects `wrong` with an error that contains `parts`, and sends nothing.
template <class T, class Index>
void expect_refused(const spar::stream_view<T, Index>& wrong, const std::vector<std::string>& parts) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    const auto refused = [&](const auto& call) { EXPECT_TRUE(says(error_of(call), parts)); };
    refused([&] { spar::allreduce(net, wrong, spar::recursive_doubling{}); });
    refused([&] { spar::allreduce(net, wrong, spar::ring{}); });
    refused([&] { spar::allreduce(net, wrong, spar::rabenseifner{}); });
    refused([&] { spar::allreduce(net, wrong, spar::ssar_split{}); });
    refused([&] { spar::allreduce(net, wrong, spar::dsar_split{}); });
    refused([&] { spar::allreduce(net, wrong); });
    refused([&] { spar::allreduce(net, wrong, spar::sparcml{}, spar::average{}); });
    refused([&] { (void)spar::start_allreduce(net, wrong, spar::sparcml{}); });
    refused([&] { spar::reduce_scatter(net, wrong); });
    refused([&] { spar::allgather(net, wrong); });
    refused([&] { spar::reduce(net, wrong, 0); });
    refused([&] { spar::broadcast(net, wrong, 0); });
    EXPECT_EQ(net.statistics().messages_sent, 0U);
    // The group still works after the rejected calls.
    std::array<float, 2> x{1, 2};
    spar::allreduce(net, std::span<float>(x));
    EXPECT_EQ(x[1], 4.0F);
  });
}

void expect_refused(std::uint64_t n, const std::vector<std::uint32_t>& indices, const std::vector<float>& values,
                    const std::vector<std::string>& parts) {
  expect_refused(spar::sparse_view(n, indices, values), parts);
}

TEST(bad_input, owners_that_do_not_divide_the_indices) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    std::array<float, 9> x{};
    const std::array<std::uint32_t, 1> indices{3};
    const std::array<float, 1> values{1};
    const auto refused = [&](const std::vector<std::uint64_t>& bounds, const std::vector<std::string>& parts) {
      const spar::bounded_ownership owners{bounds};
      const auto view = spar::sparse_view(9, indices, values);
      EXPECT_TRUE(says(error_of([&] { spar::reduce_scatter(net, x, owners); }), parts));
      EXPECT_TRUE(says(error_of([&] { (void)spar::start_reduce_scatter(net, x, owners); }), parts));
      EXPECT_TRUE(says(error_of([&] { spar::reduce_scatter(net, view, owners); }), parts));
      EXPECT_TRUE(says(error_of([&] { spar::reduce_scatter(net, view, owners, spar::ring_reduce_scatter{}); }), parts));
    };
    refused({}, {"0 bounds", "expected P + 1 = 3"});
    refused({0, 9}, {"2 bounds", "expected P + 1 = 3"});
    refused({0, 3, 6, 9}, {"4 bounds", "expected P + 1 = 3"});
    refused({0, 10, 9}, {"bound 2 of an ownership is 9", "bound 1 is 10", "ascending"});
    refused({5, 4, 9}, {"bound 1 of an ownership is 4", "bound 0 is 5"});
    refused({1, 4, 9}, {"from 1 to 9", "from 0 to n = 9"});
    refused({0, 4, 8}, {"from 0 to 8", "from 0 to n = 9"});
    refused({0, 4, 10}, {"from 0 to 10", "from 0 to n = 9"});
    EXPECT_EQ(net.statistics().messages_sent, 0U);
  });
}

TEST(bad_input, owners_that_differ_between_ranks) {
  for (const bool dense : {true, false}) {
    spar::thread_group group{3};
    const std::string text = error_of<spar::mismatch>([&] {
      group.run([&](spar::threads& net) {
        const std::array<std::uint64_t, 4> bounds{0, 3, net.rank() == 1 ? 3U : 4U, 9};
        const spar::bounded_ownership owners{bounds};
        std::array<float, 9> x{};
        const std::array<std::uint32_t, 1> indices{3};
        const std::array<float, 1> values{1};
        if (dense)
          spar::reduce_scatter(net, x, owners);
        else
          spar::reduce_scatter(net, spar::sparse_view(9, indices, values), owners);
      });
    });
    EXPECT_TRUE(says(text, {"the algorithm's options", "owners.length=1 and owners.length=5",
                            "owners.length=0 and owners.length=6"}));
  }
}

TEST(bad_input, more_entries_than_the_dimension) {
  expect_refused(2, {0, 1, 2}, {1, 2, 3}, {"3 entries", "dimension is only 2"});
}

TEST(bad_input, an_entry_of_nothing) { expect_refused(0, {0}, {1}, {"1 entries", "dimension is only 0"}); }

TEST(bad_input, unsorted_indices) {
  expect_refused(100, {3, 40, 17, 50}, {1, 2, 3, 4}, {"index 17", "entry 2", "40", "ascend"});
}

TEST(bad_input, a_repeated_index) {
  expect_refused(100, {3, 40, 40, 50}, {1, 2, 3, 4}, {"index 40", "entry 2", "indices must be unique"});
}

TEST(bad_input, an_index_beyond_the_dimension) {
  expect_refused(100, {3, 40, 100}, {1, 2, 3}, {"index 100", "entry 2", "dimension 100"});
  expect_refused(100, {4'000'000'000U}, {1}, {"index 4000000000", "dimension 100"});
}

TEST(bad_input, a_bad_index_far_inside_a_long_stream) {
  std::vector<std::uint32_t> indices(5000);
  for (std::size_t e = 0; e < indices.size(); ++e) indices[e] = static_cast<std::uint32_t>(2 * e);
  const std::vector<float> values(5000);
  for (const std::size_t bad : {1U, 63U, 64U, 65U, 1023U, 4998U, 4999U}) {
    auto wrong = indices;
    wrong[bad] = wrong[bad - 1];
    expect_refused(10'000, wrong, values, {"entry " + std::to_string(bad), "indices must be unique"});
  }
}

TEST(bad_input, indices_and_values_of_different_length) {
  expect_refused(100, {3, 40}, {1, 2, 3}, {"2 indices", "3 values"});
  expect_refused(100, {3, 40, 41}, {}, {"3 indices", "0 values"});
}

TEST(bad_input, a_dimension_beyond_the_index_type) {
  expect_refused((std::uint64_t{1} << 32) + 1, {1, 2}, {1, 2}, {"4294967297", "32-bit"});
}

TEST(bad_input, a_dense_stream_that_is_not_the_whole_vector) {
  const std::vector<float> values(10);
  expect_refused(spar::stream_view<float>::dense(20, 0, values), {"dimension 20", "10 values"});
  expect_refused(spar::stream_view<float>::dense(10, 5, std::span(values).first(5)), {"dimension 10", "index 5"});
}

TEST(bad_input, a_dense_stream_for_a_sparse_allgather) {
  spar::thread_group group{1};
  const std::vector<float> values(10);
  const auto text = error_of([&] { spar::allgather(group.rank(0), spar::dense_view(values)); });
  EXPECT_TRUE(says(text, {"10 values"}));
}

TEST(bad_input, in_and_out_of_different_length) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    const std::vector<float> in(7);
    std::vector<float> out(6);
    EXPECT_TRUE(
        says(error_of([&] { spar::allreduce(net, std::span<const float>(in), std::span<float>(out)); }), {"7", "6"}));
    EXPECT_EQ(net.statistics().messages_sent, 0U);
  });
}

TEST(bad_input, a_result_for_a_span_of_another_length) {
  const std::vector<std::uint32_t> indices{1};
  const std::vector<float> values{2};
  std::vector<float> out(9);
  EXPECT_TRUE(says(error_of([&] { spar::sparse_view(10, indices, values).to_dense(out, spar::sum{}); }), {"10", "9"}));
}

TEST(bad_input, a_root_that_is_no_rank) {
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    std::vector<float> x(4);
    const auto view = spar::dense_view(x);
    for (const spar::rank_t root : {-1, 3, 100}) {
      const std::vector<std::string> parts{"rank " + std::to_string(root), "from 0 to 2"};
      EXPECT_TRUE(says(error_of([&] { spar::reduce(net, std::span<float>(x), root); }), parts));
      EXPECT_TRUE(says(error_of([&] { spar::broadcast(net, std::span<float>(x), root); }), parts));
      EXPECT_TRUE(says(error_of([&] { spar::reduce(net, view, root); }), parts));
      EXPECT_TRUE(says(error_of([&] { spar::broadcast(net, view, root); }), parts));
    }
    EXPECT_EQ(net.statistics().messages_sent, 0U);
  });
}

TEST(bad_input, no_ranks) {
  EXPECT_TRUE(says(error_of([] { spar::thread_group group{0}; }), {"0"}));
  EXPECT_TRUE(says(error_of([] { spar::thread_group group{-4}; }), {"-4"}));
  EXPECT_TRUE(says(error_of([] { spar::simulator engine{0}; }), {"0"}));
}

TEST(bad_input, a_bucket_of_no_entries) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    const std::vector<float> values(10);
    const quantised_split<8> algorithm{.store = {.blocks = {.bucket = 0}}};
    EXPECT_TRUE(says(error_of([&] { spar::allreduce(net, spar::dense_view(values), algorithm); }), {"0 entries"}));
    EXPECT_EQ(net.statistics().messages_sent, 0U);
  });
}

/// A span of more values than memory could hold: the code that rejects this span must not read the values.
std::span<float> beyond_32_bit_indices(std::array<float, 2>& x) { return {x.data(), (std::size_t{1} << 32) + 1}; }

TEST(bad_input, more_dense_values_than_a_schedule_for_streams_has_indices_for) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    std::array<float, 2> x{1, 2};
    const std::span<float> all = beyond_32_bit_indices(x);
    const auto refused = [&](const auto& call) { EXPECT_TRUE(says(error_of(call), {"4294967297", "32-bit"})); };
    const auto refuses = [&](const auto& algorithm) {
      refused([&] { spar::allreduce(net, all, algorithm); });
      refused([&] { (void)spar::start_allreduce(net, all, algorithm); });
      refused([&] { spar::allreduce(net, spar::named{"all"}, all, algorithm, spar::average{}); });
      refused([&] { (void)spar::partial_allreduce<float>(net, all.size(), spar::solo{}, algorithm); });
      refused([&] { spar::sgd_step(net, all, all, 0.5F, algorithm); });
      auto reduce = spar::with_error_feedback<float>(spar::detail::as_algorithm(algorithm));
      refused([&] { reduce(net, all); });
    };
    refuses(spar::ssar_split{});
    refuses(spar::gather_and_merge{});
    refuses(spar::compose(spar::storage::as_half{}, spar::rabenseifner{}));
    refuses(spar::compose(spar::selector::exact_topk{.k = 3}, spar::ring{})); // entries have 32-bit indices
    EXPECT_EQ(net.statistics().messages_sent, 0U);
    spar::allreduce(net, std::span<float>(x), spar::ssar_split{}); // the group still works
    EXPECT_EQ(x[1], 4.0F);
  });
}

TEST(bad_input, as_many_dense_values_are_for_schedules_of_values_and_as_many_indices_for_long_ones) {
  constexpr std::uint64_t n = (std::uint64_t{1} << 32) + 1;
  const auto accepts = [](const auto& algorithm) {
    EXPECT_NO_THROW((algorithm.template validate_values<spar::threads_port, float>(n, 2, spar::sum{})));
  };
  accepts(spar::compose(spar::ring{}));
  accepts(spar::compose(spar::rabenseifner{}));
  accepts(spar::compose(spar::storage::as_half{}, spar::ring{}));
  spar::thread_group group{2};
  group.run([](spar::threads& net) { // a stream with 64-bit indices
    const std::vector<std::uint64_t> indices{n - 1};
    const std::vector<float> values{1};
    const auto sum = spar::allreduce(net, spar::sparse_view(n, indices, values), spar::ssar_split{});
    EXPECT_EQ(sum.values()[0], 2.0F);
  });
}

// --- ranks that disagree ---

/// Runs `program(net)` on every rank of a group. Every rank must throw: some `mismatch`, the others `peer_failed`.
/// Returns the text of the first mismatch.
std::string disagreement(spar::rank_t ranks, bool synchronous, const std::function<void(spar::threads&)>& program) {
  std::atomic<int> ended = 0;
  std::string text;
  spar::thread_group group{ranks, {.synchronous = synchronous}};
  try {
    group.run([&](spar::threads& net) {
      net.set_deadline(60);
      try {
        program(net);
        ADD_FAILURE() << "rank " << net.rank() << " returned a result";
      } catch (const spar::mismatch&) {
        ++ended;
        throw;
      } catch (const spar::peer_failed& e) {
        ++ended;
        EXPECT_TRUE(says(e.what(), {"rank ", "failed", "disagree"}));
        throw;
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << net.rank() << ": " << e.what();
        throw;
      }
    });
    ADD_FAILURE() << "no rank threw an error";
  } catch (const spar::mismatch& e) {
    text = e.what();
  }
  EXPECT_EQ(ended, ranks);
  EXPECT_TRUE(group.rank(0).dead());
  return text;
}

/// Calls `check(ranks, synchronous)` with buffered and with synchronous sends and several numbers of ranks.
template <class Check>
void for_groups(const Check& check) {
  for (const bool synchronous : {false, true}) {
    for (const spar::rank_t ranks : {2, 3, 4, 7}) {
      SCOPED_TRACE(testing::Message() << "P = " << ranks << ", synchronous: " << synchronous);
      check(ranks, synchronous);
    }
  }
}

/// Called with few entries, and with so many that the messages are read in the sender's memory without a copy.
template <class Algorithm>
void expect_dimension_mismatch(std::size_t count) {
  for_groups([&](spar::rank_t ranks, bool synchronous) {
    const auto text = disagreement(ranks, synchronous, [&](spar::threads& net) {
      std::vector<std::uint32_t> indices(count);
      for (std::size_t e = 0; e < count; ++e) indices[e] = static_cast<std::uint32_t>(3 * e);
      const std::vector<float> values(count, 1.0F);
      const std::uint64_t n = net.rank() == 0 ? 100'000 : 100'001;
      spar::allreduce(net, spar::sparse_view(n, indices, values), Algorithm{});
    });
    EXPECT_TRUE(says(text, {"dimension", "100000", "100001"}));
  });
}

template <class Algorithm>
class disagreeing : public testing::Test {};
using algorithms = joined<testing::Types, stream_schedules>;
TYPED_TEST_SUITE(disagreeing, algorithms);

TYPED_TEST(disagreeing, on_the_dimension_with_short_messages) { expect_dimension_mismatch<TypeParam>(10); }
TYPED_TEST(disagreeing, on_the_dimension_with_long_messages) {
  for (int repeat = 0; repeat < 5; ++repeat) expect_dimension_mismatch<TypeParam>(8000);
}

TEST(disagreeing_ranks, on_the_length_of_a_dense_vector) {
  for (const std::size_t n : {10U, 100'000U}) {
    for_groups([&](spar::rank_t ranks, bool synchronous) {
      const auto check = [&](auto algorithm) {
        const auto text = disagreement(ranks, synchronous, [&](spar::threads& net) {
          std::vector<float> x(net.rank() == 1 ? n + 1 : n);
          spar::allreduce(net, std::span<float>(x), algorithm);
        });
        EXPECT_FALSE(text.empty());
      };
      check(spar::recursive_doubling{});
      check(spar::ring{});
      check(spar::rabenseifner{});
      check(spar::cheapest{});
    });
  }
}

TEST(disagreeing_ranks, on_the_length_say_both) {
  const auto text = disagreement(2, false, [](spar::threads& net) {
    std::vector<float> x(net.rank() == 1 ? 11 : 10);
    spar::allreduce(net, std::span<float>(x), spar::recursive_doubling{});
  });
  EXPECT_TRUE(says(text, {"dimension", "10", "11", "rank 0", "rank 1"}));
}

TEST(disagreeing_ranks, on_the_element_type) {
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const auto text = disagreement(ranks, synchronous, [](spar::threads& net) {
      std::vector<std::int32_t> whole(8);
      std::vector<float> real(8);
      if (net.rank() == 0)
        spar::allreduce(net, std::span<std::int32_t>(whole), spar::recursive_doubling{});
      else
        spar::allreduce(net, std::span<float>(real), spar::recursive_doubling{});
    });
    EXPECT_TRUE(says(text, {"element type", "float", "int32"}));
  });
}

TEST(disagreeing_ranks, on_the_index_type) {
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const auto text = disagreement(ranks, synchronous, [](spar::threads& net) {
      const std::vector<std::uint32_t> narrow{1};
      const std::vector<std::uint64_t> wide_indices{1};
      const std::vector<float> values{1};
      if (net.rank() == 0)
        spar::allreduce(net, spar::sparse_view(10, narrow, values), spar::ring{});
      else
        spar::allreduce(net, spar::sparse_view(10, wide_indices, values), spar::ring{});
    });
    EXPECT_TRUE(says(text, {"index type"}));
  });
}

TEST(disagreeing_ranks, on_the_operation) {
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const auto text = disagreement(ranks, synchronous, [](spar::threads& net) {
      std::vector<float> x(8);
      if (net.rank() == 0)
        spar::allreduce(net, std::span<float>(x), spar::ring{}, spar::maximum{});
      else
        spar::allreduce(net, std::span<float>(x), spar::ring{}, spar::sum{});
    });
    EXPECT_TRUE(says(text, {"operation", "maximum", "sum"}));
  });
}

TEST(disagreeing_ranks, on_the_operation_where_only_the_end_differs) {
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const auto text = disagreement(ranks, synchronous, [](spar::threads& net) {
      std::vector<float> x(8);
      if (net.rank() == 0)
        spar::allreduce(net, std::span<float>(x), spar::ring{}, spar::average{});
      else
        spar::allreduce(net, std::span<float>(x), spar::ring{}, spar::sum{});
    });
    EXPECT_TRUE(says(text, {"operation"}));
  });
}

TEST(disagreeing_ranks, on_the_algorithm) {
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const auto text = disagreement(ranks, synchronous, [](spar::threads& net) {
      std::vector<float> x(8);
      if (net.rank() == 0)
        spar::allreduce(net, std::span<float>(x), spar::ring{});
      else
        spar::allreduce(net, std::span<float>(x), spar::rabenseifner{});
    });
    EXPECT_TRUE(says(text, {"algorithm", "ring", "rabenseifner"}));
  });
}

TEST(disagreeing_ranks, on_dense_values_or_a_stream) {
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const auto check = [&](auto algorithm) {
      const auto text = disagreement(ranks, synchronous, [&](spar::threads& net) {
        std::vector<float> x(8, 1.0F);
        const std::vector<std::uint32_t> indices{0, 1, 2, 3, 4, 5, 6, 7}; // as many entries as the vector has values
        if (net.rank() == 0)
          spar::allreduce(net, std::span<float>(x), algorithm);
        else
          spar::allreduce(net, spar::sparse_view(8, indices, x), algorithm);
      });
      const std::string name(algorithm.name);
      EXPECT_TRUE(says(text, {"algorithm", name.c_str(), "of dense values"}));
    };
    check(spar::ring{});
    check(spar::recursive_doubling{});
    check(spar::rabenseifner{});
  });
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const auto text = disagreement(ranks, synchronous, [](spar::threads& net) {
      std::vector<float> x(8, 1.0F);
      const std::vector<std::uint32_t> indices{0, 1, 2, 3, 4, 5, 6, 7};
      if (net.rank() == 0)
        spar::reduce(net, std::span<float>(x), 0);
      else
        spar::reduce(net, spar::sparse_view(8, indices, x), 0);
      spar::allreduce(net, std::span<float>{}); // here the ranks that only had to send learn of the mismatch
    });
    EXPECT_TRUE(says(text, {"algorithm", "binomial_reduce", "of dense values"}));
  });
}

TEST(disagreeing_ranks, on_the_storage_of_the_second_phase) {
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const std::vector<float> values(5000, 1.0F);
    const auto text = disagreement(ranks, synchronous, [&](spar::threads& net) {
      if (net.rank() == 0)
        spar::allreduce(net, spar::dense_view(values), quantised_split<4>{});
      else
        spar::allreduce(net, spar::dense_view(values), quantised_split<8>{});
    });
    EXPECT_TRUE(says(text, {"algorithm"}));
  });
}

TEST(disagreeing_ranks, on_the_storage_of_sparcml) {
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const std::vector<float> values(5000, 1.0F);
    const auto text = disagreement(ranks, synchronous, [&](spar::threads& net) {
      if (net.rank() == 0)
        spar::allreduce(net, spar::dense_view(values), quantised_sparcml<4>{});
      else
        spar::allreduce(net, spar::dense_view(values), spar::sparcml{});
    });
    EXPECT_TRUE(says(text, {"algorithm"}));
  });
}

/// An algorithm that selects entries and has an option of every kind.
struct with_options {
  static constexpr std::string_view name = "with_options";
  std::uint64_t k = 0;
  double share = 0;
  spar::selector::exact_topk select{};

  template <class T, class Op>
  void validate(std::uint64_t, spar::rank_t, const Op&) const noexcept {}
  void options(auto&& f) const {
    f("k", k), f("share", share), f("mode", std::string_view("fast")), f("select", select);
  }
  template <spar::transport Net>
  spar::task<void> operator()(spar::channel<Net> net, std::span<float> x, spar::sum op) const& {
    const spar::recursive_doubling doubling;
    co_await doubling(net, x, op);
  }
};

/// The 16-bit code by which version 1 of the wire format compared names and options.
std::uint16_t code_of_version_1(std::string_view name, std::uint64_t option) {
  std::uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<std::uint16_t>(static_cast<std::uint16_t>(hash ^ hash >> 16) ^
                                    static_cast<std::uint16_t>(option ^ option >> 16));
}

TEST(disagreeing_ranks, on_options_get_the_names_and_the_values_of_both) {
  std::uint64_t k = 16; // changed below until the codes of both options are equal in 16 bits
  const auto code = [](std::uint64_t number) {
    return code_of_version_1(with_options::name, spar::digest_of(with_options{.k = number}));
  };
  while (code(k) != code(15)) ++k;
  for_groups([&](spar::rank_t ranks, bool synchronous) {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    disagreement(ranks, synchronous, [&](spar::threads& net) {
      std::vector<float> x(8);
      try {
        spar::allreduce(net, std::span<float>(x), with_options{.k = net.rank() == 0 ? 15 : k, .share = 0.5});
      } catch (const spar::mismatch& e) {
        texts[static_cast<std::size_t>(net.rank())] = e.what();
        throw;
      }
    });
    const auto has = [](std::uint64_t number) { return " has with_options with k=" + std::to_string(number); };
    int told = 0;
    for (const std::string& text : texts) {
      if (text.empty()) continue; // this rank's call ended because another rank failed
      ++told;
      EXPECT_TRUE(says(text, {"ranks disagree on the algorithm's options: rank ", "rank 0" + has(15), has(k)}));
      EXPECT_EQ(text.find("share"), std::string::npos) << "names an option that is equal on both ranks: " << text;
    }
    EXPECT_GE(told, 1);
  });
}

TEST(disagreeing_ranks, on_options_of_parts_get_these_alone) {
  for_groups([](spar::rank_t ranks, bool synchronous) {
    const auto text = disagreement(ranks, synchronous, [](spar::threads& net) {
      std::vector<float> x(8, 1.0F);
      const bool first = net.rank() == 0;
      const spar::selector::exact_topk select{.k = first ? 3U : 4U};
      const spar::storage::then<spar::storage::coo, spar::storage::qsgd<8>> store{.blocks = {.seed = first ? 1U : 2U}};
      spar::allreduce(net, std::span<float>(x), spar::compose(select, store, spar::dsar_split{}));
    });
    EXPECT_TRUE(says(text, {"ranks disagree on the algorithm's options: rank ",
                            "rank 0 has split_allgather with select.k=3 and store.blocks.seed=1",
                            " has split_allgather with select.k=4 and store.blocks.seed=2"}));
    EXPECT_EQ(text.find("bucket"), std::string::npos) << "names an option that is equal on both ranks: " << text;
  });
}

/// Returns both sides as the error quotes them, or an empty text if the error quotes both texts as a whole.
std::string options_that_differ(const std::string& theirs, const std::string& own) {
  const spar::detail::option_difference between(theirs.c_str(), own.c_str());
  if (between.of_values()) return std::string(between.theirs()) + " | " + between.own();
  EXPECT_EQ(between.theirs(), theirs);
  EXPECT_EQ(between.own(), own);
  return {};
}

TEST(option_difference, has_the_values_that_differ_and_where_they_are) {
  EXPECT_EQ(options_that_differ("a(k=1)", "a(k=2)"), "a with k=1 | a with k=2");
  EXPECT_EQ(options_that_differ("a(x=1, k=1, y=3) of dense values", "a(x=1, k=2, y=4) of dense values"),
            "a with k=1 and y=3 | a with k=2 and y=4");
  EXPECT_EQ(options_that_differ("a(x=b(k=1, l=c(m=1, n=2)), y=d)", "a(x=b(k=1, l=c(m=1, n=3)), y=e)"),
            "a with x.l.n=2 and y=d | a with x.l.n=3 and y=e");
  EXPECT_EQ(options_that_differ("a(r=0, r=1, r=2)", "a(r=0, r=2, r=1)"), "a with r=1 and r=2 | a with r=2 and r=1");
}

TEST(option_difference, has_a_part_as_a_whole_where_ranks_have_different_ones) {
  EXPECT_EQ(options_that_differ("a(x=b(k=1), y=2)", "a(x=c(k=1), y=2)"), "a with x=b(k=1) | a with x=c(k=1)");
  EXPECT_EQ(options_that_differ("a(by=b)", "a(by=b(pin=1))"), "a with by=b | a with by=b(pin=1)");
  EXPECT_EQ(options_that_differ("a(by=b(k=1))", "a(by=b(k=1, pin=1))"), "a with by=b(k=1) | a with by=b(k=1, pin=1)");
}

TEST(option_difference, is_the_whole_texts_where_more_than_values_differs) {
  EXPECT_EQ(options_that_differ("a", "b"), "");
  EXPECT_EQ(options_that_differ("a(k=1)", "b(k=2)"), "");
  EXPECT_EQ(options_that_differ("a(k=1)", "a(l=1)"), "");
  EXPECT_EQ(options_that_differ("a(k=1)", "a"), "");
  EXPECT_EQ(options_that_differ("a(k=1), which runs b", "a(k=1), which runs c"), "");
  EXPECT_EQ(options_that_differ("a(k=1)", "a(k=1)"), "");
  for (const char* const cut_off : {"a(", "a(k", "a(k=", "a(k=1", "a(k=1, ", "a(x=b(k=2), ", ")", "a)(", "", "(", "()"})
    EXPECT_EQ(options_that_differ(cut_off, "a(k=1, x=b(k=1))"), "") << cut_off;
}

TEST(disagreeing_ranks, on_the_root) {
  const auto text = disagreement(4, false, [](spar::threads& net) {
    std::vector<float> x(8);
    spar::broadcast(net, std::span<float>(x), net.rank() == 3 ? 2 : 0); // rank 3 receives from rank 2 with either root
    // Ranks that did not meet the other root learn of the mismatch in the next call.
    spar::allreduce(net, std::span<float>(x), spar::ring{});
    spar::allreduce(net, std::span<float>(x), spar::ring{});
  });
  EXPECT_TRUE(says(text, {"disagree on the algorithm", "binomial_broadcast", "root=2"})) << text;
}

TEST(disagreeing_ranks, one_calls_another_collective) {
  for (const bool synchronous : {false, true}) {
    for (const spar::rank_t ranks : {2, synchronous ? 2 : 3}) {
      const auto text = disagreement(ranks, synchronous, [](spar::threads& net) {
        std::vector<float> x(8);
        if (net.rank() == 0)
          spar::broadcast(net, std::span<float>(x), 0);
        else
          spar::reduce(net, std::span<float>(x), 1);
        // Ranks that did not meet the other root learn of the mismatch in the next call.
        spar::allreduce(net, std::span<float>(x), spar::ring{});
        spar::allreduce(net, std::span<float>(x), spar::ring{});
      });
      EXPECT_TRUE(says(text, {"algorithm"}));
    }
  }
}

// --- ranks that fail ---

TEST(failing_rank, ends_everybody_with_its_reason) {
  for (const bool synchronous : {false, true}) {
    for (const std::size_t n : {10U, 100'000U}) {
      std::atomic<int> informed = 0;
      spar::thread_group group{5, {.synchronous = synchronous}};
      EXPECT_THROW(group.run([&](spar::threads& net) {
        if (net.rank() == 3) throw std::out_of_range("the disk is full");
        std::vector<float> x(n);
        try {
          spar::allreduce(net, std::span<float>(x), spar::ring{});
          spar::allreduce(net, std::span<float>(x), spar::ring{});
        } catch (const spar::peer_failed& e) {
          EXPECT_TRUE(says(e.what(), {"rank 3 failed", "the disk is full"}));
          ++informed;
          throw;
        }
      }),
                   std::out_of_range);
      EXPECT_EQ(informed, 4);
    }
  }
}

TEST(failing_rank, ends_those_who_call_later) {
  spar::thread_group group{2};
  EXPECT_THROW(group.run([&](spar::threads& net) {
    if (net.rank() == 1) throw std::runtime_error("gone");
    std::vector<float> x(4);
    spar::allreduce(net, std::span<float>(x), spar::ring{});
  }),
               std::runtime_error);
  EXPECT_TRUE(group.rank(0).dead());
}

TEST(failing_rank, with_calls_in_flight) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    spar::thread_group group{4};
    EXPECT_THROW(group.run([&](spar::threads& net) {
      std::vector<float> a(20'000), b(20'000);
      auto first = spar::start_allreduce(net, std::span<float>(a), spar::ring{});
      auto second = spar::start_allreduce(net, std::span<float>(b), spar::rabenseifner{});
      first.wait();
      if (net.rank() == 2) throw std::runtime_error("gone");
      second.wait();
      std::vector<float> c(20'000);
      spar::allreduce(net, std::span<float>(c), spar::recursive_doubling{});
    }),
                 std::runtime_error);
  }
}

} // namespace
} // namespace spar_test
