// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compressed allreduces: the same bits on all ranks, errors within the documented bounds, exact counts of encodings,
// messages and bytes, and with error feedback nothing is lost.
#include "support/compositions.hpp"
#include "support/ranks.hpp"

#include <spar/storage/coded.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/tolerance.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using named = spar::storage::named_codec;
using vectors = std::vector<std::vector<float>>;
using split_with = stored<spar::storage::then<spar::storage::coo, named>, spar::dsar_split>;

std::vector<const char*> codecs() { return {"none", "bf16", "half", "qsgd:8", "qsgd:4", "mx:e4m3", "zfp:8", "zfp:16"}; }

/// A tree of hosts that alternate between two and three ranks.
spar::tree uneven_hosts(spar::rank_t ranks) {
  std::vector<spar::rank_t> host_of;
  for (spar::rank_t host = 0; static_cast<spar::rank_t>(host_of.size()) < ranks; ++host) {
    for (int i = 0; i < 2 + host % 2 && static_cast<spar::rank_t>(host_of.size()) < ranks; ++i) host_of.push_back(host);
  }
  return spar::tree_of_hosts(host_of);
}

/// Each algorithm as a number, so that one program is compiled for all of them.
enum kind { ring, doubling, two_shot, one_shot, flexreduce, chosen };
constexpr std::array kinds{ring, doubling, two_shot, one_shot, flexreduce};

struct program {
  kind which;
  named codec;
  std::uint64_t piece;
  vectors* x;
  const spar::flex_plan* plan;
  std::vector<spar::statistics>* cost;

  template <class Net>
  auto begin(Net& net, std::span<float> mine) const {
    const auto with = [&](auto algorithm) { return spar::start_allreduce(net, mine, std::move(algorithm)); };
    switch (which) {
    case ring:
      return with(spar::compose(codec, spar::ring{.piece = piece}));
    case doubling:
      return with(spar::compose(codec, spar::recursive_doubling{.piece = piece}));
    case two_shot:
      return with(spar::compose(codec, spar::two_shot{.piece = piece}));
    case one_shot:
      return with(spar::compose(codec, spar::one_shot{.piece = piece}));
    case flexreduce:
      return with(spar::flexreduce(*plan, codec));
    default:
      return with(spar::compose(codec, spar::cheapest{}));
    }
  }
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = begin(net, std::span((*x)[rank]));
    co_await pending;
    (*cost)[rank] = pending.statistics();
  }
};

double encodings(kind which, spar::rank_t ranks, const spar::flex_plan& plan) {
  switch (which) {
  case ring:
    return static_cast<double>(spar::ring::encodings(ranks));
  case two_shot:
    return static_cast<double>(spar::two_shot::encodings(ranks));
  case one_shot:
    return static_cast<double>(spar::one_shot::encodings(ranks));
  case flexreduce:
    return static_cast<double>(spar::chains::encodings(plan));
  default:
    return static_cast<double>(spar::recursive_doubling::encodings(ranks));
  }
}

/// Gradient of a logistic regression; each rank has its own examples.
std::vector<float> gradient(std::size_t rank, std::size_t n) {
  std::mt19937_64 random(rank + 1);
  std::normal_distribution<float> normal;
  std::vector<float> sum(n), example(n);
  for (int e = 0; e < 8; ++e) {
    float at = 0;
    for (std::size_t i = 0; i < n; ++i) {
      example[i] = normal(random) / static_cast<float>(1 + i % 50); // features of different sizes
      at += example[i] * std::sin(static_cast<float>(i));
    }
    const float error = 1 / (1 + std::exp(-at)) - static_cast<float>(e % 2);
    for (std::size_t i = 0; i < n; ++i) sum[i] += error * example[i] / 8;
  }
  return sum;
}

vectors random_vectors(spar::rank_t ranks, std::size_t n, std::uint64_t seed) {
  vectors x(static_cast<std::size_t>(ranks), std::vector<float>(n));
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (std::size_t r = 0; r < x.size(); ++r) {
    const auto learned = gradient(r, n);
    // Noise, smooth values, mixed magnitudes, zeros, denormals, gradients.
    for (std::size_t i = 0; i < n; ++i) {
      const float some[] = {normal(random),
                            std::sin(0.01F * static_cast<float>(i + r)),
                            std::ldexp(normal(random), -static_cast<int>(i % 40)),
                            0.0F,
                            std::ldexp(1.0F, -140),
                            learned[i]};
      x[r][i] = some[(i / 100 + n) % 6];
    }
  }
  return x;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return a.size() == b.size();
}

struct split_program {
  named codec;
  const vectors* x;
  vectors* sums;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    const auto mine = spar::dense_view((*x)[rank]);
    auto pending = spar::start_allreduce(net, mine, split_with{.store = {.blocks = codec}});
    const auto sum = co_await pending;
    sum.to_dense((*sums)[rank], spar::sum{});
  }
};

struct bad_options {
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(10);
    EXPECT_THROW((void)spar::start_allreduce(net, std::span(x), spar::compose(named(), spar::ring{.piece = 0})),
                 spar::invalid_argument);
    EXPECT_THROW(
        (void)spar::start_allreduce(net, std::span(x), spar::compose(named(), spar::recursive_doubling{.piece = 0})),
        spar::invalid_argument);
    EXPECT_THROW((void)spar::start_allreduce(net, std::span(x), spar::compose(named(), spar::two_shot{.piece = 0})),
                 spar::invalid_argument);
    EXPECT_THROW((void)spar::start_allreduce(net, std::span(x), spar::compose(named(), spar::one_shot{.piece = 0})),
                 spar::invalid_argument);
    EXPECT_THROW((void)spar::start_allreduce(net, std::span(x),
                                             spar::compose(spar::storage::qsgd<8>{.bucket = 0}, spar::ring{})),
                 spar::invalid_argument);
    co_return;
  }
};

/// Repeats a quantised call (4 bits) with the same values and adds up the results.
struct repeated {
  kind which;
  int calls;
  const vectors* x;
  const spar::flex_plan* plan;
  std::vector<float>* sum; // of rank 0
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    std::vector<spar::statistics> cost(static_cast<std::size_t>(net.size()));
    const program call{which, named("qsgd:4"), 16, nullptr, plan, &cost};
    for (int c = 0; c < calls; ++c) {
      std::vector<float> mine = (*x)[rank];
      auto pending = call.begin(net, std::span(mine));
      co_await pending;
      for (std::size_t i = 0; rank == 0 && i < mine.size(); ++i) (*sum)[i] += mine[i];
    }
  }
};

struct outcome {
  vectors x;
  std::vector<spar::statistics> cost;
};
outcome reduced(mode where, kind which, const char* codec, vectors x, std::uint64_t piece = 32768) {
  const auto ranks = static_cast<spar::rank_t>(x.size());
  const spar::flex_plan plan(uneven_hosts(ranks), x[0].size());
  outcome all{std::move(x), std::vector<spar::statistics>(static_cast<std::size_t>(ranks))};
  run(where, ranks, program{which, named(codec), piece, &all.x, &plan, &all.cost});
  return all;
}

/// The sum over the ranks of their largest |value|: at least the largest magnitude in any block that a codec encodes.
double largest_together(const vectors& x) {
  double all = 0;
  for (const auto& one : x) {
    double top = 0;
    for (const float v : one) top = std::max(top, std::abs(static_cast<double>(v)));
    all += top;
  }
  return all;
}

void expect_right(mode where, kind which, const char* codec, const vectors& x, std::uint64_t piece) {
  const auto ranks = static_cast<spar::rank_t>(x.size());
  const std::size_t n = x[0].size();
  SCOPED_TRACE(testing::Message() << where << ", algorithm " << which << ", " << codec << ", P = " << ranks
                                  << ", n = " << n << ", pieces of " << piece);
  const auto got = reduced(where, which, codec, x, piece);
  for (const auto& one : got.x) ASSERT_TRUE(same(one, got.x[0])) << "the ranks' results differ";
  const spar::flex_plan plan(uneven_hosts(ranks), n);
  const double e = named(codec).relative_error<float>();
  const double bound = (std::pow(1 + e, encodings(which, ranks, plan)) - 1 + ranks * 0x1p-23) * largest_together(x) +
                       ranks * 0x1p-24; // the smallest values of half and zfp
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (const auto& one : x) sum += static_cast<double>(one[i]);
    ASSERT_LE(std::abs(static_cast<double>(got.x[0][i]) - sum), bound) << "index " << i;
  }
}

