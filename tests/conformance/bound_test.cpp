// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums in code: the bits of a definition by exact arithmetic, for any schedule, tree, order of ranks and size of
// pieces; the bound on the error; special values; overflow; exact counts.
#include "support/compositions.hpp"
#include "support/ranks.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/tolerance.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace spar_test {
namespace {

using spar::storage::bound;
template <class T>
using vectors = std::vector<std::vector<T>>;

enum kind { ring, doubling, halving, split, flexreduce, shot, chosen, chosen_on_tree, kinds };

template <class T>
struct call_of {
  kind which;
  bound store;
  std::uint64_t piece;
  const spar::tree_plans* plans;
  vectors<T>* x;
  std::vector<spar::statistics>* cost;

  template <class Net>
  auto begin(Net& net, std::span<T> mine) const {
    const auto with = [&](auto algorithm) { return spar::start_allreduce(net, mine, std::move(algorithm)); };
    switch (which) {
    case ring:
      return with(spar::compose(store, spar::ring{.piece = piece}));
    case doubling:
      return with(spar::compose(store, spar::recursive_doubling{.piece = piece}));
    case halving:
      return with(spar::compose(store, spar::rabenseifner{}));
    case split:
      return with(spar::compose(store, spar::dsar_split{}));
    case flexreduce:
      return with(spar::flexreduce(*plans, store));
    case shot:
      return with(spar::compose(store, spar::two_shot{.piece = piece}));
    case chosen_on_tree:
      return with(spar::compose(store, spar::on_tree(*plans), spar::cheapest{}));
    default:
      return with(spar::compose(store, spar::cheapest{}));
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

/// A tree of hosts that alternate between two and three ranks.
spar::tree uneven_hosts(spar::rank_t ranks) {
  std::vector<spar::rank_t> host_of;
  for (spar::rank_t host = 0; static_cast<spar::rank_t>(host_of.size()) < ranks; ++host) {
    for (int i = 0; i < 2 + host % 2 && static_cast<spar::rank_t>(host_of.size()) < ranks; ++i) host_of.push_back(host);
  }
  return spar::tree_of_hosts(host_of);
}

template <class T>
struct outcome {
  vectors<T> x;
  std::vector<spar::statistics> cost;
};
template <class T>
outcome<T> reduced(mode where, kind which, const bound& store, vectors<T> x, std::uint64_t piece = 32768) {
  const auto ranks = static_cast<spar::rank_t>(x.size());
  const spar::tree_plans plans(uneven_hosts(ranks));
  outcome<T> all{std::move(x), std::vector<spar::statistics>(static_cast<std::size_t>(ranks))};
  run(where, ranks, call_of<T>{which, store, piece, &plans, &all.x, &all.cost});
  return all;
}

template <class T>
std::vector<std::uint64_t> bits_of(const std::vector<T>& x) {
  std::vector<std::uint64_t> bits;
  for (const T value : x)
    bits.push_back(std::bit_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(value));
  return bits;
}

/// The exponent of the step: the largest power of two that is at most twice the error, and normal.
template <class T>
int exponent_of_step(const bound& store, const vectors<T>& x) {
  double error = store.error;
  if (store.relative > 0) {
    double largest = 0;
    for (const auto& one : x)
      for (const T value : one)
        if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
    error = store.relative * largest;
  }
  const int least = std::numeric_limits<T>::min_exponent - 1;
  return error == 0 ? least : std::clamp(std::ilogb(error) + 1, least, -least);
}

/// The definition.
template <class T>
std::vector<T> defined(const bound& store, const vectors<T>& x) {
  const int exponent = exponent_of_step(store, x);
  std::vector<T> sum(x[0].size());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    __int128 codes = 0;
    bool nan = false, above = false, below = false;
    for (const auto& one : x) {
      nan = nan || std::isnan(one[i]);
      above = above || one[i] == std::numeric_limits<T>::infinity();
      below = below || one[i] == -std::numeric_limits<T>::infinity();
      if (std::isfinite(one[i])) codes += std::llroundl(std::ldexp(static_cast<long double>(one[i]), -exponent));
    }
    sum[i] = nan || (above && below) ? std::numeric_limits<T>::quiet_NaN()
             : above                 ? std::numeric_limits<T>::infinity()
             : below                 ? -std::numeric_limits<T>::infinity()
                                     : static_cast<T>(std::ldexp(static_cast<long double>(codes), exponent));
  }
  return sum;
}

/// Values of all magnitudes up to `most`: ties, subnormals, zeros of both signs, sums that cancel, runs, NaN,
/// infinities.
template <class T>
vectors<T> adversarial(spar::rank_t ranks, std::size_t n, double most, bool special, std::mt19937_64& random) {
  vectors<T> x(static_cast<std::size_t>(ranks), std::vector<T>(n));
  const auto kind_of_block = random();
  for (auto& one : x) {
    const auto own = random();
    for (std::size_t i = 0; i < n; ++i) {
      const double share = static_cast<double>(random() >> 11) * 0x1p-53, sign = random() % 2 == 0 ? 1 : -1;
      double value = 0;
      switch ((kind_of_block >> i / 50 % 20 * 3 ^ own >> 60) % 8) {
      case 0:
        break;
      case 1:
        value = sign * most;
        break;
      case 2:
        value = sign * std::ldexp(most, -static_cast<int>(random() % 40));
        break;
      case 3:
        value = sign * most * (static_cast<double>(random() % 64) + 0.5) / 64;
        break;
      case 4:
        value = &one == &x[0] ? most * share : -most * share;
        break;
      case 5:
        value = std::sin(0.01 * static_cast<double>(i)) * most;
        break;
      case 6:
        value = sign * static_cast<double>(std::numeric_limits<T>::denorm_min());
        break;
      default:
        value = sign * share * most;
      }
      one[i] = static_cast<T>(value);
      if (random() % 16 == 0) one[i] = -T{0};
      if (special && random() % 8 == 0) {
        const T infinity = std::numeric_limits<T>::infinity(),
                some[] = {infinity, -infinity, -std::numeric_limits<T>::quiet_NaN()};
        one[i] = some[random() % 3];
      }
    }
  }
  return x;
}

template <class T>
void expect_defined_bits(mode where, kind which, const bound& store, const vectors<T>& x, std::uint64_t piece) {
  SCOPED_TRACE(testing::Message() << where << ", algorithm " << which << ", error " << store.error << ", relative "
                                  << store.relative << ", P = " << x.size() << ", n = " << x[0].size() << ", pieces of "
                                  << piece);
  const auto expected = bits_of(defined(store, x));
  const auto got = reduced(where, which, store, x, piece);
  for (const auto& one : got.x) ASSERT_EQ(bits_of(one), expected);
}

template <class T>
void expect_defined_bits_everywhere(std::initializer_list<bound> stores) {
  std::mt19937_64 random(1);
  for (spar::rank_t ranks = 1; ranks <= 17; ++ranks) {
    for (const std::size_t n : {0U, 1U, 130U, 1500U}) {
      for (const bound& store : stores) {
        auto x = adversarial<T>(ranks, n, 100, random() % 2 == 0, random);
        for (int which = ring; which < kinds; ++which) {
          for (const mode where : all_modes) {
            if (!runs_case(24, ranks, n / 100, which, position_of(where), random() % 5)) continue;
            std::shuffle(x.begin(), x.end(), random); // another order of ranks
            expect_defined_bits(where, static_cast<kind>(which), store, x, which % 2 == 0 ? 100 : 32768);
          }
        }
      }
    }
  }
}

TEST(conformance_bound, gives_the_defined_bits_for_any_schedule_and_order_of_ranks) {
  expect_defined_bits_everywhere<float>({{.error = 1e-2}, {.error = 1e-9}, {.relative = 1e-4}});
  expect_defined_bits_everywhere<double>({{.error = 1e-3}, {.error = 1e-13}, {.relative = 1e-12}});
}

/// One call after the other on the same ranks.
template <class T>
struct many_calls {
  const std::vector<bound>* stores;
  const std::vector<vectors<T>>* inputs;
  std::vector<vectors<T>>* results;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    for (std::size_t c = 0; c < inputs->size(); ++c) {
      auto& mine = (*results)[c][rank] = (*inputs)[c][rank];
      auto pending = spar::start_allreduce(net, std::span(mine), spar::compose((*stores)[c], spar::ring{}));
      co_await pending;
    }
  }
};

/// Each call keeps the bound.
template <class T>
void expect_bounds(int calls) {
  std::mt19937_64 random(2);
  for (int first = 0; first < calls; first += 500) {
    const auto ranks = static_cast<spar::rank_t>(1 + random() % 5);
    std::vector<bound> stores;
    std::vector<vectors<T>> inputs;
    for (int c = 0; c < 500; ++c) {
      const double most =
          std::ldexp(1 + static_cast<double>(random() % 1000) / 1000, static_cast<int>(random() % 60) - 30);
      inputs.push_back(adversarial<T>(ranks, 1 + random() % 60, most, false, random));
      const double share =
          std::ldexp(1 + static_cast<double>(random() % 1000) / 1000, -static_cast<int>(random() % 58) - 1);
      stores.push_back(random() % 3 == 0 ? bound{.relative = share} : bound{.error = share * most});
    }
    std::vector<vectors<T>> results(inputs.size(), vectors<T>(static_cast<std::size_t>(ranks)));
    run_threads(ranks, many_calls<T>{&stores, &inputs, &results});
    for (std::size_t c = 0; c < inputs.size(); ++c) {
      long double most = 0;
      for (const auto& one : inputs[c])
        for (const T value : one) most = std::max(most, std::abs(static_cast<long double>(value)));
      const long double error = stores[c].relative > 0 ? stores[c].relative * most : stores[c].error;
      for (std::size_t i = 0; i < inputs[c][0].size(); ++i) {
        long double sum = 0;
        for (const auto& one : inputs[c]) sum += static_cast<long double>(one[i]);
        const auto got = static_cast<long double>(results[c][0][i]);
        const long double rounding = (std::abs(sum) + ranks * error) * std::numeric_limits<T>::epsilon() / 2;
        const long double least = stores[c].relative > 0 ? std::numeric_limits<T>::min() / 2 : 0; // as documented
        ASSERT_LE(std::abs(got - sum), ranks * std::max(error, least) + rounding)
            << "P = " << ranks << ", error " << stores[c].error << ", relative " << stores[c].relative;
        const double stated =
            spar::error_bound<T>(spar::compose(stores[c], spar::ring{}), ranks, static_cast<double>(most));
        ASSERT_LE(std::abs(got - sum), static_cast<long double>(stated));
      }
    }
  }
}

TEST(conformance_bound, keeps_the_bound_on_adversarial_vectors) {
  const int calls = is_full() ? 50000 : 2000; // of each type
  expect_bounds<float>(calls);
  expect_bounds<double>(calls);
}

struct expects_error {
  bound store;
  double largest; // on the last rank; all others have 1
  std::string part;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<double> x(10, net.rank() + 1 == net.size() ? largest : 1);
    bool failed = false;
    try {
      auto pending = spar::start_allreduce(net, std::span(x), spar::compose(store, spar::recursive_doubling{}));
      co_await pending;
    } catch (const spar::error& error) {
      failed = true;
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_EQ(failed, !part.empty());
  }
};

TEST(conformance_bound, widens_codes_and_then_ends_in_an_error_on_all_ranks) {
  for (const spar::rank_t ranks : {1, 3, 4}) {
    const double most = 0x1p62 / ranks; // in steps of 1
    for (const mode where : all_modes) {
      run(where, ranks, expects_error{{.error = 0.5}, most * (1 - 0x1p-50), ""});
      for (const double beyond : {most, 1e300}) // every rank knows why
        run(where, ranks, expects_error{{.error = 0.5}, beyond, "in 62 bits; expected a greater error"});
      run(where, ranks, expects_error{{.relative = 1e-10}, 1e300, ""});
    }
  }
  // Around 2^30 - 1, where the codes widen.
  for (const spar::rank_t ranks : {1, 2, 3, 7}) {
    for (const int beyond : {-2, -1, 0, 1}) {
      const double most = std::floor(((1 << 30) - 1) / static_cast<double>(ranks)) + beyond;
      vectors<double> x(static_cast<std::size_t>(ranks), {most, -most, most, -most, most - 0.5, 0, 1});
      expect_defined_bits(mode::sim, ring, {.error = 0.5}, x, 32768);
      expect_defined_bits(mode::sim, halving, {.error = 0.5}, x, 32768);
    }
  }
}

/// Sums that need codes of more than 62 bits, by the composition `by`, between calls that succeed.
template <class Schedule>
struct overflows {
  Schedule by;
  double infinite; // one value of rank 0

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto sum_of = [&](std::vector<double>& x, double error) {
      return spar::start_allreduce(net, std::span(x), spar::compose(bound{.error = error}, by));
    };
    for (int call = 0; call < 3; ++call) {
      std::vector<double> x(10, net.rank() + 1 == net.size() ? 1e300 : 1);
      if (net.rank() == 0) x[7] = infinite;
      const auto before = bits_of(x);
      bool refused = false;
      try {
        auto pending = sum_of(x, 0.5);
        co_await pending;
      } catch (const spar::invalid_argument& error) {
        refused = std::string(error.what()).find("in 62 bits; expected a greater error") != std::string::npos;
      }
      EXPECT_TRUE(refused) << "rank " << net.rank() << " of " << net.size();
      EXPECT_FALSE(net.dead());
      EXPECT_EQ(bits_of(x), before);

      std::vector<double> y(10, 2);
      auto pending = sum_of(y, 0.5);
      co_await pending;
      EXPECT_EQ(y, std::vector<double>(10, 2 * net.size()));
    }
  }
};

template <class Schedule>
void expect_refused_by_all(const Schedule& by) {
  for (const spar::rank_t ranks : {1, 2, 3, 5, 8}) {
    for (const double infinite : {1.0, std::numeric_limits<double>::infinity()}) {
      for (const mode where : all_modes) run(where, ranks, overflows<Schedule>{by, infinite});
      for (std::uint64_t seed = 1; seed <= 10 && has_sim; ++seed)
        run_sim<spar::any_transport>(ranks, overflows<Schedule>{by, infinite}, random_order(seed, seed % 2 == 0));
    }
  }
}

TEST(conformance_bound, all_ranks_refuse_sums_of_more_than_62_bits_and_go_on) {
  expect_refused_by_all(spar::recursive_doubling{});
  expect_refused_by_all(spar::two_shot{});
}

TEST(conformance_bound, refuses_invalid_errors_before_anything_is_sent) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, nan, infinity, 0x1p-1040}) {
    run(mode::sim, 2, expects_error{{.error = bad}, 1, "the error of storage bound is "});
    run(mode::sim, 2, expects_error{{.relative = bad}, 1, "the relative error of storage bound is "});
  }
  run(mode::sim, 2, expects_error{{.relative = 1e-19}, 1, "is 1e-19; expected"});
  run(mode::sim, 2, expects_error{{}, 1, "neither an error nor a relative error"});
  run(mode::sim, 2, expects_error{{.error = 1, .relative = 1}, 1, "expected one of the two"});
  EXPECT_THROW((bound{.error = 0x1p-128}.validate<float>(2)), spar::invalid_argument);
  EXPECT_NO_THROW((bound{.error = 0x1p-127}.validate<float>(2)));
  EXPECT_NO_THROW((bound{.error = 0x1p-1023}.validate<double>(2)));
}

