// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages over UCX that arrive in any order have their turns in the order in which each source has sent them.
#include <spar/transport/ucx/inbox.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <random>
#include <vector>

namespace {

using spar::rank_t;

/// A message whose payload is its number, in memory that does not stay.
struct numbered : spar::detail::ucx_incoming {
  numbered(rank_t from, std::uint32_t n) : byte{static_cast<std::byte>(n)} {
    source = from;
    number = n;
    payload = byte.data();
    payload_bytes = 1;
  }
  numbered(const numbered&) = delete;
  std::array<std::byte, 1> byte;
};

TEST(ucx_inbox, restores_the_order_of_each_source) {
  constexpr rank_t sources = 3;
  constexpr std::uint32_t messages = 100;
  const spar::detail::ucx_worker worker(spar::detail::make_ucx_context("", sources));
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    spar::detail::ucx_inbox inbox(sources, 4, worker);
    std::vector<std::uint32_t> order(messages * sources);
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::array<std::uint32_t, sources> next{};
    for (const std::uint32_t i : order) {
      const auto from = static_cast<rank_t>(i % sources);
      std::uint32_t& expected = next[i % sources];
      const numbered m(from, i / sources);
      ASSERT_EQ(inbox.take_turn(m), m.number == expected);
      if (m.number != expected) {
        EXPECT_FALSE(inbox.keep_early(m));
        continue;
      }
      ++expected;
      while (spar::detail::ucx_arrival* const a = inbox.take_next(from)) {
        ASSERT_EQ(a->source, from);
        ASSERT_EQ(a->number, expected);
        ASSERT_EQ(a->payload[0], static_cast<std::byte>(expected)); // a copy
        ++expected;
        inbox.discard(a);
      }
    }
    for (const std::uint32_t n : next) EXPECT_EQ(n, messages);
  }
}

TEST(ucx_inbox, keeps_what_it_lends_until_it_is_given_back) {
  const spar::detail::ucx_worker worker(spar::detail::make_ucx_context("", 1));
  spar::detail::ucx_inbox inbox(1, 4, worker);
  spar::message_buffer in(*std::pmr::new_delete_resource());
  for (std::uint32_t n = 0; n < 5; ++n) {
    numbered m(0, n);
    m.head.lengths = {0, 1, 0};
    in.arrived() = m.head;
    EXPECT_FALSE(inbox.lend(m, in)); // UCX need not keep the payload
    m.byte[0] = std::byte{0xFF};
    EXPECT_TRUE(in.borrows());
    ASSERT_EQ(in.pieces()[1].size(), 1U);
    EXPECT_EQ(in.pieces()[1][0], static_cast<std::byte>(n));
    EXPECT_TRUE(in.pieces()[0].empty() && in.pieces()[2].empty());
    const std::byte* const lent = in.pieces()[1].data();
    in.end_loan();
    numbered next(0, n + 1);
    next.head.lengths = {1, 0, 0};
    EXPECT_FALSE(inbox.lend(next, in));
    EXPECT_EQ(in.pieces()[0].data(), lent); // its memory is used again
    in.end_loan();
  }
}

} // namespace