TEST(compressed_allreduce, is_right_on_any_number_of_ranks) {
  const auto all_codecs = codecs();
  for (std::size_t i = 0; i < all_ranks.size(); ++i) {
    std::size_t position = i;
    for (const std::size_t n : {0U, 1U, 17U, 3000U}) {
      ++position;
      const auto x = random_vectors(all_ranks[i], n, n + static_cast<std::size_t>(all_ranks[i]));
      for (std::size_t codec = 0; codec < all_codecs.size(); ++codec) {
        for (int which = ring; which < chosen; ++which) {
          for (const mode where : all_modes) {
            if (!runs_case(4, position, codec, which, position_of(where))) continue;
            expect_right(where, static_cast<kind>(which), all_codecs[codec], x, 256);
          }
        }
      }
    }
  }
}

TEST(compressed_allreduce, is_right_for_all_short_lengths) {
  for (std::size_t n = 0; n <= 70; ++n) {
    for (const char* codec : codecs()) {
      for (const kind which : kinds) {
        for (const spar::rank_t ranks : is_full() ? std::span(all_ranks) : std::span(all_ranks).subspan(2, 1)) {
          expect_right(mode::sim, which, codec, random_vectors(ranks, n, n), n % 9 + 1);
        }
      }
    }
  }
}

TEST(compressed_allreduce, is_right_on_many_ranks_in_the_simulator) {
  for (const spar::rank_t ranks : many_ranks()) {
    for (const char* codec : is_shortened || ranks > 64 ? std::vector<const char*>{"bf16"} : codecs()) {
      for (const kind which : kinds) {
        expect_right(mode::sim, which, codec, random_vectors(ranks, 300, 2), 50);
      }
    }
  }
}

/// The values after encoding and decoding in pieces.
std::vector<float> encoded(const named& codec, std::vector<float> values, std::size_t piece) {
  for (std::size_t at = 0; at < values.size(); at += piece) {
    const auto part = std::span(values).subspan(at, std::min(piece, values.size() - at));
    std::vector<std::byte> bytes(codec.encoded_bytes<float>(part.size()));
    codec.encode(std::span<const float>(part), bytes, {});
    codec.decode(std::span<const std::byte>(bytes), part);
  }
  return values;
}

std::vector<float> sum_of(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// Algorithm 1: block b starts on rank b + 1 and travels around the ring to rank b; it is encoded before each hop and
/// once more at the end.
std::vector<float> ring_by_hand(const named& codec, const vectors& x, std::size_t piece) {
  const std::size_t p = x.size(), n = x[0].size();
  std::vector<float> all;
  for (std::size_t b = 0; b < p; ++b) {
    const auto begin = [&](std::size_t of) { return static_cast<std::ptrdiff_t>(of * (n / p) + std::min(of, n % p)); };
    const auto block = [&](std::size_t rank) {
      const auto values = x[rank % p].begin();
      return std::vector(values + begin(b), values + begin(b + 1));
    };
    std::vector<float> sum = block(b + 1);
    for (std::size_t hop = 2; hop <= p; ++hop) sum = sum_of(encoded(codec, sum, piece), block(b + hop));
    sum = encoded(codec, sum, piece);
    all.insert(all.end(), sum.begin(), sum.end());
  }
  return all;
}

/// Algorithm 2 on 2^m ranks: two peers add what both have encoded.
std::vector<float> doubling_by_hand(const named& codec, vectors x, std::size_t piece) {
  for (; x.size() > 1; x.resize(x.size() / 2)) {
    for (std::size_t i = 0; i < x.size() / 2; ++i) {
      x[i] = sum_of(encoded(codec, x[2 * i], piece), encoded(codec, x[2 * i + 1], piece));
    }
  }
  return x[0];
}

/// Two-shot: the owner of a block adds, in the order of ranks, what the others have encoded and its own values, and
/// encodes the sum.
std::vector<float> two_shot_by_hand(const named& codec, const vectors& x, std::size_t piece) {
  const spar::uniform_ownership owner{x[0].size(), static_cast<spar::rank_t>(x.size())};
  std::vector<float> all;
  for (std::size_t b = 0; b < x.size(); ++b) {
    const auto range = owner[static_cast<spar::rank_t>(b)];
    const auto block = [&](std::size_t rank) {
      const std::span<const float> values = std::span(x[rank]).subspan(range.begin, range.size());
      const std::vector<float> exact(values.begin(), values.end());
      return rank == b ? exact : encoded(codec, exact, piece);
    };
    std::vector<float> sum = block(0);
    for (std::size_t rank = 1; rank < x.size(); ++rank) sum = sum_of(sum, block(rank));
    sum = encoded(codec, sum, piece);
    all.insert(all.end(), sum.begin(), sum.end());
  }
  return all;
}

/// One-shot: every rank adds, in the order of ranks, what all ranks have encoded.
std::vector<float> one_shot_by_hand(const named& codec, const vectors& x, std::size_t piece) {
  std::vector<float> sum = encoded(codec, x[0], piece);
  for (std::size_t rank = 1; rank < x.size(); ++rank) sum = sum_of(sum, encoded(codec, x[rank], piece));
  return sum;
}

TEST(compressed_allreduce, is_what_the_codec_makes_of_each_hop) {
  for (const std::string codec : codecs()) {
    if (codec.starts_with("qsgd")) continue; // qsgd rounds at random
    for (const spar::rank_t ranks : {2, 3, 4, 5, 8}) {
      for (const std::size_t n : {std::size_t{61}, std::size_t{40} * 73}) {
        SCOPED_TRACE(testing::Message() << codec << ", P = " << ranks << ", n = " << n);
        const vectors x = random_vectors(ranks, n, 11);
        const auto by_ring = reduced(mode::threads, ring, codec.c_str(), x, 100);
        EXPECT_TRUE(same(by_ring.x[0], ring_by_hand(named(codec), x, 100)));
        const auto in_two = reduced(mode::threads, two_shot, codec.c_str(), x, 100);
        EXPECT_TRUE(same(in_two.x[0], two_shot_by_hand(named(codec), x, 100)));
        const auto in_one = reduced(mode::threads, one_shot, codec.c_str(), x, 100);
        EXPECT_TRUE(same(in_one.x[0], one_shot_by_hand(named(codec), x, 100)));
        if (!std::has_single_bit(static_cast<unsigned>(ranks))) continue;
        const auto by_doubling = reduced(mode::threads, doubling, codec.c_str(), x, 100);
        EXPECT_TRUE(same(by_doubling.x[0], doubling_by_hand(named(codec), x, 100)));
      }
    }
  }
}

/// Sums by the ring and then by recursive doubling, or in two shots and then in one.
struct of_doubles {
  named codec;
  bool in_shots;
  std::vector<std::vector<double>>* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const std::span<double> mine((*x)[static_cast<std::size_t>(net.rank())]);
    if (in_shots) {
      auto in_two = spar::start_allreduce(net, mine, spar::compose(codec, spar::two_shot{.piece = 100}));
      co_await std::move(in_two);
      auto in_one = spar::start_allreduce(net, mine, spar::compose(codec, spar::one_shot{.piece = 100}));
      co_await std::move(in_one);
      co_return;
    }
    auto by_ring = spar::start_allreduce(net, mine, spar::compose(codec, spar::ring{.piece = 100}));
    co_await std::move(by_ring);
    auto by_doubling = spar::start_allreduce(net, mine, spar::compose(codec, spar::recursive_doubling{.piece = 100}));
    co_await std::move(by_doubling);
  }
};