/// The rounding errors of a rank are in its residual, to the last bit.
struct with_feedback {
  const vectors<float>* x;
  vectors<float>* sums;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto& mine = (*x)[static_cast<std::size_t>(net.rank())];
    auto reduce = spar::with_error_feedback<float>(spar::compose(bound{.error = 0.3}, spar::ring{}));
    for (int call = 0; call < 3; ++call) {
      auto pending = reduce.start_reduce(net, std::span<const float>(mine));
      const auto result = co_await std::move(pending);
      (*sums)[static_cast<std::size_t>(net.rank())].assign(result.sum.values().begin(), result.sum.values().end());
      for (std::size_t i = 0; i < mine.size(); ++i) { // steps of 1/2
        const float total = static_cast<float>(call + 1) * mine[i], left = reduce.residual()[i];
        EXPECT_LE(std::abs(left), 0.25F);
        EXPECT_EQ((total - left) * 2, std::round((total - left) * 2));
      }
    }
  }
};

TEST(conformance_bound, keeps_in_the_residual_what_was_rounded) {
  vectors<float> x(3, std::vector<float>(200)), sums(3);
  std::mt19937_64 random(3);
  for (auto& one : x)
    for (float& value : one) value = static_cast<float>(random() % 1000) / 64;
  run(mode::threads, 3, with_feedback{&x, &sums});
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

/// The average, the sum of streams, and unequal errors.
struct others {
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto algorithm = spar::compose(bound{.error = 0.25}, spar::ring{});
    std::vector<float> x{1.2F, -3.3F, 0};
    auto mean = spar::start_allreduce(net, std::span(x), algorithm, spar::average{});
    co_await mean;
    EXPECT_EQ(x, (std::vector<float>{1, -3.5F, 0}));

    const std::vector<std::uint32_t> indices{7};
    const std::vector<float> values{1.2F};
    auto streams = spar::start_allreduce(net, spar::sparse_view(9, indices, values), algorithm);
    const auto sum = co_await std::move(streams);
    EXPECT_TRUE(sum.is_dense());
    EXPECT_EQ(sum.values()[7], static_cast<float>(net.size()));
    EXPECT_EQ(sum.values()[8], 0.0F);
  }
};

