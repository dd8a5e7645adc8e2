// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compiled library's any_feedback has the bits, the messages, the state and the errors of an error_feedback with
// the same composition.
#include <spar/any_compose.hpp>
#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/selector/named_selector.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/named_codec.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr spar::rank_t all_ranks[] = {1, 2, 3, 4, 5, 8};

/// The values of one rank in one step; no two have the same magnitude.
template <class T>
std::vector<T> values_of(spar::rank_t rank, int step) {
  std::vector<T> x(500);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto mixed = static_cast<int>(
        (i * 7919 + static_cast<std::size_t>(rank) * 104729 + static_cast<std::size_t>(step) * 1299709) % 1009);
    x[i] = static_cast<T>(mixed % 2 == 0 ? mixed : -mixed);
  }
  return x;
}

template <class T, class Sum, class AnySum>
void expect_same_sum(const Sum& own, const AnySum& any) {
  EXPECT_EQ(own.is_dense(), any.is_dense());
  EXPECT_TRUE(std::ranges::equal(own.indices(), any.indices()));
  EXPECT_TRUE(std::ranges::equal(own.values(), any.values()));
}
template <class Reducer, class Any>
void expect_same_state(const Reducer& own, const Any& any) {
  EXPECT_TRUE(std::ranges::equal(own.residual(), any.residual()));
  const auto saved = own.save();
  const auto any_saved = any.save();
  EXPECT_TRUE(std::ranges::equal(saved, std::span(any_saved.data(), any_saved.size())));
}

/// Expects that an any_feedback of `algorithm` does what an error_feedback does with it.
template <class T, class Index, class Algorithm>
void expect_same(const Algorithm& algorithm, const auto& make) {
  for (const spar::rank_t ranks : all_ranks) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    spar::thread_group group(ranks), any_group(ranks);
    std::vector<spar::error_feedback<T, Algorithm, Index>> reducers;
    std::vector<spar::any_feedback<T, Index>> any_reducers;
    for (spar::rank_t r = 0; r < ranks; ++r) reducers.emplace_back(algorithm), any_reducers.push_back(make());
    for (int step = 0; step < 4; ++step) {
      std::vector<spar::selected_sum<T, Index>> sums(static_cast<std::size_t>(ranks));
      std::vector<std::vector<T>> in_place(static_cast<std::size_t>(ranks));
      std::vector<std::uint64_t> bytes(static_cast<std::size_t>(ranks));
      group.run([&](spar::threads& net) {
        const auto r = static_cast<std::size_t>(net.rank());
        sums[r] = reducers[r].reduce(net, values_of<T>(net.rank(), step));
        bytes[r] = net.last_call().bytes_sent;
        in_place[r] = values_of<T>(net.rank(), step + 10);
        reducers[r](net, in_place[r], spar::average{});
      });
      any_group.run([&](spar::threads& rank) {
        spar::any_transport net(rank);
        const auto r = static_cast<std::size_t>(net.rank());
        auto& reduce = any_reducers[r];
        if (step % 2 == 0) {
          const auto result = reduce.reduce(net, values_of<T>(net.rank(), step));
          expect_same_sum<T>(sums[r].sum, result.sum);
          expect_same_sum<T>(sums[r].contributed, result.contributed);
        } else {
          const auto x = values_of<T>(net.rank(), step);
          auto pending = reduce.start_reduce(net, x);
          expect_same_sum<T>(sums[r].sum, pending.wait().sum);
        }
        EXPECT_EQ(bytes[r], net.last_call().bytes_sent);
        auto y = values_of<T>(net.rank(), step + 10);
        if (step % 2 == 0)
          reduce(net, y, spar::average{});
        else
          reduce.start(net, y, spar::average{}).wait();
        EXPECT_EQ(in_place[r], y);
        EXPECT_EQ(reduce.selected(), reducers[r].report().selected);
        expect_same_state(reducers[r], reduce);
      });
    }
  }
}

TEST(any_feedback, is_the_error_feedback_of_a_composition_of_the_program) {
  const spar::ok_topk_allreduce<> algorithm{.select = {.k = 20}};
  expect_same<float, std::uint32_t>(algorithm, [&] { return spar::any_feedback<float>(algorithm); });
  const spar::gtopk_allreduce by_tree{.select = {.k = 20}};
  expect_same<double, std::uint64_t>(by_tree, [&] { return spar::any_feedback<double, std::uint64_t>(by_tree); });
}

TEST(any_feedback, is_the_error_feedback_that_a_text_names) {
  const auto expect_same_text = [](const char* text, const char* select, const auto& store, const auto& by) {
    SCOPED_TRACE(text);
    expect_same<float, std::uint32_t>(spar::compose(spar::selector::named_selector(select), store, by),
                                      [&] { return spar::any_feedback<float>(text); });
  };
  const spar::storage::coo coo;
  expect_same_text("ok_topk:k=20", "threshold_reuse:k=20", coo, spar::balanced_owners{});
  expect_same_text("ok_topk:k=20+coded", "threshold_reuse:k=20", spar::storage::coded<>{}, spar::balanced_owners{});
  expect_same_text("ok_topk:k=20+pruned", "threshold_reuse:k=20", spar::storage::coded<>{}, spar::pruned_owners{});
  expect_same_text("topka:0.04", "exact_topk:0.04", coo, spar::gather_and_merge{});
  expect_same_text("gtopk:k=20", "exact_topk:k=20", coo, spar::tree_of_topk{});
}

