// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The exact sum of all ranks' contributions, computed without spar, and the comparison of results with that sum.
#pragma once

#include "patterns.hpp"

#include <spar/core/index_range.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

namespace spar::perf {

/// The errors of a result: the largest magnitude, the sum, and the sum of the squares.
struct errors {
  double largest = 0, sum = 0, squares = 0;

  /// A NaN counts as an infinite error.
  void add(double error) {
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(error));
    sum += error;
    squares += error * error;
  }
};

/// The sums of all contributions, which are whole numbers and hence exact. If few indices have entries, only these
/// indices are stored.
class exact_sums {
 public:
  /// Generates the contributions of all ranks.
  explicit exact_sums(const workload& w);

  [[nodiscard]] std::int32_t largest() const noexcept { return largest_; }

  /// Adds the sums at the indices [first, first + out.size()) to `out`.
  void add_to(std::uint64_t first, std::span<double> out) const;

  /// The differences result - sum at all n indices; infinite if the result is malformed or contains a NaN.
  template <class T, class Index>
  [[nodiscard]] errors errors_of(const spar::stream_view<T, Index>& result) const;

 private:
  /// Iterates over the sums in ascending order of their indices; `index()` is n at the end.
  class cursor {
   public:
    explicit cursor(const exact_sums& of) noexcept : of_(&of) {}
    [[nodiscard]] std::uint64_t index() const noexcept {
      if (at_ == of_->sums_.size()) return of_->n_;
      return of_->indices_.empty() ? at_ : of_->indices_[at_];
    }
    [[nodiscard]] std::int32_t sum() const noexcept { return of_->sums_[at_]; }
    void advance() noexcept { ++at_; }

   private:
    const exact_sums* of_;
    std::size_t at_ = 0;
  };

  std::uint64_t n_;
  std::vector<std::uint64_t> indices_; // empty if sums_ holds all n sums
  std::vector<std::int32_t> sums_;
  std::int32_t largest_ = 0;
};

template <class T, class Index>
errors exact_sums::errors_of(const spar::stream_view<T, Index>& result) const {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  constexpr errors malformed{infinite, infinite, infinite};
  if (result.dimension() != n_ || (result.is_dense() && (result.first() != 0 || result.count() != n_)))
    return malformed;
  errors found;
  cursor next(*this);
  std::uint64_t unseen = 0; // the smallest index that the next entry may have
  bool broken = false;
  result.for_each([&](Index index, T value) {
    broken = broken || index < unseen || index >= n_;
    if (broken) return;
    unseen = std::uint64_t{index} + 1;
    for (; next.index() < index; next.advance()) found.add(-next.sum()); // the result lacks these sums
    std::int32_t due = 0;
    if (next.index() == index) {
      due = next.sum();
      next.advance();
    }
    if (value != static_cast<T>(due)) found.add(static_cast<double>(value) - due);
  });
  for (; next.index() < n_; next.advance()) found.add(-next.sum());
  return broken ? malformed : found;
}

/// For a range of indices, the sum of all contributions minus the sum of all results, over all calls so far: this must
/// equal the sum of all ranks' residuals. Computed in double precision.
class balance {
 public:
  /// `sums`: the sum of the contributions to each call; null for dense patterns, whose contributions change from
  /// call to call.
  balance(const workload& w, const exact_sums* sums, spar::index_range range)
      : w_(w), sums_(sums), range_(range), open_(range.size()) {}

  template <class T, class Index>
  void add_call(int step, const spar::stream_view<T, Index>& result) {
    if (sums_ != nullptr) {
      sums_->add_to(range_.begin, open_);
    } else {
      std::vector<double> values(open_.size());
      for (int r = 0; r < w_.ranks; ++r) {
        gradient(w_, r, step, range_.begin, values);
        for (std::size_t i = 0; i < values.size(); ++i) open_[i] += static_cast<double>(static_cast<T>(values[i]));
      }
    }
    take(result);
  }
  /// Subtracts a result without adding contributions: the result of `drain` after the last call.
  template <class T, class Index>
  void take(const spar::stream_view<T, Index>& result) {
    result.slice(range_.begin, range_.end).for_each([&](Index index, T value) {
      open_[index - range_.begin] -= static_cast<double>(value);
    });
  }

  /// The differences of `residuals`, the sum of all ranks' residuals in the range; infinite for NaN.
  [[nodiscard]] errors errors_of(std::span<const double> residuals) const {
    errors found;
    for (std::size_t i = 0; i < open_.size(); ++i) found.add(residuals[i] - open_[i]);
    return found;
  }

 private:
  workload w_;
  const exact_sums* sums_;
  spar::index_range range_;
  std::vector<double> open_;
};

/// A hash of a result's representation (dense or sparse) and bits.
template <class T, class Index>
std::uint64_t hash_of(const spar::stream_view<T, Index>& result) {
  std::uint64_t hash = result.is_dense() ? 1 : 2;
  const auto add = [&](const void* from, std::size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(from);
    for (std::size_t at = 0; at < bytes; at += sizeof(hash)) {
      std::uint64_t word = 0;
      std::memcpy(&word, p + at, std::min(sizeof(word), bytes - at));
      hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
  };
  add(result.indices().data(), result.indices().size_bytes());
  add(result.values().data(), result.values().size_bytes());
  return hash;
}

} // namespace spar::perf
