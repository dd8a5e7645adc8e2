// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage `bound`: sums of codes, with a bound on the error of each contribution (hZCCL: Huang et al. 2024).
#pragma once

#include <spar/collective/basic/largest.hpp>
#include <spar/core/check_number.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/op.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/kernel/quantise.hpp>
#include <spar/storage/packed.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/storage.hpp>
#include <spar/workspace/workspace.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

namespace storage {

/// Rounds each contribution once, at the start of the call, to a multiple of a step: the largest power of two that is
/// at most twice the error. The schedule then sums integers, in messages that `packed` encodes without loss. So the
/// result differs from the exact sum by at most P times the error, plus one rounding to the type of the values, and has
/// the same bits for any schedule, tree, order of ranks and size of pieces. Contributions are rounded at P = 1, too.
///
/// Set exactly one of `error` and `relative`. Encodes float and double, for the operations `sum` and `average`.
///
/// A result is NaN if a contribution is NaN or if infinities of both signs are added, infinite if contributions are
/// infinite with one sign, and +0 if it is zero. It may also be infinite if the exact sum is within P times the error
/// of the largest number of the type. With m steps in the largest magnitude of all ranks, the integers have 32 bits if
/// P (m + 1) is at most 2^30 - 1, because rounding may add up to a step, and else 64 bits. If 2^62 - 1 is too small,
/// the call throws `invalid_argument` on all ranks, which leaves the communicator usable and the values as they were,
/// except for the bits of NaN.
struct bound {
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "bound";
  using codes_type = packed; ///< the codec of the integers

  /// The largest change of a value, a positive number; 0 if `relative` is set. Twice the error must be a normal number
  /// of the type of the values.
  double error = 0;
  /// The same, relative to the largest finite magnitude of all ranks' values, on which the ranks agree first; 0 if
  /// `error` is set. For magnitudes so small that twice the error is no normal number, the error is half of the
  /// smallest normal number.
  double relative = 0;

  void options(auto&& f) const { f("error", error), f("relative", relative); }
  /// Throws `invalid_argument` unless exactly one of `error` and `relative` is a positive, finite number, and it is not
  /// too small for values of T on `ranks` ranks.
  template <element T>
  void validate(rank_t ranks) const {
    if (error == 0 && relative == 0)
      raise<invalid_argument>({"the storage bound has neither an error nor a relative error; expected one of the two"});
    if (error != 0 && relative != 0) {
      raise<invalid_argument>({"the storage bound has an error, ", error, ", and a relative error, ", relative,
                               "; expected one of the two"});
    }
    constexpr auto least = static_cast<double>(std::numeric_limits<T>::min()) / 2;
    if (error != 0)
      detail::check_number(error, {least, detail::valid::greatest, text<T>}, "the error of storage bound");
    const double of_all = static_cast<double>(ranks) * 0x1p-61;
    if (relative != 0 && !detail::number_range{of_all, detail::valid::greatest, ""}.contains(relative)) {
      raise<invalid_argument>({"the relative error of storage bound is ", relative,
                               "; expected a finite number of at least ", of_all,
                               ", so that codes of 62 bits hold a sum of ", ranks, " ranks"});
    }
  }
  /// The largest change of a value, relative to the largest magnitude of all ranks.
  template <element T>
  [[nodiscard]] double relative_error() const noexcept {
    return relative;
  }
  /// The largest change of a value, in addition to `relative_error`.
  template <element T>
  [[nodiscard]] double absolute_error() const noexcept {
    return relative != 0 ? static_cast<double>(std::numeric_limits<T>::min()) / 2 : error;
  }

 private:
  template <class T>
  static constexpr const char* text =
      std::same_as<T, float> ? "a finite number of at least 2^-127, half the smallest normal float"
                             : "a finite number of at least 2^-1023, half the smallest normal double";
};

} // namespace storage

namespace detail {

/// How all ranks of a call make codes of values of T: as multiples of `step`, a power of two.
template <class T>
struct code_steps {
  static constexpr std::uint64_t narrow = (std::uint64_t{1} << 30) - 1, wide = (std::uint64_t{1} << 62) - 1;

  T step;
  std::uint64_t largest; ///< the largest magnitude of a sum of codes, or more than `wide`

  /// The steps of `store` for contributions of `ranks` ranks, none of which is greater than `magnitude`.
  code_steps(const storage::bound& store, T magnitude, rank_t ranks) noexcept {
    const double error = store.relative != 0 ? store.relative * static_cast<double>(magnitude) : store.error;
    step = power_below(2 * error);
    const double steps = static_cast<double>(magnitude) / static_cast<double>(step); // exact, or too many
    const double all = (steps + 1) * ranks; // the rounding of a contribution adds less than a step
    largest = is_at_most(all, 0x1p62) ? static_cast<std::uint64_t>(all) : wide + 1;
  }

 private:
  /// The largest power of two that is at most x, and normal like its inverse.
  static T power_below(double x) noexcept {
    using limits = std::numeric_limits<T>;
    if (!is_less(static_cast<double>(limits::min()), x)) return limits::min();
    if (!is_less(x, static_cast<double>(1 / limits::min()))) return 1 / limits::min();
    return static_cast<T>(std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) >> 52 << 52));
  }
};

/// Counts of NaN and infinities of each sign at an index, in one number that ranks add like a code.
struct non_finite_counts {
  static constexpr int bits = 21;
  static constexpr std::int64_t not_a_number = 1, above = std::int64_t{1} << bits, below = above << bits;