void expect_sums_of_doubles(const char* codec, spar::rank_t ranks, bool in_shots) {
  constexpr std::size_t n = 1000;
  SCOPED_TRACE(testing::Message() << codec << ", P = " << ranks << (in_shots ? ", in shots" : ""));
  std::vector<std::vector<double>> x(static_cast<std::size_t>(ranks), std::vector<double>(n));
  for (std::size_t r = 0; r < x.size(); ++r) {
    for (std::size_t i = 0; i < n; ++i) x[r][i] = 1 + std::sin(0.01 * static_cast<double>(i + r));
  }
  auto expected = x[0];
  for (std::size_t r = 1; r < x.size(); ++r) {
    for (std::size_t i = 0; i < n; ++i) expected[i] += x[r][i];
  }
  run(mode::threads, ranks, of_doubles{named(codec), in_shots, &x});
  for (std::size_t i = 0; i < n; ++i) {
    for (const auto& one : x) ASSERT_EQ(one[i], x[0][i]) << i;
  }
  if (std::string(codec) == "qsgd:4") return; // its error is as large as the values
  // The values are smooth, so zfp's error is far below its bound; the last sum has the largest value.
  const bool is_zfp = std::string(codec).starts_with("zfp");
  const double e = is_zfp ? (std::string(codec) == "zfp:8" ? 1e-2 : 1e-3) : named(codec).relative_error<double>();
  const double most = 2.0 * ranks * ranks;
  for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(x[0][i], ranks * expected[i], 2 * ranks * e * most + 1e-12) << i;
}

TEST(compressed_allreduce, takes_doubles) {
  for (const char* codec : codecs()) {
    for (const spar::rank_t ranks : {2, 3, 5}) {
      for (const bool in_shots : {false, true}) expect_sums_of_doubles(codec, ranks, in_shots);
    }
  }
}

TEST(compressed_allreduce, has_the_same_bits_in_every_order_of_arrival) {
  for (const char* codec : codecs()) {
    for (const kind which : kinds) {
      const auto x = random_vectors(7, 2000, 5);
      const auto first = reduced(mode::threads, which, codec, x, 128);
      for (const mode where : all_modes)
        EXPECT_TRUE(same(reduced(where, which, codec, x, 128).x[0], first.x[0])) << codec;
    }
  }
}

TEST(compressed_allreduce, counts_are_those_of_the_paper) {
  constexpr std::uint64_t n = 31200; // a multiple of every P here
  for (const spar::rank_t ranks : {1, 2, 3, 4, 8, 13}) {
    const auto p = static_cast<std::uint64_t>(ranks);
    const auto x = random_vectors(ranks, n, 3);
    for (const std::uint64_t piece : {std::uint64_t{100}, std::uint64_t{32768}}) {
      const std::uint64_t pieces = p == 1 ? 0 : (n / p - 1) / piece + 1;
      for (const auto& c : reduced(mode::sim, ring, "bf16", x, piece).cost) {
        EXPECT_EQ(c.compressions, pieces * p) << "P = " << p;
        EXPECT_EQ(c.decompressions, pieces * (2 * p - 1)) << "P = " << p;
        EXPECT_EQ(c.messages_sent, pieces * 2 * (p - 1)) << "P = " << p;
        EXPECT_EQ(c.messages_received, pieces * 2 * (p - 1)) << "P = " << p;
        EXPECT_EQ(c.bytes_sent, 2 * (p - 1) * (n / p) * 2) << "P = " << p;
        EXPECT_EQ(c.plain_bytes_sent, 2 * c.bytes_sent) << "P = " << p;
      }
      for (const auto& c : reduced(mode::sim, two_shot, "bf16", x, piece).cost) {
        EXPECT_EQ(c.compressions, pieces * p) << "P = " << p;
        EXPECT_EQ(c.decompressions, pieces * (2 * p - 1)) << "P = " << p;
        EXPECT_EQ(c.messages_sent, pieces * 2 * (p - 1)) << "P = " << p;
        EXPECT_EQ(c.messages_received, pieces * 2 * (p - 1)) << "P = " << p;
        EXPECT_EQ(c.bytes_sent, 2 * (p - 1) * (n / p) * 2) << "P = " << p;
        EXPECT_EQ(c.plain_bytes_sent, 2 * c.bytes_sent) << "P = " << p;
      }
      const std::uint64_t of_vector = p == 1 ? 0 : (n - 1) / piece + 1;
      for (const auto& c : reduced(mode::sim, one_shot, "bf16", x, piece).cost) {
        EXPECT_EQ(c.compressions, of_vector) << "P = " << p;
        EXPECT_EQ(c.decompressions, of_vector * p) << "P = " << p;
        EXPECT_EQ(c.messages_sent, of_vector * (p - 1)) << "P = " << p;
        EXPECT_EQ(c.messages_received, of_vector * (p - 1)) << "P = " << p;
        EXPECT_EQ(c.bytes_sent, (p - 1) * n * 2) << "P = " << p;
      }
    }
  }
  for (const spar::rank_t ranks : {2, 4, 8}) {
    const auto rounds = static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(ranks)) - 1);
    const auto x = random_vectors(ranks, n, 3);
    for (const std::uint64_t pieces : {1U, 8U}) {
      for (const auto& c : reduced(mode::sim, doubling, "bf16", x, n / pieces).cost) {
        EXPECT_EQ(c.compressions, pieces * rounds);
        EXPECT_EQ(c.decompressions, pieces * 2 * rounds);
        EXPECT_EQ(c.messages_sent, pieces * rounds);
        EXPECT_EQ(c.bytes_sent, rounds * 2 * n);
        EXPECT_DOUBLE_EQ(c.compression_ratio(), 2);
      }
    }
  }
}

/// A block of every length is one message to and one from its owner if it is not longer than a piece, also of no
/// values; the blocks of all ranks have the same number of pieces, of which the last may be empty.
TEST(compressed_allreduce, two_shots_send_two_messages_to_each_rank_per_piece) {
  for (const spar::rank_t ranks : all_ranks) {
    const auto p = static_cast<std::uint64_t>(ranks);
    for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{1}, p - 1, p, 7 * p, 8 * p, 8 * p + 1, 9 * p - 1}) {
      const std::uint64_t pieces = n > 8 * p ? 2 : 1, largest = (n + p - 1) / p;
      const auto all = reduced(mode::sim, two_shot, "bf16", random_vectors(ranks, n, 3), 8);
      for (std::size_t r = 0; r < all.cost.size(); ++r) {
        const std::uint64_t own = r < n % p ? largest : n / p;
        EXPECT_EQ(all.cost[r].messages_sent, 2 * pieces * (p - 1)) << "P = " << p << ", n = " << n;
        EXPECT_EQ(all.cost[r].bytes_sent, p == 1 ? 0 : 2 * (n - own) + 2 * (p - 1) * own)
            << "P = " << p << ", n = " << n;
      }
    }
  }
}

/// The seconds of a call whose messages take 20 us and whose bytes take no time: a hop each.
TEST(compressed_allreduce, two_shots_take_two_hops) {
  for (const spar::rank_t ranks : {2, 5, 16}) {
    for (const kind which : {two_shot, one_shot}) {
      auto x = random_vectors(ranks, 3000, 3);
      std::vector<spar::statistics> cost(x.size());
      spar::simulator simulator(ranks, {.latency = 20e-6, .bandwidth = 1e30});
      simulator.run(program{which, named("qsgd:8"), 32768, &x, nullptr, &cost});
      EXPECT_NEAR(simulator.time(), which == two_shot ? 40e-6 : 20e-6, 1e-9) << "P = " << ranks;
    }
  }
}

/// A split-allgather whose two phases use the same block codec.
struct dense_split {
  named codec;
  vectors* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const std::span<float> mine((*x)[static_cast<std::size_t>(net.rank())]);
    auto pending = spar::start_allreduce(net, mine, spar::compose(codec, spar::dsar_split{}));
    co_await pending;
  }
};