TEST(any_feedback, restores_what_it_has_saved) {
  spar::any_group::threads(3).run([](spar::any_transport& net) {
    spar::any_feedback<float> reduce("ok_topk:k=20"), other("ok_topk:k=20"), different("gtopk:k=20");
    (void)reduce.reduce(net, values_of<float>(net.rank(), 0));
    const auto saved = reduce.save();
    const std::span bytes(saved.data(), saved.size());
    other.load(bytes);
    EXPECT_THROW(different.load(bytes), spar::invalid_argument);
    const auto first = reduce.reduce(net, values_of<float>(net.rank(), 1));
    const auto second = other.reduce(net, values_of<float>(net.rank(), 1));
    expect_same_sum<float>(first.sum, second.sum);
    different.take_over(bytes);
    EXPECT_FALSE(different.residual().empty());
    const std::vector<float> zeros(500);
    different.set_residual(zeros);
    EXPECT_TRUE(std::ranges::equal(different.residual(), zeros));
  });
}

/// A job may change from the headers to the library, and back, with what it has saved.
template <class Reducer>
void expect_exchange(const char* text, const Reducer& make, bool keeps_state) {
  SCOPED_TRACE(text);
  spar::thread_group group(3);
  group.run([&](spar::threads& rank) {
    spar::any_transport net(rank);
    const auto first = values_of<float>(net.rank(), 0), second = values_of<float>(net.rank(), 1);
    auto own = make(), own_again = make();
    spar::any_feedback<float> any(text), any_again(text);
    (void)own.reduce(rank, first);
    (void)any.reduce(net, first);
    const auto saved = own.save();
    const auto any_saved = any.save();
    const std::span any_bytes(any_saved.data(), any_saved.size());
    if (keeps_state) {
      any_again.load(saved);
      own_again.load(any_bytes);
    } else {
      EXPECT_THROW(any_again.load(saved), spar::invalid_argument);
      EXPECT_THROW(own_again.load(any_bytes), spar::invalid_argument);
      any_again.take_over(saved);
      own_again.take_over(any_bytes);
    }
    const auto expected = own.reduce(rank, second);
    expect_same_sum<float>(expected.sum, any_again.reduce(net, second).sum);
    expect_same_sum<float>(own_again.reduce(rank, second).sum, any.reduce(net, second).sum);
    EXPECT_TRUE(std::ranges::equal(own.residual(), any_again.residual()));
    EXPECT_TRUE(std::ranges::equal(own_again.residual(), any.residual()));
  });
}
TEST(any_feedback, exchanges_what_it_has_saved_with_an_error_feedback) {
  expect_exchange("ok_topk:k=20", [] { return spar::ok_topk<float>({.select = {.k = 20}}); }, true);
  expect_exchange("gtopk:k=20", [] { return spar::gtopk<float>({.select = {.k = 20}}); }, false);
}

TEST(any_feedback, may_be_destroyed_before_the_handle_of_a_call_that_has_ended) {
  spar::any_group::threads(2).run([](spar::any_transport& net) {
    const auto x = values_of<float>(net.rank(), 0);
    const auto handle = [&] {
      spar::any_feedback<float> reduce("ok_topk:k=20");
      auto pending = reduce.start_reduce(net, x);
      (void)pending.wait();
      return pending;
    }();
    EXPECT_GT(handle.statistics().messages_sent, 0U);
  });
}

TEST(any_feedback, refuses_a_second_call_and_other_operations) {
  spar::any_group::threads(2).run([](spar::any_transport& net) {
    spar::any_feedback<float> reduce("ok_topk:k=20");
    auto x = values_of<float>(net.rank(), 0), y = x;
    {
      const auto pending = reduce.start(net, x);
      EXPECT_THROW(reduce(net, y), spar::invalid_argument);
      EXPECT_THROW((void)reduce.save(), spar::invalid_argument);
    }
    reduce(net, y); // the call has ended
    EXPECT_THROW(reduce(net, y, spar::maximum{}), spar::invalid_argument);
    reduce(net, y); // a call that was refused leaves no trace
    EXPECT_THROW(reduce(net, std::span(y).first(3)), spar::invalid_argument);
  });
}

TEST(any_feedback, forgets_a_call_whose_handle_outlives_its_end) {
  spar::any_group::threads(2).run([](spar::any_transport& net) {
    spar::any_feedback<float> reduce("ok_topk:k=20");
    const auto x = values_of<float>(net.rank(), 0);
    auto first = reduce.start_reduce(net, x);
    (void)first.wait();
    auto second = reduce.start_reduce(net, x);
    {
      const auto gone = std::move(first);
    } // must not end the second call
    EXPECT_THROW((void)reduce.reduce(net, x), spar::invalid_argument);
    (void)second.wait();
  });
}

TEST(any_feedback, refuses_texts) {
  EXPECT_THROW(spar::any_feedback<float>("sparcml"), spar::invalid_argument);
  EXPECT_THROW(spar::any_feedback<float>("ok_top"), spar::invalid_argument);
  EXPECT_THROW(spar::any_feedback<std::int32_t>("ok_topk:k=20"), spar::invalid_argument);
  EXPECT_THROW(spar::any_feedback<float>("tree_ok_topk:k=20"), spar::invalid_argument);
  const std::vector<spar::rank_t> hosts{0, 0, 1};
  spar::any_group::threads(3).run([&](spar::any_transport& net) {
    spar::any_feedback<float> reduce("tree_ok_topk:k=20", hosts);
    EXPECT_FALSE(reduce.reduce(net, values_of<float>(net.rank(), 0)).sum.values().empty());
  });
}

} // namespace