TEST(conformance_bound, averages_and_takes_streams) {
  for (const mode where : all_modes) run(where, 3, others{});
}

/// Counts the decodings that add in the same pass.
struct adding : spar::storage::packed {
  std::atomic<int>* additions = nullptr;

  template <spar::element T>
  void decode_and_add(std::span<const std::byte> in, std::span<T> inout) const {
    ++*additions;
    packed::decode_and_add(in, inout);
  }
};
template <class Schedule, class Op>
struct one_sum {
  Schedule by;
  adding store;
  Op op;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<std::int32_t> x(1000, 3);
    auto pending = spar::start_allreduce(net, std::span(x), spar::compose(store, by), op);
    co_await pending;
    EXPECT_EQ(x, std::vector<std::int32_t>(1000, std::is_same_v<Op, spar::average> ? 3 : 12));
  }
};
template <class Schedule>
int additions_of_four_ranks(const Schedule& by) {
  std::atomic<int> sums = 0, averages = 0;
  run(free_modes[0], 4, one_sum<Schedule, spar::sum>{by, {{}, &sums}, {}});
  run(free_modes[0], 4, one_sum<Schedule, spar::average>{by, {{}, &averages}, {}});
  EXPECT_EQ(sums, averages);
  return sums;
}

TEST(conformance_bound, packed_integers_are_decoded_and_added_in_one_pass) {
  EXPECT_EQ(additions_of_four_ranks(spar::ring{}), 4 * 3);
  EXPECT_EQ(additions_of_four_ranks(spar::recursive_doubling{}), 4 * 2);
  EXPECT_EQ(additions_of_four_ranks(spar::two_shot{}), 3 + 3 * 2); // not the values of the first rank, and not its own
  EXPECT_EQ(additions_of_four_ranks(spar::one_shot{}), 4 * 3);
}