/// Both encode twice, draw the same random numbers if pieces are whole buckets, and add in the order of ranks.
TEST(compressed_allreduce, two_shots_have_the_bits_of_a_split_allgather) {
  for (const char* codec : {"qsgd:8", "qsgd:4", "bf16"}) {
    for (const spar::rank_t ranks : {2, 3, 8, 17}) {
      auto x = random_vectors(ranks, 5000, 2);
      const auto got = reduced(mode::sim, two_shot, codec, x, 1024);
      run_sim(ranks, dense_split{named(codec), &x});
      for (std::size_t r = 0; r < x.size(); ++r)
        ASSERT_TRUE(same(got.x[r], x[r])) << codec << ", P = " << ranks << ", rank " << r;
    }
  }
}

TEST(compressed_allreduce, what_a_codec_cannot_carry_travels_as_it_is) {
  for (const char* codec : codecs()) {
    if (std::string(codec).starts_with("qsgd") || std::string(codec).starts_with("mx"))
      continue; // which have their own encoding of NaN and infinities
    for (const kind which : kinds) {
      for (const spar::rank_t ranks : {2, 3, 8}) {
        vectors x = random_vectors(ranks, 1000, 1);
        x[1][333] = std::numeric_limits<float>::quiet_NaN();
        x[0][700] = std::numeric_limits<float>::infinity();
        x[0][10] = x[1][10] = 3e38F; // the sum is infinite
        x[1][20] = 1e30F;            // too large for half
        const auto got = reduced(mode::threads, which, codec, x, 100);
        for (const auto& one : got.x) {
          ASSERT_TRUE(std::isnan(one[333])) << codec;
          ASSERT_EQ(one[700], std::numeric_limits<float>::infinity()) << codec;
          ASSERT_EQ(one[10], std::numeric_limits<float>::infinity()) << codec;
          ASSERT_TRUE(std::isfinite(one[500]));
          ASSERT_NEAR(one[20], 1e30F, 1e28F) << codec;
          for (std::size_t i = 0; i < one.size(); ++i) {
            ASSERT_TRUE(one[i] == got.x[0][i] || (std::isnan(one[i]) && std::isnan(got.x[0][i]))) << codec << " " << i;
          }
        }
      }
    }
  }
}

/// By default zfp rejects NaN and infinities: the rank that has such a value throws an error that describes it, and the
/// other ranks throw errors with that reason.
TEST(compressed_allreduce, what_zfp_cannot_carry_is_an_error) {
  for (const spar::rank_t ranks : {2, 3, 8}) {
    std::vector<std::string> said(static_cast<std::size_t>(ranks));
    spar::thread_group group{ranks};
    group.run([&](spar::threads& net) {
      std::vector<float> x(1000, 1.0F);
      if (net.rank() == 1) x[333] = std::numeric_limits<float>::quiet_NaN();
      auto& mine = said[static_cast<std::size_t>(net.rank())];
      try {
        spar::allreduce(net, std::span<float>(x), spar::compose(spar::storage::zfp{}, spar::ring{}));
      } catch (const spar::invalid_argument& e) {
        EXPECT_EQ(net.rank(), 1);
        mine = e.what();
      } catch (const spar::peer_failed& e) {
        mine = e.what();
      }
    });
    for (const auto& text : said) EXPECT_NE(text.find("NaN"), std::string::npos) << text;
  }
}

/// What ranks lose by rounding stays in their residuals: the result and the residuals add up to all contributions.
template <class Algorithm>
struct keeping_program {
  Algorithm algorithm;
  vectors* x;
  vectors* residuals;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    const std::span<float> mine((*x)[rank]), lost((*residuals)[rank]);
    const keeper call{algorithm, lost};
    auto pending = spar::start_collective(
        net, spar::signature_of<float, std::uint32_t, spar::sum>(mine.size(), algorithm), call, mine, spar::sum{});
    co_await pending;
  }

 private:
  struct keeper {
    static constexpr std::string_view name = Algorithm::name;
    Algorithm algorithm;
    std::span<float> lost;
    template <class Net>
    spar::task<void> operator()(spar::channel<Net> net, std::span<float> mine, spar::sum op) const& {
      const spar::residual_view<float> residual(lost);
      if constexpr (requires { algorithm.by(net, algorithm.over, mine, op, algorithm.store, residual); })
        return algorithm.by(net, algorithm.over, mine, op, algorithm.store, residual);
      else
        return algorithm.by(net, mine, op, algorithm.store, residual);
    }
  };
};

template <class Algorithm, class Ranks = decltype(all_ranks)>
void expect_nothing_lost(const Algorithm& algorithm, const Ranks& some = all_ranks) {
  for (const spar::rank_t ranks : some) {
    for (const mode where : {mode::threads, mode::sim_synchronous}) {
      const auto before = random_vectors(ranks, 1000, 7);
      vectors x = before, residuals(x.size(), std::vector<float>(1000));
      run(where, ranks, keeping_program<Algorithm>{algorithm, &x, &residuals});
      double worst = 0, most = 0;
      for (std::size_t i = 0; i < 1000; ++i) {
        double brought = 0, kept = static_cast<double>(x[0][i]);
        for (const auto& one : before) brought += static_cast<double>(one[i]);
        for (const auto& one : residuals) {
          kept += static_cast<double>(one[i]);
          most = std::max(most, std::abs(static_cast<double>(one[i])));
        }
        worst = std::max(worst, std::abs(kept - brought));
      }
      EXPECT_LE(worst, ranks * 0x1p-20) << where << ", P = " << ranks;
      EXPECT_TRUE(ranks == 1 || most > 1e-3) << "nothing was lost, so the test checks nothing";
    }
  }
}

TEST(compressed_allreduce, keeps_in_residuals_what_it_loses) {
  expect_nothing_lost(spar::compose(spar::storage::qsgd<8>{}, spar::ring{.piece = 100}));
  expect_nothing_lost(spar::compose(spar::storage::qsgd<8>{}, spar::recursive_doubling{.piece = 100}));
  expect_nothing_lost(spar::compose(spar::storage::qsgd<8>{}, spar::two_shot{.piece = 100}));
  expect_nothing_lost(spar::compose(spar::storage::qsgd<8>{}, spar::one_shot{.piece = 100}));
}

/// A tree of hosts with so many ranks each, whose ranks do not have consecutive numbers.
spar::tree hosts_of(std::vector<int> ranks_of_each) {
  std::vector<spar::rank_t> host_of;
  for (bool more = true; more;) {
    more = false;
    for (std::size_t h = 0; h < ranks_of_each.size(); ++h) {
      if (ranks_of_each[h]-- <= 0) continue;
      host_of.push_back(static_cast<spar::rank_t>(h));
      more = true;
    }
  }
  return spar::tree_of_hosts(host_of);
}
/// Hosts with equally and with unequally many ranks, and some hosts for each number of ranks from 1 to 17.
std::vector<std::vector<int>> shapes_of_hosts() {
  std::vector<std::vector<int>> all{{2, 2}, {2, 2, 2}, {2, 2, 2, 2}, {3, 3}, {3, 3, 3}, {3, 3, 3, 3},
                                    {2, 3}, {5, 2, 3}, {1, 4, 1},    {6, 3}, {2, 4, 8}};
  std::mt19937_64 random(7);
  for (int ranks = 1; ranks <= 17; ++ranks) {
    auto& hosts = all.emplace_back();
    for (int left = ranks; left > 0; left -= hosts.back())
      hosts.push_back(std::min(left, 1 + static_cast<int>(random() % 5)));
  }
  return all;
}

struct over_hosts {
  named codec;
  std::uint64_t piece;
  const spar::tree_plans* plans;
  vectors* x;
  std::vector<spar::statistics>* cost;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    const auto algorithm = spar::compose(codec, spar::on_tree(*plans), spar::two_shot{.piece = piece});
    auto pending = spar::start_allreduce(net, std::span((*x)[rank]), algorithm);
    co_await pending;
    (*cost)[rank] = pending.statistics();
  }
};