  /// Moves NaN and infinities from `x`, where they become 0, to `counts`.
  template <class T>
  static void take(std::span<T> x, std::span<std::int64_t> counts) noexcept {
    for (std::size_t e = 0; e < x.size(); ++e) {
      counts[e] = is_finite(x[e]) ? 0 : is_nan(x[e]) ? not_a_number : order_of(x[e]) > 0 ? above : below;
      if (counts[e] != 0) x[e] = T{};
    }
  }
  /// Writes the sums that are not finite to `x`.
  template <class T>
  static void put(std::span<const std::int64_t> counts, std::span<T> x) noexcept {
    constexpr std::int64_t all = above - 1;
    for (std::size_t e = 0; e < x.size(); ++e) {
      const std::int64_t c = counts[e];
      if (c == 0) continue;
      const bool plus = (c >> bits & all) != 0, minus = c >> 2 * bits != 0;
      const T infinity = std::numeric_limits<T>::infinity();
      x[e] = (c & all) != 0 || (plus && minus) ? std::numeric_limits<T>::quiet_NaN() : plus ? infinity : -infinity;
    }
  }
};

/// Throws `corrupt_message` if the bits `largest` of the largest magnitude exceed `most`.
inline void check_magnitude(std::uint64_t largest, std::uint64_t most) {
  if (largest <= most) return;
  raise<corrupt_message>({"the largest magnitude of all ranks has the bits ", largest, "; expected at most ", most});
}

/// Sums the codes of `x` by the composition `algorithm`, whose storage is `packed`.
template <class Code, transport Net, element T, class Algorithm>
task<void> sum_codes(channel<Net> net, std::span<T> x, Algorithm algorithm, code_steps<T> steps,
                     residual_view<T> residual) {
  buffer<Code> codes(net.memory(), x.size());
  double begin = net.net().now();
  kernel::quantise(x.data(), x.size(), 1 / steps.step, codes.data());
  net.compute(2 * x.size()); // the pass before has found the largest magnitude
  net.note_compression(net.net().now() - begin);
  if (!residual.empty()) {
    buffer<T> rounded(net.memory(), x.size());
    kernel::dequantise(codes.data(), x.size(), steps.step, rounded.data());
    residual.add_error(0, std::span<const T>(x), std::as_const(rounded).data());
  }
  const sum add{};
  auto adding = algorithm(net, codes.span(), add);
  co_await std::move(adding);
  begin = net.net().now();
  kernel::dequantise(codes.data(), x.size(), steps.step, x.data());
  net.compute(x.size());
  net.note_decompression(net.net().now() - begin);
}

} // namespace detail

/// Replaces `x` by the sum of the codes that `store` makes of all ranks' values (see storage::bound). `algorithm` is a
/// composition with the storage `packed` that sums the codes. Adds what the rounding of this rank's values has changed
/// to `residual`, unless `residual` is empty. Throws `invalid_argument` on all ranks if a sum might need codes of more
/// than 62 bits; the ranks know this before they sum anything, and the communicator stays usable. Throws
/// `corrupt_message` if another rank sends the bits of no magnitude.
template <transport Net, element T, class Op, class Algorithm>
task<void> sum_in_code(channel<Net> net, std::span<T> x, Op, storage::bound store, Algorithm algorithm,
                       residual_view<T> residual) {
  static_assert(!channel<Net>::on_device,
                "storage::bound makes codes of values in host memory, not on a device: use spar::staged");
  static_assert(std::same_as<Op, sum> || std::same_as<Op, average>,
                "storage::bound adds codes: use the operation spar::sum or spar::average");
  static_assert(std::same_as<T, float> || std::same_as<T, double>, "storage::bound encodes float and double");
  constexpr auto infinity = static_cast<std::uint64_t>(detail::order_of_infinity<T>);
  const auto numbers = net.template with_element<std::uint64_t>();
  std::uint64_t largest = std::min(kernel::largest_bits(x.data(), x.size()), infinity);
  co_await find_largest(numbers, largest);
  detail::check_magnitude(largest, infinity);
  buffer<std::int64_t> counts;
  if (largest == infinity) { // a rank has values that are not finite
    counts = buffer<std::int64_t>(net.memory(), x.size());
    detail::non_finite_counts::take(x, counts.span());
    largest = kernel::largest_bits(x.data(), x.size());
    co_await find_largest(numbers, largest);
    detail::check_magnitude(largest, infinity - 1);
  }
  using bits = decltype(kernel::detail::magnitude_bits(T{}));
  const T magnitude = std::bit_cast<T>(static_cast<bits>(largest));
  const detail::code_steps<T> steps(store, magnitude, net.size());
  if (steps.largest > steps.wide) {
    detail::non_finite_counts::put(std::as_const(counts).span(), x.first(counts.size()));
    net.call_error().is_thrown_by_all();
    raise<invalid_argument>({"the storage bound with the step ", static_cast<double>(steps.step),
                             " cannot encode a sum of ", net.size(), " values of magnitudes up to ",
                             static_cast<double>(magnitude),
                             " in 62 bits; expected a greater error or smaller values"});
  }
  if (counts.size() > 0) {
    const sum add{};
    auto adding = algorithm(net, counts.span(), add);
    co_await std::move(adding);
  }
  algorithm.store.bits = static_cast<unsigned>(std::bit_width(4 * steps.largest));
  auto summing = steps.largest <= steps.narrow ? detail::sum_codes<std::int32_t>(net, x, algorithm, steps, residual)
                                               : detail::sum_codes<std::int64_t>(net, x, algorithm, steps, residual);
  co_await std::move(summing);
  if (counts.size() > 0) detail::non_finite_counts::put(std::as_const(counts).span(), x);
}

} // namespace spar::inline v0_1