/// Decodes a sparse stream as a block of an allgather.
struct decodes_a_sparse_block : spar::algorithm_defaults {
  static constexpr std::string_view name = "decodes_a_sparse_block";

  template <spar::transport Net, class T, class Op>
  spar::task<void> operator()(spar::channel<Net> net, std::span<T> x, Op) const& {
    using stream = spar::sparse_stream<T, std::uint64_t>;
    spar::encoded_parts<Net, spar::storage::packed, T, std::uint64_t> parts(net, 1, 1);
    const spar::index_range all{0, x.size()};
    auto one = stream::sparse(net.memory(), x.size(), 1);
    one.indices()[0] = 3;
    one.values()[0] = 77;
    const spar::storage::packed store;
    co_await parts.encode(store, 0, std::as_const(one).view(), all, spar::residual_view<T>());
    co_await parts.decode_dense(store, 0, all, x);
  }
  template <class... Args>
  void operator()(Args&&...) && = delete;
};

TEST(conformance_bound, a_sparse_block_where_a_dense_one_is_due_is_corrupt) {
  spar::thread_group group(1);
  EXPECT_THROW(group.run([](spar::threads& net) {
    std::vector<std::int64_t> x(8);
    spar::allreduce(net, x, decodes_a_sparse_block{});
  }),
               spar::corrupt_message);
}

