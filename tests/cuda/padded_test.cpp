// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels that write and read messages with room for more entries than they contain, on the host, against loops.
#include "kernel_test.hpp"

#include <spar/cuda/kernel/padded.cuh>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using kernel_test::vector;
using index_type = std::uint32_t;
using message = spar::kernel::padded_message<float, index_type>;
using words = vector<std::uint64_t>;

std::byte* bytes_of(words& memory) { return reinterpret_cast<std::byte*>(memory.data()); }

/// Entries of n values with all indices that are no multiples of 3, and owners of blocks, of which some are empty.
struct entries {
  vector<index_type> indices;
  vector<float> values;
  words bounds;

  entries(std::uint64_t n, std::uint64_t owners) : bounds(owners + 1) {
    for (index_type i = 0; i < n; ++i)
      if (i % 3 != 0) indices.push_back(i), values.push_back(static_cast<float>(i) + 0.5F);
    std::mt19937_64 random(n + owners);
    for (std::uint64_t& bound : bounds) bound = random() % n;
    bounds.front() = 0, bounds.back() = n;
    std::sort(bounds.begin(), bounds.end());
  }
};

/// Slices of at most `most` entries, for which messages have room for `room`; then all slices in one place again.
void compare_slices(std::uint64_t n, std::uint64_t owners, std::uint64_t room, std::uint64_t most) {
  SCOPED_TRACE(testing::Message() << owners << " owners, room for " << room << ", at most " << most);
  entries given(n, owners);
  const std::uint64_t rank = owners / 2, count = std::min<std::uint64_t>(given.indices.size(), most);
  const message form{room};
  words sent(owners * form.bytes() / 8), own(form.bytes() / 8), begins(owners + 1, 77), taken(1, given.indices.size());
  vector<float> residual(n, -1), expected_residual = residual;
  vector<spar::kernel::slice_counts> counts(1, {99, 5});
  spar::kernel::start_slice<float, index_type>(given.indices.data(), given.values.data(), taken.data(), most,
                                               given.bounds.data(), owners, {form, bytes_of(sent), bytes_of(own), rank},
                                               residual.data(), begins.data(), counts.data(), nullptr);
  kernel_test::finish();

  vector<vector<index_type>> expected(owners);
  std::uint64_t stay = 0;
  for (std::size_t e = 0; e < count; ++e) {
    const index_type i = given.indices[e];
    const auto after = std::upper_bound(given.bounds.begin(), given.bounds.end(), std::uint64_t{i});
    auto& slice = expected[static_cast<std::size_t>(after - given.bounds.begin() - 1)];
    if (slice.size() < room)
      slice.push_back(i);
    else
      expected_residual[i] = given.values[e], ++stay;
  }
  EXPECT_EQ(residual, expected_residual);
  EXPECT_EQ(counts[0].sent, count - stay);
  EXPECT_EQ(counts[0].stayed, 5 + taken[0] - (count - stay));

  std::copy(own.begin(), own.end(), sent.begin() + static_cast<std::ptrdiff_t>(rank * own.size()));
  vector<spar::kernel::device_coo<float, index_type>> parts(owners);
  words of_rank(1, 77), too_many(1), total(1, 77), disordered(1), bad(1, 77);
  vector<index_type> out_i(owners * room);
  vector<float> out_v(owners * room);
  const auto receive = [&] {
    spar::kernel::start_list_messages(bytes_of(sent), owners, form, parts.data(), rank, of_rank.data(), too_many.data(),
                                      nullptr);
    spar::kernel::start_join_messages(parts.data(), owners, room, given.bounds.data(), out_i.data(), out_v.data(),
                                      total.data(), disordered.data(), bad.data(), nullptr);
    kernel_test::finish();
  };
  receive();
  EXPECT_EQ(of_rank[0], expected[rank].size());
  EXPECT_EQ(too_many[0], 0U);
  EXPECT_EQ(disordered[0], 0U);
  std::size_t e = 0;
  for (const auto& slice : expected) {
    for (const index_type i : slice) {
      ASSERT_EQ(out_i[e], i) << e;
      ASSERT_EQ(out_v[e++], static_cast<float>(i) + 0.5F) << e;
    }
  }
  EXPECT_EQ(total[0], e);

  // Each index is wrong once: as large as the one before it, or outside of its block.
  for (std::size_t m = 0; m < owners; ++m) {
    std::byte* const received = bytes_of(sent) + m * form.bytes();
    for (std::size_t at = 0; at < expected[m].size(); at += 1 + m % 3) {
      const index_type right = message::indices(received)[at];
      const auto wrong = at > 0 ? message::indices(received)[at - 1] : static_cast<index_type>(given.bounds[m + m % 2]);
      message::indices(received)[at] = m % 2 == 0 && at == 0 ? wrong - 1 : wrong;
      disordered[0] = 0;
      receive();
      EXPECT_EQ(disordered[0], 1U) << m << ", " << at;
      EXPECT_EQ(total[0], 0U);
      message::indices(received)[at] = right;
    }
  }
  message::head(bytes_of(sent) + (owners - 1) * form.bytes())->count = room + 1;
  receive();
  EXPECT_EQ(too_many[0], room + 1);
  EXPECT_EQ(parts[owners - 1].count, 0U);
}

TEST(padded_messages, have_the_slices_of_all_owners) {
  compare_slices(300, 5, 200, 1000);
  compare_slices(300, 5, 7, 150);
  compare_slices(200, 40, 2, 130);
  compare_slices(300, 150, 3, 1000);
}

TEST(padded_messages, count_what_has_no_room) {
  for (const std::uint64_t count : {0U, 4U, 5U, 6U, 9U}) {
    vector<index_type> indices{1, 2, 3, 5, 8, 13, 21, 34, 55};
    vector<float> values(9, 2);
    const message form{5};
    words memory(form.bytes() / 8), number(1, count), dropped(1, 10);
    spar::kernel::start_write_message(indices.data(), values.data(), number.data(), form, bytes_of(memory),
                                      dropped.data(), nullptr);
    kernel_test::finish();
    const std::uint64_t written = std::min<std::uint64_t>(count, 5);
    EXPECT_EQ(message::head(bytes_of(memory))->count, written);
    EXPECT_EQ(dropped[0], 10 + count - written);
    for (std::size_t e = 0; e < written; ++e) {
      EXPECT_EQ(message::indices(bytes_of(memory))[e], indices[e]);
      EXPECT_EQ(form.values(bytes_of(memory))[e], 2);
    }
  }
}

} // namespace
