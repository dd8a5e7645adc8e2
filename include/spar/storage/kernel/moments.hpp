// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The mean and the standard deviation of a vector, from sums whose order a device can keep.
#pragma once

#include <spar/storage/kernel/magnitude.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::kernel {

/// The number, the sum and the sum of the squares of finite values.
struct moments {
  std::uint64_t count = 0;
  double sum = 0, squares = 0;

  [[nodiscard]] double mean() const noexcept { return count == 0 ? 0 : sum / static_cast<double>(count); }
  /// The standard deviation of the values, not of a population of which they are a sample.
  [[nodiscard]] double deviation() const noexcept {
    const double variance = count == 0 ? 0 : squares / static_cast<double>(count) - mean() * mean();
    return __builtin_sqrt(variance > 0 ? variance : 0);
  }
};

namespace detail {

/// Sums have this order: `lanes` sums of a block, each of every `lanes`-th element in ascending order, are added in
/// ascending order to those of lane 0. The sums of blocks are the elements of the next level, until one is left.
inline constexpr std::size_t moments_block = 1024, moments_lanes = 8;

template <class T>
SPAR_HOST_DEVICE bool is_finite_value(T x) {
  if constexpr (is_floating<T>)
    return magnitude_of(x) < magnitude_of(static_cast<T>(__builtin_inf()));
  else
    return true;
}

/// The sums of the lanes of a block.
struct moments_of_lanes {
  double sum[moments_lanes] = {}, squares[moments_lanes] = {}, count[moments_lanes] = {};

  [[nodiscard]] moments together() const noexcept {
    moments all{static_cast<std::uint64_t>(count[0]), sum[0], squares[0]};
    for (std::size_t l = 1; l < moments_lanes; ++l)
      all.sum += sum[l], all.squares += squares[l], all.count += static_cast<std::uint64_t>(count[l]);
    return all;
  }
};

template <class T>
[[gnu::noinline]] moments moments_of_block(const T* x, std::size_t n) noexcept {
  moments_of_lanes lanes;
  for (std::size_t e = 0; e < n; ++e) {
    const bool finite = is_finite_value(x[e]);
    const double value = finite ? static_cast<double>(x[e]) : 0;
    lanes.sum[e % moments_lanes] += value;
    lanes.squares[e % moments_lanes] += value * value;
    lanes.count[e % moments_lanes] += finite ? 1 : 0;
  }
  return lanes.together();
}

/// The elements of a block of a higher level.
class moments_level {
 public:
  /// Adds an element. Returns whether the block is full.
  bool add(const moments& element) noexcept {
    const std::size_t lane = size_++ % moments_lanes;
    lanes_.sum[lane] += element.sum;
    lanes_.squares[lane] += element.squares;
    lanes_.count[lane] += static_cast<double>(element.count);
    return size_ == moments_block;
  }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// Returns the sums, and begins the next block.
  [[nodiscard]] moments take() noexcept {
    const moments all = lanes_.together();
    *this = {};
    return all;
  }

 private:
  moments_of_lanes lanes_;
  std::size_t size_ = 0;
};

} // namespace detail

/// Returns the moments of `x`, in double precision. The result does not depend on the processor, unless the compiler
/// uses fused multiply-add.
template <ranked T>
moments moments_of(std::span<const T> x) noexcept {
  constexpr std::size_t most = 5; // levels: more than 2^50 values need a sixth
  detail::moments_level levels[most];
  for (std::size_t e = 0; e < x.size(); e += detail::moments_block) {
    const std::size_t rest = x.size() - e;
    moments element =
        detail::moments_of_block(x.data() + e, rest < detail::moments_block ? rest : detail::moments_block);
    for (std::size_t l = 0; l + 1 < most && levels[l].add(element); ++l) element = levels[l].take();
  }
  moments all;
  for (detail::moments_level& level : levels) {
    if (all.count == 0 && level.empty()) continue;
    level.add(all);
    all = level.take();
  }
  return all;
}

} // namespace spar::inline v0_1::kernel