TEST(conformance_bound, sends_exactly_the_bytes_of_the_codes) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7, 8}) {
    const auto p = static_cast<std::uint64_t>(ranks);
    const std::uint64_t rounds = ranks == 1 ? 0 : static_cast<std::uint64_t>(std::bit_width(p - 1)); // of the agreement
    const std::size_t block = 1000, n = block * static_cast<std::size_t>(ranks);
    // Zeros: a byte for each 128 values. The agreement on the largest magnitude takes 8 bytes a round.
    const auto zeros = reduced<float>(mode::sim, ring, {.error = 1}, vectors<float>(p, std::vector<float>(n)), 500);
    // Ones of all ranks, in steps of 1: each piece begins with its sum, and has blocks of 2^k rows of 16 bytes.
    const auto ones = reduced<float>(mode::sim, ring, {.error = 0.5}, vectors<float>(p, std::vector<float>(n, 1)), 500);
    for (std::size_t r = 0; r < p; ++r) {
      const spar::statistics& cost = zeros.cost[r];
      EXPECT_EQ(cost.messages_sent, 2 * (p - 1) * 2 + rounds);
      EXPECT_EQ(cost.bytes_sent, 2 * (p - 1) * 2 * 4 + rounds * 8);
      EXPECT_EQ(cost.plain_bytes_sent, 2 * (p - 1) * block * 4 + rounds * 8);
      EXPECT_EQ(cost.compressions, (p > 1 ? p * 2 : 0) + 1);             // and the codes of the contribution
      EXPECT_EQ(cost.decompressions, (p > 1 ? (2 * p - 2) * 2 : 0) + 1); // and the values of the result
      std::uint64_t expected = rounds * 8;
      for (std::uint64_t hop = 0; p > 1 && hop < 2 * p - 2; ++hop) {
        const std::uint64_t sum = std::min(hop + 1, p);
        expected += 2 * (4 + 16 * static_cast<std::uint64_t>(std::bit_width(2 * sum)));
      }
      EXPECT_EQ(ones.cost[r].bytes_sent, expected);
    }
  }
}

} // namespace
} // namespace spar_test
