// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The exact sum of what all ranks contribute, computed without the library, and the comparison of a result with it.
#pragma once

#include "patterns.hpp"

#include <spar/storage/stream.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace perf {

/// Whole numbers, so exact. Where few indices occur only those are kept.
class exact_sums {
 public:
  /// Generates every rank's contribution again.
  explicit exact_sums(const workload& w);

  [[nodiscard]] std::int32_t largest() const noexcept { return largest_; }

  /// The largest |result - sum| over the n indices; infinite where the result is malformed or has a NaN.
  template <class T, class Index>
  [[nodiscard]] double max_error(const spar::stream_view<T, Index>& result) const;

 private:
  /// Calls f(index, sum) for the sums, in order, and f(n, 0).
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
  std::vector<std::uint64_t> indices_; // empty where sums_ holds all n
  std::vector<std::int32_t> sums_;
  std::int32_t largest_ = 0;
};

template <class T, class Index>
double exact_sums::max_error(const spar::stream_view<T, Index>& result) const {
  constexpr double malformed = std::numeric_limits<double>::infinity();
  if (result.dimension() != n_ || (result.is_dense() && (result.first() != 0 || result.count() != n_)))
    return malformed;
  double worst = 0;
  cursor next(*this);
  std::uint64_t unseen = 0; // the smallest index that may still come
  bool broken = false;
  const auto wrong_by = [&](double error) { worst = error <= worst ? worst : error == error ? error : malformed; };
  result.for_each([&](Index index, T value) {
    broken = broken || index < unseen || index >= n_;
    if (broken) return;
    unseen = std::uint64_t{index} + 1;
    for (; next.index() < index; next.advance()) wrong_by(next.sum()); // missing in the result
    std::int32_t due = 0;
    if (next.index() == index) {
      due = next.sum();
      next.advance();
    }
    if (value != static_cast<T>(due)) wrong_by(std::abs(static_cast<double>(value) - due));
  });
  for (; next.index() < n_; next.advance()) wrong_by(next.sum());
  return broken ? malformed : worst;
}

/// A hash of a result's form and bits.
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

} // namespace perf
