// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The baselines of spar_perf that compress each message separately: their results, bit for bit, and their counts.
#include "support/ranks.hpp"

#include "../../tools/spar_perf/p2p_compressed.hpp"

#include <spar/storage/named_codec.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using named = spar::storage::named_codec;
using vectors = std::vector<std::vector<float>>;
using ring = spar::perf::p2p_compressed_ring<named>;
using doubling = spar::perf::p2p_compressed_doubling<named>;

template <class Algorithm>
struct program {
  Algorithm algorithm;
  vectors* x;
  std::vector<spar::statistics>* cost;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_allreduce(net, std::span((*x)[rank]), algorithm);
    co_await pending;
    (*cost)[rank] = pending.statistics();
  }
};

template <class Algorithm>
std::vector<spar::statistics> reduce(mode where, const char* codec, vectors& x) {
  std::vector<spar::statistics> cost(x.size());
  run(where, static_cast<spar::rank_t>(x.size()), program<Algorithm>{{named(codec)}, &x, &cost});
  return cost;
}

vectors random_vectors(spar::rank_t ranks, std::size_t n) {
  vectors x(static_cast<std::size_t>(ranks), std::vector<float>(n));
  for (std::size_t r = 0; r < x.size(); ++r) {
    for (std::size_t i = 0; i < n; ++i) x[r][i] = std::sin(static_cast<float>(7 * r + i)) * static_cast<float>(i % 9);
  }
  return x;
}

/// The values after encoding and decoding.
std::vector<float> rounded(const char* codec, std::vector<float> values) {
  std::vector<std::byte> bytes(named(codec).encoded_bytes<float>(values.size()));
  named(codec).encode(std::span<const float>(values), bytes, {});
  named(codec).decode(std::span<const std::byte>(bytes), std::span(values));
  return values;
}

std::vector<float> sum_of(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// Block b starts on rank b + 1, is rounded on each hop to rank b, which keeps the sum, and reaches the others rounded.
vectors ring_by_hand(const char* codec, const vectors& x) {
  const std::size_t p = x.size(), n = x[0].size();
  vectors all(p);
  for (std::size_t b = 0; b < p; ++b) {
    const auto begin = [&](std::size_t of) { return static_cast<std::ptrdiff_t>(of * (n / p) + std::min(of, n % p)); };
    const auto block = [&](std::size_t rank) {
      const auto values = x[rank % p].begin();
      return std::vector(values + begin(b), values + begin(b + 1));
    };
    std::vector<float> sum = block(b + 1);
    for (std::size_t hop = 2; hop <= p; ++hop) sum = sum_of(rounded(codec, sum), block(b + hop));
    for (std::size_t rank = 0; rank < p; ++rank) {
      const std::vector<float> kept = rank == b ? sum : rounded(codec, sum);
      all[rank].insert(all[rank].end(), kept.begin(), kept.end());
    }
  }
  return all;
}

/// On 2^m ranks, each rank adds what its peer has rounded to its own values, those of the lower rank on the left.
vectors doubling_by_hand(const char* codec, vectors x) {
  for (std::size_t distance = 1; distance < x.size(); distance *= 2) {
    const vectors before = x;
    for (std::size_t r = 0; r < x.size(); ++r) {
      const auto theirs = rounded(codec, before[r ^ distance]);
      x[r] = (r & distance) != 0 ? sum_of(theirs, before[r]) : sum_of(before[r], theirs);
    }
  }
  return x;
}

TEST(p2p_compressed, the_ring_rounds_all_blocks_but_those_that_a_rank_owns) {
  for (const char* codec : {"bf16", "half"}) {
    for (const spar::rank_t ranks : {1, 2, 3, 5}) {
      for (const std::size_t n : {0U, 1U, 61U, 3000U}) {
        for (const mode where : all_modes) {
          vectors x = random_vectors(ranks, n);
          const vectors expected = ring_by_hand(codec, x);
          reduce<ring>(where, codec, x);
          EXPECT_EQ(x, expected) << codec << ", P = " << ranks << ", n = " << n << ", " << where;
        }
      }
    }
  }
}

TEST(p2p_compressed, doubling_rounds_what_peers_send) {
  for (const char* codec : {"bf16", "half"}) {
    for (const spar::rank_t ranks : {1, 2, 4, 8}) {
      for (const mode where : all_modes) {
        vectors x = random_vectors(ranks, 300);
        const vectors expected = doubling_by_hand(codec, x);
        reduce<doubling>(where, codec, x);
        EXPECT_EQ(x, expected) << codec << ", P = " << ranks << ", " << where;
      }
    }
  }
}

TEST(p2p_compressed, folded_ranks_get_the_rounded_sum) {
  for (const spar::rank_t ranks : {3, 5, 7}) {
    vectors x = random_vectors(ranks, 300);
    vectors exact{x[0]};
    for (std::size_t r = 1; r < x.size(); ++r) exact[0] = sum_of(exact[0], x[r]);
    reduce<doubling>(mode::sim, "bf16", x);
    const double bound = (std::pow(1 + 0x1p-8, doubling::encodings(ranks)) - 1) * 8 * ranks;
    for (const auto& one : x) {
      for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], exact[0][i], bound) << "P = " << ranks;
    }
  }
}

TEST(p2p_compressed, each_message_is_encoded_once_and_decoded_once) {
  constexpr std::uint64_t n = 31200; // a multiple of every P here
  for (const spar::rank_t ranks : {1, 2, 3, 4, 8, 13}) {
    const auto p = static_cast<std::uint64_t>(ranks);
    vectors x = random_vectors(ranks, n);
    for (const auto& c : reduce<ring>(mode::sim, "bf16", x)) {
      EXPECT_EQ(c.compressions, 2 * (p - 1));
      EXPECT_EQ(c.decompressions, 2 * (p - 1));
      EXPECT_EQ(c.messages_sent, 2 * (p - 1));
      EXPECT_EQ(c.bytes_sent, 2 * (p - 1) * (n / p) * 2);
    }
    if (!std::has_single_bit(p)) continue;
    const auto rounds = static_cast<std::uint64_t>(std::bit_width(p) - 1);
    for (const auto& c : reduce<doubling>(mode::sim, "bf16", x)) {
      EXPECT_EQ(c.compressions, rounds);
      EXPECT_EQ(c.decompressions, rounds);
      EXPECT_EQ(c.messages_sent, rounds);
      EXPECT_EQ(c.bytes_sent, rounds * n * 2);
    }
  }
}

} // namespace
} // namespace spar_test
