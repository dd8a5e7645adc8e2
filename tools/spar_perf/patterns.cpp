// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Generates the positions and values of entries.
#include "patterns.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <numeric>
#include <utility>

namespace spar::perf {

namespace {

constexpr std::uint64_t run_length = 64;

std::uint64_t mix(std::uint64_t x) { // splitmix64 (Steele, Lea and Flood 2014)
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

double to_unit(std::uint64_t bits) { return static_cast<double>((bits >> 11) + 1) * 0x1p-53; }

/// u^(-1/4), which is at least 1 and has a heavy tail.
double pareto(double u) { return 1 / std::sqrt(std::sqrt(u)); }

class random_bits {
 public:
  random_bits(std::uint64_t seed, std::uint64_t stream) : key_(mix(mix(seed) ^ stream)) {}
  std::uint64_t operator()() { return mix(key_ + 0x9E3779B97F4A7C15U * ++drawn_); }
  /// Uniform in [0, n), with a bias of at most n / 2^64.
  std::uint64_t below(std::uint64_t n) {
    return static_cast<std::uint64_t>(static_cast<__uint128_t>((*this)()) * n >> 64);
  }
  /// Uniform in (0, 1].
  double unit() { return to_unit((*this)()); }
  /// Normally distributed with variance 1 (Box and Muller 1958).
  double normal() { return std::sqrt(-2 * std::log(unit())) * std::cos(2 * std::numbers::pi * unit()); }

 private:
  std::uint64_t key_;
  std::uint64_t drawn_ = 0;
};

/// The first k distinct values that `draw` returns, all below n, in ascending order; repeated values are drawn again.
template <class Draw>
std::vector<std::uint64_t> distinct(std::uint64_t n, std::uint64_t k, Draw draw) {
  std::vector<std::uint64_t> found;
  found.reserve(k);
  if (k > n / 64) { // mark values in a bitmap
    std::vector<std::uint64_t> words(n / 64 + 1);
    for (std::uint64_t got = 0; got < k;) {
      const std::uint64_t x = draw();
      const std::uint64_t bit = std::uint64_t{1} << (x % 64);
      got += (words[x / 64] & bit) == 0 ? 1U : 0U;
      words[x / 64] |= bit;
    }
    for (std::size_t w = 0; w < words.size(); ++w) {
      for (std::uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
        found.push_back(64 * w + static_cast<std::uint64_t>(std::countr_zero(bits)));
      }
    }
    return found;
  }
  while (found.size() < k) {
    for (std::uint64_t due = k - found.size(); due > 0; --due) found.push_back(draw());
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
  }
  return found;
}

/// k distinct values of [0, n), uniformly. If k is more than n / 2, draws the n - k values to leave out.
std::vector<std::uint64_t> uniform_sample(std::uint64_t n, std::uint64_t k, random_bits random) {
  const auto draw = [&] { return random.below(n); };
  if (k <= n / 2) return distinct(n, k, draw);
  const auto left_out = distinct(n, n - k, draw);
  std::vector<std::uint64_t> taken;
  taken.reserve(k);
  auto next = left_out.begin();
  for (std::uint64_t i = 0; i < n; ++i) {
    if (next != left_out.end() && *next == i)
      ++next;
    else
      taken.push_back(i);
  }
  return taken;
}

std::vector<std::uint64_t> clustered_sample(std::uint64_t n, std::uint64_t k, random_bits random) {
  const std::uint64_t runs = (k + run_length - 1) / run_length;
  std::vector<std::uint64_t> taken;
  taken.reserve(k);
  if (runs > n / run_length) { // n has too few whole runs: take the first k indices
    taken.resize(k);
    std::iota(taken.begin(), taken.end(), std::uint64_t{0});
    return taken;
  }
  for (const std::uint64_t run : uniform_sample(n / run_length, runs, random)) {
    const std::uint64_t length = std::min(run_length, k - taken.size());
    for (std::uint64_t i = 0; i < length; ++i) taken.push_back(run * run_length + i);
  }
  return taken;
}

/// A bijection of [0, n): a bijection of the next power of two, repeated until the value is below n.
class shuffled {
 public:
  shuffled(std::uint64_t n, std::uint64_t seed) : n_(n), bits_(std::max(1, static_cast<int>(std::bit_width(n - 1)))) {
    random_bits random(seed, 0x5A17F);
    for (auto& factor : factors_) factor = random() | 1;
  }
  std::uint64_t operator()(std::uint64_t x) const {
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits_);
    do {
      for (const std::uint64_t factor : factors_) {
        x = ((x + factor) * factor) & mask;
        x ^= x >> ((bits_ + 1) / 2);
      }
    } while (x >= n_);
    return x;
  }

 private:
  std::uint64_t n_;
  int bits_;
  std::uint64_t factors_[3]{};
};

std::vector<std::uint64_t> zipf_sample(std::uint64_t n, std::uint64_t k, const shuffled& index_at, random_bits random) {
  if (k <= n / 16) {
    // Draws rank j of the Zipf distribution with probability log(1 + 1 / j) / log(n + 1), which falls like 1 / j.
    const double range = std::log(static_cast<double>(n) + 1);
    return distinct(n, k, [&] {
      const auto place = static_cast<std::uint64_t>(std::exp(random.unit() * range));
      return index_at(std::clamp<std::uint64_t>(place, 1, n) - 1);
    });
  }
  // The same distribution without rejection: the k smallest of exponentially distributed times with these rates
  // (Efraimidis and Spirakis 2006).
  std::vector<std::pair<double, std::uint64_t>> times(n);
  for (std::uint64_t j = 0; j < n; ++j) {
    times[j] = {-std::log(random.unit()) / std::log1p(1 / static_cast<double>(j + 1)), j};
  }
  if (k < n) std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(k), times.end());
  std::vector<std::uint64_t> taken(k);
  for (std::uint64_t e = 0; e < k; ++e) taken[e] = index_at(times[e].second);
  std::sort(taken.begin(), taken.end());
  return taken;
}

/// The value of pattern drift, by the random bits of the index and of the noise.
double drifting_value(std::uint64_t shared, std::uint64_t noise, int step) {
  constexpr std::uint64_t period = 256; // period of the signal, in steps
  const auto tail = [](std::uint64_t bits) { return pareto(to_unit(bits)) - 1; };
  const std::uint64_t phase = (shared + static_cast<std::uint64_t>(step)) % period;
  const double up_and_down = std::abs(static_cast<double>(phase) - period / 2.0) / (period / 4.0) - 1; // -1 to 1
  return up_and_down * tail(shared) + (noise % 2 == 0 ? tail(noise) : -tail(noise));
}

/// The value of a pattern with heavy tails at an index that all ranks share with probability `together`, that a rank
/// has for itself with probability `alone`, and that is 0 otherwise.
double heavy_value(double together, double alone, random_bits shared, random_bits own) {
  const auto signed_pareto = [](random_bits& random) { return pareto(random.unit()) * (random() % 2 == 0 ? 1 : -1); };
  if (shared.unit() <= together) return signed_pareto(shared) * std::max(1 + own.normal() / 2, 0.3);
  return own.unit() <= alone / (1 - together) ? signed_pareto(own) : 0;
}

} // namespace