/// Only what crosses to another host is encoded: of each part, the blocks of the other hosts, by the owner of the part.
TEST(compressed_allreduce, two_shots_encode_between_hosts_only) {
  std::size_t position = 0;
  for (const std::vector<int>& shape : shapes_of_hosts()) {
    const spar::tree_plans plans(hosts_of(shape));
    const spar::rank_t ranks = plans.topology().ranks();
    const auto p = static_cast<std::size_t>(ranks);
    const auto hosts = static_cast<std::uint64_t>(shape.size());
    const auto parts = static_cast<std::uint64_t>(*std::min_element(shape.begin(), shape.end()));
    const std::size_t divisible = 300 * hosts * parts;
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{17}, divisible}) {
      for (const std::uint64_t piece : {std::uint64_t{60}, std::uint64_t{32768}}) {
        for (const mode where : all_modes) {
          for (const char* codec : {"bf16", "qsgd:8", "none"}) {
            if (!runs_case(7, position++)) continue;
            SCOPED_TRACE(testing::Message()
                         << where << ", " << codec << ", n = " << n << ", pieces of " << piece << '\n'
                         << plans.topology().picture());
            const auto before = random_vectors(ranks, n, 3);
            auto x = before;
            std::vector<spar::statistics> cost(p);
            run(where, ranks, over_hosts{named(codec), piece, &plans, &x, &cost});
            const double e = named(codec).relative_error<float>();
            const double bound = ((1 + e) * (1 + e) - 1 + static_cast<double>(p) * 0x1p-23) * largest_together(x) +
                                 ((1 + e) * (1 + e) - 1 + 0x1p-20) * largest_together(before) + 0x1p-120;
            for (std::size_t i = 0; i < n; ++i) {
              double sum = 0;
              for (const auto& one : before) sum += static_cast<double>(one[i]);
              ASSERT_NEAR(static_cast<double>(x[0][i]), sum, bound) << "index " << i;
            }
            for (const auto& one : x) ASSERT_TRUE(same(one, x[0])) << "the ranks' results differ";
            if (n != divisible || codec != std::string("bf16") || hosts == 1) continue;
            const std::uint64_t pieces = piece == 60 ? 5 : 1, part = n / parts;
            for (std::size_t h = 0, at = 0; h < shape.size(); ++h) {
              const auto inside = static_cast<std::uint64_t>(shape[h]);
              for (std::uint64_t r = 0; r < inside; ++r) {
                const auto& c = cost[static_cast<std::size_t>(plans.topology().leaves()[at++])];
                const bool owns = r < parts;
                EXPECT_EQ(c.compressions, owns ? pieces * hosts : 0);
                EXPECT_EQ(c.messages_sent, pieces * (owns ? parts - 1 + 2 * (hosts - 1) + inside - 1 : parts));
                EXPECT_EQ(c.bytes_sent,
                          owns ? (parts - 1 + inside - 1) * part * 4 + 2 * (hosts - 1) * part / hosts * 2 : n * 4);
              }
            }
          }
        }
      }
    }
  }
}

TEST(compressed_allreduce, two_shots_between_hosts_keep_in_residuals_what_they_lose) {
  for (const std::vector<int>& shape : {std::vector{2, 2}, {2, 2, 2}, {2, 3}, {1, 4, 2}}) {
    const spar::tree_plans plans(hosts_of(shape));
    const auto algorithm = spar::compose(spar::storage::qsgd<8>{}, spar::on_tree(plans), spar::two_shot{.piece = 100});
    expect_nothing_lost(algorithm, std::array{plans.topology().ranks()});
  }
}

/// On one host, no message crosses to another, so nothing is rounded.
TEST(compressed_allreduce, two_shots_on_one_host_encode_nothing) {
  const spar::tree_plans plans(
      spar::tree(spar::tree_node{.children = {{.children = {{.rank = 0}, {.rank = 1}, {.rank = 2}}}}}));
  auto x = random_vectors(3, 100, 5);
  const auto before = x;
  std::vector<spar::statistics> cost(3);
  run(mode::threads, 3, over_hosts{named("qsgd:4"), 60, &plans, &x, &cost});
  for (std::size_t i = 0; i < 100; ++i) {
    const float sum = (before[0][i] + before[1][i]) + before[2][i];
    for (const auto& one : x) ASSERT_EQ(one[i], sum) << "index " << i;
  }
  for (const auto& c : cost) EXPECT_EQ(c.compressions, 0U);
}

TEST(tree, knows_where_hosts_begin) {
  using begins = std::vector<spar::rank_t>;
  EXPECT_EQ(hosts_of({2, 2, 2}).hosts(), (begins{0, 2, 4, 6}));
  EXPECT_EQ(hosts_of({1, 4, 2}).hosts(), (begins{0, 1, 5, 7}));
  EXPECT_EQ(spar::tree::flat(3).hosts(), (begins{0, 1, 2, 3}));
  EXPECT_EQ(spar::tree::flat(1).hosts(), (begins{0, 1}));
  EXPECT_EQ(spar::tree(spar::tree_node{.rank = 0}).hosts(), (begins{0, 1}));
  spar::tree_node mixed; // a rank beside a host
  mixed.children = {{.rank = 0}, {.children = {{.rank = 1}, {.rank = 2}}}};
  EXPECT_EQ(spar::tree(mixed).hosts(), (begins{0, 1, 3}));
  spar::tree_node beside; // a rank beside a host, below the same branch
  beside.children = {{.children = {{.rank = 0}, {.children = {{.rank = 1}, {.rank = 2}}}, {.rank = 3}}}, {.rank = 4}};
  EXPECT_EQ(spar::tree(beside).hosts(), (begins{0, 1, 3, 4, 5}));
  spar::tree_node racks; // of two hosts with two ranks each
  for (spar::rank_t r = 0; r < 8; r += 4)
    racks.children.push_back(
        {.children = {{.children = {{.rank = r}, {.rank = r + 1}}}, {.children = {{.rank = r + 2}, {.rank = r + 3}}}}});
  EXPECT_EQ(spar::tree(racks).hosts(), (begins{0, 2, 4, 6, 8}));
}

TEST(compressed_allreduce, split_allgather_takes_any_codec) {
  for (const char* codec : codecs()) {
    const auto x = random_vectors(5, 1000, 2);
    vectors sums(5, std::vector<float>(1000));
    run_threads(5, split_program{named(codec), &x, &sums});
    const double bound = (named(codec).relative_error<float>() + 1e-6) * largest_together(x);
    for (std::size_t i = 0; i < 1000; ++i) {
      double sum = 0;
      for (const auto& one : x) sum += static_cast<double>(one[i]);
      ASSERT_NEAR(sums[0][i], sum, bound) << codec;
    }
    for (const auto& one : sums) ASSERT_TRUE(same(one, sums[0])) << codec;
  }
}

// --- the error bound, and the codec within a tolerance ---

/// Values of magnitude at most `largest`, chosen against the codecs: equal values that round down or up in each code,
/// alternating signs, single large values among small ones, the largest value, subnormal numbers, and random values.
vectors adversarial(spar::rank_t ranks, std::size_t n, float largest) {
  vectors x(static_cast<std::size_t>(ranks), std::vector<float>(n));
  std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (std::size_t r = 0; r < x.size(); ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      const float sign = (r + i) % 2 == 0 ? 1.0F : -1.0F;
      const float some[] = {0x0.80fp0F,                   // just below half a step of bfloat16
                            0x0.810001p0F,                // just above
                            0x0.801ffp0F,                 // the same of half
                            0.99F,                        // all of equal sign
                            sign * 0.99F,                 // cancels
                            i % 64 == 5 ? 1.0F : 0x1p-9F, // vanishes beside one large value
                            1.0F,                         // the largest
                            sign * 0x1p-20F,              // below the steps of half
                            std::ldexp(uniform(random), -static_cast<int>(i % 20)), // of all sizes
                            uniform(random)};
      x[r][i] = largest * some[i / 64 % 10];
    }
    x[r][0] = 0x1p-149F;
  }
  return x;
}

/// Checks that the sums differ from the exact sum of `x` by at most `bound`, and returns the largest difference.
double expect_within(double bound, const vectors& x, const vectors& sums) {
  double worst = 0;
  for (std::size_t i = 0; i < x[0].size(); ++i) {
    double sum = 0; // exact: the values of an index have few different exponents
    for (const auto& one : x) sum += static_cast<double>(one[i]);
    for (const auto& one : sums) worst = std::max(worst, std::abs(static_cast<double>(one[i]) - sum));
  }
  EXPECT_LE(worst, bound);
  return worst;
}

