// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streams as messages: what arrives, what the sender goes on with, what its residual gets, and the bytes of each form.
#include "support/ranks.hpp"

#include <spar/collective/algorithm.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using values = std::vector<float>;
using stream = spar::sparse_stream<float>;
constexpr std::uint32_t n = 40;
constexpr spar::index_range range{8, 24};

/// What rank 0 keeps and rank 1 gets, as dense vectors, and the statistics of rank 0.
struct outcome {
  values sent = values(n), received = values(n), residual = values(n);
  bool is_dense = false;
  spar::statistics cost;
};

/// Rank 0 sends a stream to rank 1.
template <class Storage>
struct one_stream : spar::algorithm_defaults {
  static constexpr std::string_view name = "one_stream";
  Storage store;
  bool dense;
  outcome* out;
  one_stream(Storage s, bool d, outcome* o) : store(s), dense(d), out(o) {}

  template <class Net>
  spar::task<void> operator()(spar::channel<Net> net, const values* x) const& {
    if (net.rank() == 0) {
      const stream mine = stream_of(net, *x);
      spar::outgoing<Storage, float, std::uint32_t> message;
      auto sending = net.send(1, co_await message(net, store, mine.view(), range, spar::step_of(0, 0)));
      const auto kept = message.as_decoded(net, store, mine.view(), range, std::span(out->residual)).get();
      copy(kept, out->sent);
      co_await sending;
      co_return;
    }
    spar::incoming<Storage, float, std::uint32_t> in(net.memory());
    co_await net.receive(0, in);
    const auto view = co_await in.view(net, store, range);
    out->is_dense = view.is_dense();
    copy(view, out->received);
  }

 private:
  /// The stream of the values of `x` in the range: all of them, or those that are not zero.
  template <class Net>
  stream stream_of(const spar::channel<Net>& net, const values& x) const {
    if (dense) {
      stream all = stream::dense(net.memory(), n, range.begin, range.size());
      for (std::uint64_t i = range.begin; i < range.end; ++i) all.values()[i - range.begin] = x[i];
      return all;
    }
    std::vector<std::uint32_t> at;
    for (std::uint64_t i = range.begin; i < range.end; ++i) {
      if (x[i] != 0) at.push_back(static_cast<std::uint32_t>(i));
    }
    stream some = stream::sparse(net.memory(), n, at.size());
    for (std::size_t e = 0; e < at.size(); ++e) some.indices()[e] = at[e], some.values()[e] = x[at[e]];
    return some;
  }
  static void copy(const spar::stream_view<float>& from, values& to) {
    if (from.is_dense()) {
      for (std::size_t i = 0; i < from.values().size(); ++i) to[from.first() + i] = from.values()[i];
    } else {
      for (std::size_t e = 0; e < from.count(); ++e) to[from.indices()[e]] = from.values()[e];
    }
  }
};

template <class Storage>
struct program {
  one_stream<Storage> algorithm;
  const values* x;
  outcome* out;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(n, algorithm);
    auto pending = spar::start_collective(net, agreed, algorithm, x);
    co_await pending;
    if (net.rank() == 0) out->cost = pending.statistics();
  }
};

template <class Storage>
outcome sent(mode where, const Storage& store, bool dense, const values& x) {
  outcome out;
  run(where, 2, program<Storage>{one_stream<Storage>(store, dense, &out), &x, &out});
  return out;
}

/// Zero outside of the range, and `count` values inside.
values some_values(std::size_t count) {
  values x(n);
  for (std::size_t i = 0; i < count; ++i) x[range.begin + i * range.size() / count] = static_cast<float>(i) - 2.5F;
  return x;
}

TEST(stream_wire, plain_streams_arrive_in_their_form_and_size) {
  for (const mode where : all_modes) {
    for (const std::size_t count : {0U, 1U, 5U, 16U}) {
      const values x = some_values(count);
      const outcome entries = sent(where, spar::storage::coo{}, false, x);
      EXPECT_FALSE(entries.is_dense);
      EXPECT_EQ(entries.received, x);
      EXPECT_EQ(entries.sent, x);
      EXPECT_EQ(entries.cost.bytes_sent, count * 8) << where;
      const outcome all = sent(where, spar::storage::coo{}, true, x);
      EXPECT_TRUE(all.is_dense);
      EXPECT_EQ(all.received, x);
      EXPECT_EQ(all.cost.bytes_sent, range.size() * 4) << where;
      EXPECT_EQ(all.cost.messages_sent, 1U);
      EXPECT_EQ(all.cost.compressions, 0U);
    }
  }
}

TEST(stream_wire, coded_entries_arrive_exactly_and_are_counted) {
  for (const mode where : all_modes) {
    for (const std::size_t count : {0U, 1U, 5U, 16U}) {
      const values x = some_values(count);
      const outcome out = sent(where, spar::storage::coded{}, false, x);
      EXPECT_EQ(out.received, x);
      EXPECT_EQ(out.sent, x);
      EXPECT_EQ(out.residual, values(n));
      EXPECT_EQ(out.cost.compressions, 1U);
      EXPECT_EQ(out.cost.coded_indices, count);
      EXPECT_EQ(out.cost.plain_bytes_sent, count * 8);
    }
  }
}

TEST(stream_wire, a_sender_keeps_what_receivers_decode_and_its_error) {
  values x = some_values(16);
  x[range.begin] = 1 + 0x1p-11F;    // half way between two values of half: rounds to the even one, 1
  x[range.begin + 1] = 3 + 0x1p-8F; // a value of half
  values rounded = x;
  rounded[range.begin] = 1;
  values lost(n);
  lost[range.begin] = 0x1p-11F;
  for (const mode where : all_modes) {
    const outcome out = sent(where, spar::storage::as_half{}, true, x);
    EXPECT_EQ(out.received, rounded) << where;
    EXPECT_EQ(out.sent, rounded) << where;
    EXPECT_EQ(out.residual, lost) << where;
    EXPECT_EQ(out.cost.bytes_sent, range.size() * 2) << where;
    EXPECT_EQ(out.cost.plain_bytes_sent, range.size() * 4) << where;
  }
}

TEST(stream_wire, a_stream_has_at_most_one_entry_for_each_index) {
  EXPECT_NO_THROW(spar::detail::check_count(4, {3, 7}));
  EXPECT_THROW(spar::detail::check_count(5, {3, 7}), spar::corrupt_message);
  EXPECT_THROW(spar::detail::check_count(1, {3, 3}), spar::corrupt_message);
}

TEST(stream_wire, steps_of_different_rounds_and_groups_differ) {
  EXPECT_NE(spar::step_of(0, 1), spar::step_of(1, 0));
  EXPECT_NE(spar::step_of(0, 0), 0U);
  EXPECT_NE(spar::step_of(2, 5), spar::step_of(2, 6));
}

} // namespace
} // namespace spar_test