std::vector<std::uint64_t> positions(const workload& w, int rank) {
  if (w.k == 0) return {};
  const auto r = static_cast<std::uint64_t>(rank);
  const auto p = static_cast<std::uint64_t>(w.ranks);
  const random_bits own(w.seed, r + 1);
  switch (w.pattern) {
  case pattern_kind::uniform:
    return uniform_sample(w.n, w.k, own);
  case pattern_kind::clustered:
    return clustered_sample(w.n, w.k, own);
  case pattern_kind::identical:
    return uniform_sample(w.n, w.k, random_bits(w.seed, 0));
  case pattern_kind::disjoint: {
    auto taken = uniform_sample((w.n - r + p - 1) / p, w.k, own);
    for (auto& i : taken) i = i * p + r;
    return taken;
  }
  case pattern_kind::zipf:
    return zipf_sample(w.n, w.k, shuffled(w.n, w.seed), own);
  default:
    return {}; // a dense vector
  }
}

int value_at(const workload& w, int rank, std::uint64_t index) {
  const std::uint64_t key = mix(w.seed ^ static_cast<std::uint64_t>(rank) << 40);
  return 1 + static_cast<int>(mix(key + index) % largest_value);
}

void gradient(const workload& w, int rank, int step, std::uint64_t first, std::span<double> values) {
  const std::uint64_t common = mix(w.seed);
  const auto of_step = [&](int stream) {
    return mix(mix(common ^ static_cast<std::uint64_t>(stream) << 32) ^ static_cast<unsigned>(step));
  };
  const std::uint64_t shared = of_step(0), own = of_step(rank + 1);
  const double density = static_cast<double>(w.k) / static_cast<double>(w.n);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t at = first + i;
    const auto heavy = [&](double overlap) {
      return heavy_value(overlap * density, (1 - overlap) * density, random_bits(shared, at), random_bits(own, at));
    };
    switch (w.pattern) {
    case pattern_kind::gaussian:
      values[i] = random_bits(own, at).normal();
      break;
    case pattern_kind::heavy_0:
      values[i] = heavy(0);
      break;
    case pattern_kind::heavy_50:
      values[i] = heavy(0.5);
      break;
    case pattern_kind::heavy_100:
      values[i] = heavy(1);
      break;
    default:
      values[i] = drifting_value(mix(common + at), mix(own + at), step);
    }
  }
}

} // namespace spar::perf