TEST(error_bound, holds_for_adversarial_values) {
  constexpr std::size_t n = 1300;
  const auto all_codecs = codecs();
  double nearest = 0; // the largest part of a bound that an error reached
  for (std::size_t p = 0; p < all_ranks.size(); ++p) {
    const spar::rank_t ranks = all_ranks[p];
    for (const float largest : {1.0F, 60'000.0F / static_cast<float>(ranks), 1e30F, 1e-6F, 1e-40F}) {
      const auto x = adversarial(ranks, n, largest);
      for (std::size_t c = 0; c < all_codecs.size(); ++c) {
        const named codec(all_codecs[c]);
        const auto check = [&](const auto& algorithm, const vectors& sums) {
          SCOPED_TRACE(testing::Message() << all_codecs[c] << ", P = " << ranks << ", largest " << largest);
          const double bound = spar::error_bound(algorithm, ranks, static_cast<double>(largest));
          const double error = expect_within(bound, x, sums);
          if (all_codecs[c] == std::string("bf16") && ranks > 1) nearest = std::max(nearest, error / bound);
        };
        for (const mode where : all_modes) {
          if (!runs_case(4, p, c, position_of(where))) continue;
          check(spar::compose(codec, spar::ring{}), reduced(where, ring, all_codecs[c], x, 256).x);
          check(spar::compose(codec, spar::recursive_doubling{}), reduced(where, doubling, all_codecs[c], x, 256).x);
          check(spar::compose(codec, spar::two_shot{}), reduced(where, two_shot, all_codecs[c], x, 256).x);
          check(spar::compose(codec, spar::one_shot{}), reduced(where, one_shot, all_codecs[c], x, 256).x);
          check(spar::compose(codec), reduced(where, chosen, all_codecs[c], x).x);
          vectors sums(x.size(), std::vector<float>(n));
          if (largest > 1e9F) continue; // a split-allgather refuses values that half cannot encode
          run(where, ranks, split_program{codec, &x, &sums});
          check(split_with{.store = {.blocks = codec}}, sums);
        }
      }
    }
  }
  EXPECT_GT(nearest, 0.2) << "no values came near the bound, so the test checks nothing";
}

/// P - 1 first encodings and one of the sum: the error is at most e (S - s + m), where s is the owner's part of S and m
/// the largest magnitude of its sum.
TEST(error_bound, of_two_shots_counts_the_contributions_of_others_and_the_sum) {
  constexpr std::size_t n = 1300;
  double nearest = 0; // the largest part of a bound that an error reached
  for (const spar::rank_t ranks : all_ranks) {
    if (ranks == 1) continue;
    const auto x = adversarial(ranks, n, 1);
    const spar::uniform_ownership owner{n, ranks};
    for (const char* codec : codecs()) {
      const auto got = reduced(mode::sim, two_shot, codec, x);
      const double e = named(codec).relative_error<float>();
      for (spar::rank_t b = 0; b < ranks; ++b) {
        const auto largest = [&](const std::vector<float>& values) {
          double top = 0;
          for (std::uint64_t i = owner[b].begin; i < owner[b].end; ++i)
            top = std::max(top, std::abs(static_cast<double>(values[i])));
          return top;
        };
        double others = 0;
        for (std::size_t r = 0; r < x.size(); ++r) others += static_cast<spar::rank_t>(r) == b ? 0 : largest(x[r]);
        const double own = largest(x[static_cast<std::size_t>(b)]), of_sum = (1 + e) * others + own;
        const double rounding = 2 * ranks * 0x1p-24 * (others + own) + 2 * ranks * 0x1p-24; // additions; tiny values
        const double bound = e * (others + of_sum) + rounding;
        for (std::uint64_t i = owner[b].begin; i < owner[b].end; ++i) {
          double sum = 0;
          for (const auto& one : x) sum += static_cast<double>(one[i]);
          const double error = std::abs(static_cast<double>(got.x[0][i]) - sum);
          ASSERT_LE(error, bound) << codec << ", P = " << ranks << ", index " << i;
          if (e > 0) nearest = std::max(nearest, error / bound);
        }
      }
    }
  }
  EXPECT_GT(nearest, 0.5) << "no values came near the bound, so the test checks nothing";
}

TEST(error_bound, of_known_compositions) {
  const auto power = [](double e, int c) { return std::pow(1 + e, c) - 1; };
  const auto near = [](double bound, double expected) {
    EXPECT_GE(bound, expected * (1 - 1e-6));
    EXPECT_LE(bound, expected * (1 + 1e-6) + 1e-30);
  };
  const double u = 0x1p-24;
  near(spar::error_bound(spar::ring{}, 1, 5.0), 0);
  near(spar::error_bound(spar::ring{}, 4, 5.0), 20 * power(u, 3));
  near(spar::error_bound(spar::sparcml{}, 4, 5.0), 20 * power(u, 3));
  near(spar::error_bound(spar::recursive_doubling{}, 8, 1.0), 8 * power(u, 3));
  near(spar::error_bound(spar::rabenseifner{}, 6, 1.0), 6 * power(u, 3));
  near(spar::error_bound<double>(spar::ring{}, 4, 5.0), 20 * 3 * 0x1p-53);
  const auto bf16 = spar::storage::as_bfloat16{};
  near(spar::error_bound(spar::compose(bf16, spar::ring{}), 4, 1.0),
       4 * ((1 + power(0x1p-8, 4)) * (1 + power(u, 3)) - 1));
  near(spar::error_bound(spar::compose(bf16, spar::two_shot{}), 64, 1.0),
       64 * ((1 + power(0x1p-8, 2)) * (1 + power(u, 63)) - 1));
  near(spar::error_bound(spar::compose(bf16, spar::one_shot{}), 64, 1.0), 64 * ((1 + 0x1p-8) * (1 + power(u, 63)) - 1));
  near(spar::error_bound(spar::compose(bf16, spar::dsar_split{}), 4, 1.0),
       4 * ((1 + power(0x1p-8, 2)) * (1 + power(u, 3)) - 1));
  using dense_phase = spar::storage::then<spar::storage::coo, spar::storage::as_bfloat16>;
  near(spar::error_bound(spar::compose(dense_phase{}, spar::dsar_split{}), 4, 1.0),
       4 * ((1 + 0x1p-8) * (1 + power(u, 3)) - 1));
  near(spar::error_bound(spar::compose(spar::storage::coded<7>{}, spar::ssar_split{}), 4, 1.0),
       4 * ((1 + power(0x1p-8, 2)) * (1 + power(u, 3)) - 1));
  near(spar::error_bound(spar::compose(spar::storage::coded<>{}, spar::ssar_split{}), 4, 1.0), 4 * power(u, 3));
  // The absolute error of half: c P 2^-25, where c is the number of encodings.
  EXPECT_GE(spar::error_bound(spar::compose(spar::storage::as_half{}, spar::ring{}), 4, 0.0), 16 * 0x1p-25);
  EXPECT_LE(spar::error_bound(spar::compose(spar::storage::as_half{}, spar::ring{}), 4, 0.0), 17 * 0x1p-25);
  // A sum that may overflow has no bound.
  EXPECT_EQ(spar::error_bound(spar::ring{}, 4, 1e38), std::numeric_limits<double>::infinity());
  EXPECT_LT(spar::error_bound(spar::ring{}, 3, 1e38), 1e33);
#ifdef SPAR_HAS_HALF
  EXPECT_EQ(spar::error_bound<spar::half>(spar::ring{}, 3, 30'000.0), std::numeric_limits<double>::infinity());
  near(spar::error_bound<spar::half>(spar::ring{}, 2, 30'000.0), 60'000 * 0x1p-11);
#endif
}

TEST(error_bound, refuses_numbers_that_are_no_magnitudes) {
  const auto text = [](spar::rank_t ranks, double largest) -> std::string {
    try {
      (void)spar::error_bound(spar::ring{}, ranks, largest);
    } catch (const spar::invalid_argument& e) {
      return e.what();
    }
    return "no error";
  };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_NE(text(0, 1).find("0 ranks; expected at least 1"), std::string::npos) << text(0, 1);
  EXPECT_NE(text(2, -1).find("is -1; expected a finite number of at least 0"), std::string::npos) << text(2, -1);
  for (const double wrong : {infinity, -infinity, std::nan("")})
    EXPECT_NE(text(2, wrong).find("expected a finite number"), std::string::npos) << text(2, wrong);
}

TEST(codec_for, takes_the_fewest_bytes_within_the_tolerance) {
  const auto each = [](const auto& schedule, auto type) {
    using T = decltype(type);
    for (const spar::rank_t ranks : all_ranks) {
      for (const std::uint64_t n : {0U, 1U, 100U, 10'000'000U}) {
        const std::size_t block = (n + static_cast<std::uint64_t>(ranks) - 1) / static_cast<std::uint64_t>(ranks);
        std::size_t before = 0; // bytes of the codec for a larger tolerance
        bool none_before = false;
        for (double tolerance = 100; tolerance > 1e-17; tolerance /= 1.7) {
          SCOPED_TRACE(testing::Message() << tolerance << ", P = " << ranks << ", n = " << n);
          // The bound relative to S, of values so large that absolute errors vanish.
          const auto keeps = [&](const named& codec) {
            const double large = static_cast<double>(std::numeric_limits<T>::max()) / 1e9;
            return spar::error_bound<T>(spar::compose(codec, schedule), ranks, large) / large / ranks <=
                   tolerance * (1 + 1e-9);
          };
          std::size_t fewest = 0;
          bool any = false;
          for (const char* name : codecs()) {
            const named codec(name);
            if (!keeps(codec)) continue;
            fewest = any ? std::min(fewest, codec.encoded_bytes<T>(block)) : codec.encoded_bytes<T>(block);
            any = true;
          }
          try {
            const named chosen = spar::codec_for<T>(tolerance, ranks, n, schedule);
            ASSERT_TRUE(keeps(chosen)) << spar::description_of(chosen);
            ASSERT_TRUE(any);
            ASSERT_LE(chosen.template encoded_bytes<T>(block), fewest) << spar::description_of(chosen);
            ASSERT_GE(chosen.template encoded_bytes<T>(block), before) << spar::description_of(chosen);
            ASSERT_FALSE(none_before);
            before = chosen.template encoded_bytes<T>(block);
          } catch (const spar::invalid_argument& e) {
            ASSERT_FALSE(keeps(named("none"))) << e.what();
            none_before = true;
          }
        }
        EXPECT_EQ(none_before, ranks > 1) << "a tolerance of 1e-17 is met on one rank alone";
      }
    }
  };
  each(spar::cheapest{}, float());
  each(spar::ring{}, double());
  each(spar::recursive_doubling{}, float());
  each(spar::two_shot{}, float());
}

TEST(codec_for, says_why_there_is_none) {
  const auto text = [](double tolerance, spar::rank_t ranks) -> std::string {
    try {
      (void)spar::codec_for(tolerance, ranks, 1000);
    } catch (const spar::invalid_argument& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(text(1e-8, 2), "the tolerance of a sum of 2 ranks is 1e-08, but additions alone may round by 5.96046e-08; "
                           "expected at least that much");
  EXPECT_EQ(text(-1, 2), "the tolerance of a sum is -1; expected a finite number of at least 0");
  EXPECT_NE(text(std::nan(""), 2).find("expected a finite number"), std::string::npos);
  EXPECT_NE(text(std::numeric_limits<double>::infinity(), 2).find("expected a finite number"), std::string::npos);
  EXPECT_NE(text(1, 0).find("0 ranks; expected at least 1"), std::string::npos);
}

/// Ranks with different codecs detect the mismatch.
struct disagreeing {
  kind which;
  vectors* x;
  std::vector<std::string>* errors;
  const spar::flex_plan* plan;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    std::vector<spar::statistics> cost(static_cast<std::size_t>(net.size()));
    if (which == chosen)
      net.port().node().set_network({1e-6, 1e-6, 1e-9, 1e-9}); // so slow that the algorithm compresses
    const program call{which, named(rank == 1 ? "half" : "bf16"), 32768, x, plan, &cost};
    try {
      auto pending = call.begin(net, std::span((*x)[rank]));
      co_await pending;
    } catch (const spar::error& e) {
      (*errors)[rank] = e.what();
    }
  }
};

struct disagreeing_split {
  const vectors* x;
  std::vector<std::string>* errors;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    const split_with algorithm{.store = {.blocks = named(rank == 1 ? "half" : "bf16")}};
    const auto mine = spar::dense_view((*x)[rank]);
    try {
      auto pending = spar::start_allreduce(net, mine, algorithm);
      co_await pending;
    } catch (const spar::error& e) {
      (*errors)[rank] = e.what();
    }
  }
};

TEST(compressed_allreduce, ranks_that_split_with_other_codecs_get_an_error) {
  const auto x = random_vectors(3, 1000, 2);
  std::vector<std::string> errors(3);
  run_sim(3, disagreeing_split{&x, &errors});
  for (const auto& e : errors) EXPECT_NE(e.find("disagree on the algorithm"), std::string::npos) << e;
}

TEST(compressed_allreduce, ranks_with_other_codecs_get_an_error) {
  for (const kind which : {ring, doubling, two_shot, one_shot, flexreduce, chosen}) {
    auto x = random_vectors(3, 1000, 2);
    std::vector<std::string> errors(3);
    const spar::flex_plan plan(uneven_hosts(3), 1000);
    run_sim(3, disagreeing{which, &x, &errors, &plan});
    for (const auto& e : errors) EXPECT_NE(e.find("disagree on the algorithm"), std::string::npos) << e;
  }
}

TEST(compressed_allreduce, bad_options_are_reported_before_anything_is_sent) { run_threads(2, bad_options{}); }

TEST(compression_choice, compresses_where_the_network_is_slower_than_the_codec) {
  const auto choice = [](const spar::network_model& model, spar::rank_t ranks, std::size_t n) {
    return spar::cheapest::compression<float>(spar::storage::qsgd<8>{}, model, ranks, n);
  };
  const spar::network_model fast{1e-6, 1e-11, 2e-9, 1e-10}, slow{2e-5, 8e-9, 2e-9, 1e-10};
  using algorithm = spar::compression_choice::algorithm;
  EXPECT_EQ(choice(fast, 8, 1 << 20).chosen, algorithm::plain);
  EXPECT_EQ(choice(slow, 8, 1 << 24).chosen, algorithm::compressed_ring);
  EXPECT_EQ(choice(slow, 8, 1 << 11).chosen, algorithm::compressed_doubling);
  EXPECT_EQ(choice(slow, 1, 1 << 24).chosen, algorithm::plain);
  const spar::network_model shared{2e-5, 8e-9, 2e-9, 1e-10, 2e-10, 2e-5}; // all messages in flight share their latency
  EXPECT_EQ(choice(shared, 64, 1 << 16).chosen, algorithm::two_shot);
  EXPECT_EQ(choice(shared, 4, 64).chosen, algorithm::one_shot);
  EXPECT_EQ(choice(shared, 2, 1 << 10).chosen, algorithm::compressed_doubling); // the same bytes, without a barrier
  const auto chosen = choice(slow, 8, 1 << 24);
  EXPECT_LT(chosen.ring_seconds, chosen.plain_seconds);
  EXPECT_NE(chosen.reason().find("the compressed ring: "), std::string::npos) << chosen.reason();
  EXPECT_NE(choice(fast, 8, 1 << 20).reason().find("without compression: "), std::string::npos);
}

/// The passes of one encoding and two decodings, as bench/results/codec_speed.md has them, and the seconds of a byte
/// from which on compression pays among four ranks, which encode n and decode 7 n / 4 values for 3 n / 2 values sent.
TEST(compression_choice, knows_what_the_coders_take) {
  const auto expect = [](const auto& codec, double passes, double bytes) {
    const spar::network_model unit{.alpha = 0, .gamma_dense = 1e-10};
    EXPECT_DOUBLE_EQ(spar::model_of<float>(codec, unit).seconds, passes * 1e-10) << codec.name;
    const double limit = 2.75 * passes * 1e-10 / (1.5 * (4 - bytes));
    for (const double beta : {0.99 * limit, 1.01 * limit}) {
      spar::network_model model = unit;
      model.beta = beta;
      const auto chosen = spar::cheapest::compression<float>(codec, model, 4, 1 << 22).chosen;
      EXPECT_EQ(chosen != spar::compression_choice::algorithm::plain, beta > limit) << codec.name;
    }
    for (const spar::rank_t ranks : {2, 4, 64}) { // ranks on one host
      const auto chosen = spar::cheapest::compression<float>(codec, {}, ranks, 1 << 22).chosen;
      EXPECT_EQ(chosen, spar::compression_choice::algorithm::plain) << codec.name << ", P = " << ranks;
    }
  };
  expect(spar::storage::as_half{}, 1.5, 2);
  expect(spar::storage::as_bfloat16{}, 1.5, 2);
  expect(spar::storage::qsgd<8>{}, 2.5, 1 + 4.0 / 1024);
  expect(spar::storage::qsgd<4>{}, 2.5, 0.5 + 4.0 / 1024);
  expect(spar::storage::qsgd<2>{}, 2.5, 0.25 + 4.0 / 1024);
  expect(spar::storage::mx<spar::storage::e4m3>{}, 2, 1 + 1.0 / 32);
  expect(spar::storage::zfp{.rate = 4}, 4.5, 0.5);
  expect(spar::storage::zfp{.rate = 8}, 5, 1);
  expect(spar::storage::zfp{.rate = 16}, 6, 2);
  expect(spar::storage::zfp{.rate = 24}, 15.2, 3);
}

TEST(compression_choice, says_that_it_assumes_one_host_if_nobody_has_set_the_model) {
  const auto reason = [](const spar::network_model& model) {
    return spar::cheapest::compression<float>(spar::storage::qsgd<8>{}, model, 8, 1 << 20).reason();
  };
  const std::string said = "; these times assume ranks on one host, as no network model was set";
  const auto at = reason({}).find(said);
  EXPECT_NE(at, std::string::npos) << reason({});
  EXPECT_EQ(reason({}).find(said, at + 1), std::string::npos) << "said twice: " << reason({});
  EXPECT_EQ(reason({.alpha = 2e-6}).find("one host"), std::string::npos) << reason({.alpha = 2e-6});
}

/// The simulator's time of a call without computation is that of the model.
TEST(compression_choice, knows_the_time_of_shots) {
  for (const spar::rank_t ranks : {2, 5, 16}) {
    for (const std::size_t n : {std::size_t{160}, std::size_t{16'000}}) {
      const auto codec = spar::model_of<float>(spar::storage::as_bfloat16{}, {});
      const spar::network_model model{.alpha = 2.3e-5, .beta = 8e-9, .gamma_dense = 0, .alpha_shared = 2e-5};
      const spar::call_shape shape{ranks, static_cast<double>(n), static_cast<double>(n), 4, 4};
      const spar::codec_model free{codec.value_bytes, 0};
      for (const kind which : {two_shot, one_shot}) {
        auto x = random_vectors(ranks, n, 3);
        std::vector<spar::statistics> cost(x.size());
        spar::simulator simulator(ranks, {.latency = 2e-5, .bandwidth = 1.25e8, .overhead = 3e-6});
        simulator.run(program{which, named("bf16"), 32768, &x, nullptr, &cost});
        const double expected =
            which == two_shot ? spar::seconds_two_shot(model, shape, free) : spar::seconds_one_shot(model, shape, free);
        EXPECT_NEAR(simulator.time() / expected, 1, 0.02) << which << ", P = " << ranks << ", n = " << n;
      }
    }
  }
}

/// Averages many calls, each with other random roundings, at values that lie between two levels.
TEST(compressed_allreduce, stochastic_rounding_has_no_bias_on_any_way) {
  constexpr int calls = 600;
  for (const kind which : kinds) {
    for (const spar::rank_t ranks : {3, 4, 6}) {
      // Rank 0 contributes half of the first level, and every rank the largest value 7, which sets the scale.
      const auto p = static_cast<std::size_t>(ranks);
      constexpr std::size_t n = 48;
      vectors x(p, std::vector<float>(n));
      for (std::size_t r = 0; r < p; ++r) {
        for (std::size_t i = 0; i < n; ++i) x[r][i] = i % 8 == 0 ? 7.0F : r == 0 ? 0.5F : 0.0F;
      }
      const spar::flex_plan plan(uneven_hosts(ranks), n);
      vectors sums(1, std::vector<float>(n));
      run_sim(ranks, repeated{which, calls, &x, &plan, &sums[0]});
      double mean = 0;
      std::size_t between = 0;
      for (std::size_t i = 0; i < n; ++i) {
        if (i % 8 == 0) continue;
        mean += static_cast<double>(sums[0][i]) / calls;
        ++between;
      }
      // The error of one value is about P times a level; the error of the mean is that divided by the square root of
      // the number of samples.
      const double deviation = ranks / std::sqrt(static_cast<double>(between * calls));
      EXPECT_NEAR(mean / static_cast<double>(between), 0.5, 4 * deviation) << which << ", P = " << ranks;
    }
  }
}

/// Typical errors; the bound that holds for all values is many times larger.
TEST(compressed_allreduce, errors_are_small_in_the_mean) {
  for (const char* codec : codecs()) {
    for (const kind which : kinds) {
      for (const spar::rank_t ranks : {2, 5, 8}) {
        std::mt19937_64 random(9);
        std::normal_distribution<float> normal;
        vectors x(static_cast<std::size_t>(ranks), std::vector<float>(4096));
        for (auto& one : x)
          for (float& v : one) v = normal(random);
        const auto got = reduced(mode::threads, which, codec, x);
        double off = 0, all = 0;
        for (std::size_t i = 0; i < 4096; ++i) {
          double sum = 0;
          for (const auto& one : x) sum += static_cast<double>(one[i]);
          off += (sum - static_cast<double>(got.x[0][i])) * (sum - static_cast<double>(got.x[0][i]));
          all += sum * sum;
        }
        const std::string name = codec;
        const double usual = name == "qsgd:4"    ? 0.45
                             : name == "zfp:8"   ? 0.2
                             : name == "mx:e4m3" ? 0.1
                             : name == "qsgd:8"  ? 0.03
                                                 : 0.01;
        EXPECT_LT(std::sqrt(off / all), usual) << codec << ", " << which << ", P = " << ranks;
      }
    }
  }
}

TEST(compressed_allreduce, a_piece_may_be_longer_than_any_vector) {
  const auto x = random_vectors(3, 1000, 4);
  for (const kind which : {ring, doubling, two_shot, one_shot}) {
    const auto whole = reduced(mode::threads, which, "bf16", x);
    EXPECT_TRUE(same(reduced(mode::threads, which, "bf16", x, ~std::uint64_t{0}).x[0], whole.x[0]));
  }
}

/// The reported choice is the algorithm that runs, and the fastest in the simulator.
struct chosen_program {
  vectors* x;
  std::vector<spar::statistics>* cost;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending =
        spar::start_allreduce(net, std::span((*x)[rank]), spar::compose(spar::storage::qsgd<8>{}, spar::cheapest{}));
    co_await pending;
    (*cost)[rank] = pending.statistics();
  }
};

TEST(compression_choice, is_what_runs) {
  for (const bool slow : {true, false}) {
    spar::simulator_options options;
    options.bandwidth = slow ? 1e7 : 1e12;
    options.compute = 1e-10;
    auto x = random_vectors(4, 20000, 1);
    std::vector<spar::statistics> cost(4);
    run_sim(4, chosen_program{&x, &cost}, options);
    EXPECT_EQ(cost[0].compressions > 0, slow);
  }
}

} // namespace
} // namespace spar_test
