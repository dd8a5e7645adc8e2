// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The error bound of a sum whose messages are rounded, and the codec that takes the fewest bytes within a tolerance.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/core/check_number.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/flat.hpp>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace spar::inline v0_1 {

/// A schedule that states the largest number of successive encodings, and of additions, that a contribution passes on
/// `ranks` ranks. Rejects schedules that drop entries, whose error no such numbers bound.
template <class Schedule>
concept bounded_schedule = requires(rank_t ranks) {
  { Schedule::encodings(ranks) } -> std::convertible_to<double>;
  { Schedule::additions(ranks) } -> std::convertible_to<double>;
};

namespace detail {

/// The largest rounding error of a value x of a block whose largest magnitude is m: at most `relative` * m +
/// `absolute`.
struct rounding_bound {
  double relative = 0;
  double absolute = 0;
};

template <element T, class Codec>
rounding_bound rounding_of([[maybe_unused]] const Codec& codec) {
  if constexpr (requires { requires Codec::exact; }) {
    return {};
  } else {
    static_assert(
        requires { codec.template relative_error<T>(); },
        "this codec does not state its error: a codec that rounds needs a const member template "
        "relative_error<T>(), see spar::block_codec");
    rounding_bound bound{codec.template relative_error<T>(), 0x1p-14}; // what `block_codec` allows for small values
    if constexpr (requires { codec.template absolute_error<T>(); }) bound.absolute = codec.template absolute_error<T>();
    return bound;
  }
}

/// The largest finite value of T, and the largest relative rounding error of an addition of two values of T.
struct number_format {
  double largest, unit;
};
template <element T>
constexpr number_format format_of() {
  static_assert(is_floating<T>, "sums of integers are exact: an error bound needs a floating-point element type");
  if constexpr (code_of<T> == element_code::float16)
    return {65504, 0x1p-11};
  else if constexpr (code_of<T> == element_code::bfloat16)
    return {0x1.fep127, 0x1p-8};
  else if constexpr (code_of<T> == element_code::float32)
    return {std::numeric_limits<float>::max(), 0x1p-24};
  else
    return {std::numeric_limits<double>::max(), 0x1p-53};
}

template <class Algorithm>
inline constexpr bool is_unselected = false;
template <class Storage, class Schedule>
inline constexpr bool is_unselected<composition<selector::everything, Storage, flat, Schedule>> = true;

/// The error bound of a sum over ranks whose largest magnitudes have the sum S: `relative` * S + `absolute`; with
/// `storage::bound`, S is P times the largest magnitude of all ranks. Each encoding turns a bound G on the magnitude of
/// a partial sum, errors included, into (1 + e) G + a, and each addition of bounds G and H gives (1 + u) (G + H). What
/// a contribution passes is bounded by the numbers of the schedule.
template <element T, class Schedule, class Storage>
rounding_bound sum_bound(const Storage& store, rank_t ranks) {
  static_assert(bounded_schedule<Schedule> || sums_in_code<Storage>,
                "no error bound is known for this schedule, because it states no encodings(ranks) and "
                "additions(ranks): see spar::bounded_schedule");
  if (ranks < 1) raise<invalid_argument>({"an error bound for ", ranks, " ranks; expected at least 1 rank"});
  if constexpr (sums_in_code<Storage>) { // each contribution is encoded once, and only the result is rounded again
    const rounding_bound each{store.template relative_error<T>(), store.template absolute_error<T>()};
    const double rounded = format_of<T>().unit, exact = (1 + rounded) * (1 + 0x1p-40);
    return {each.relative * exact + rounded, ranks * each.absolute * exact};
  } else if constexpr (bounded_schedule<Schedule>) {
    const rounding_bound blocks = rounding_of<T>(storage::blocks_of(store));
    const rounding_bound streams = rounding_of<T>(storage::streams_of(store));
    const rounding_bound either{std::fmax(blocks.relative, streams.relative),
                                std::fmax(blocks.absolute, streams.absolute)};
    double encodings = static_cast<double>(Schedule::encodings(ranks)), of_streams = 0;
    if constexpr (has_stream_codec<Storage> && requires { Schedule::stream_encodings(ranks); })
      of_streams = static_cast<double>(Schedule::stream_encodings(ranks));
    const double growth = of_streams * std::log1p(streams.relative) +
                          (encodings - of_streams) * std::log1p(either.relative) +
                          static_cast<double>(Schedule::additions(ranks)) * std::log1p(format_of<T>().unit);
    // The last factor covers the rounding of these lines.
    const double relative = std::expm1(growth) * (1 + 0x1p-40);
    return {relative, (1 + relative) * encodings * ranks * either.absolute};
  }
}

} // namespace detail

/// Returns a bound on the error of the sum of `ranks` contributions of values of T by `algorithm`: a composition with
/// the selector `everything` on a flat topology, or one part of such a composition. `largest` is the largest magnitude
/// among all contributions. Each value of the result differs from the exact sum by at most this bound (docs/guide/
/// codecs.md). The bound covers the rounding of the codecs and of the additions. It is infinity if a sum of such values
/// may exceed the largest value of T. It does not hold for NaN, for infinities, or for algorithms that drop entries.
///
/// Throws `invalid_argument` if `ranks` is below 1, or if `largest` is negative, infinite or NaN.
template <element T = float, class Algorithm>
[[nodiscard]] double error_bound(const Algorithm& algorithm, rank_t ranks, double largest) {
  const auto composed = detail::as_algorithm(algorithm);
  using composed_type = std::remove_const_t<decltype(composed)>;
  static_assert(detail::is_unselected<composed_type>, "an error bound is known for compositions with the selector "
                                                      "everything on a flat topology: nothing bounds what a selector "
                                                      "leaves out");
  detail::check_number(largest, detail::valid::magnitude, "the largest magnitude of an error bound");
  const auto bound = detail::sum_bound<T, std::remove_const_t<decltype(composed.by)>>(composed.store, ranks);
  const double together = ranks * largest;
  const double error = bound.relative * together + bound.absolute;
  return together + error <= detail::format_of<T>().largest ? error : std::numeric_limits<double>::infinity();
}

/// Returns the codec that encodes `n` values of T in the fewest bytes while the error of the sum of `ranks`
/// contributions stays within `tolerance` times S, where S is the sum, over the ranks, of the largest magnitudes of
/// their contributions. The codec is meant for a composition with the schedule `by`, whose encodings determine the
/// bound: `compose(codec_for(1e-2, net.size(), n), cheapest{})`. Values so small that the absolute error of the codec
/// matters may have a larger error; `error_bound` covers them.
///
/// The candidates are those of `named_codec`: values without encoding, bfloat16, half, QSGD and, for float and double,
/// zfp with each whole rate. Of codecs with equally many bytes, the first in this order is chosen. The number of bytes
/// is that of a block of n / P values, because schedules encode blocks.
///
/// Throws `invalid_argument` if `tolerance` is negative, infinite or NaN, if `ranks` is below 1, or if no codec keeps
/// the tolerance, because additions alone may round by more.
template <element T = float, class Schedule = cheapest>
[[nodiscard]] storage::named_codec codec_for(double tolerance, rank_t ranks, std::uint64_t n, const Schedule& = {}) {
  detail::check_number(tolerance, detail::valid::magnitude, "the tolerance of a sum");
  const auto bound = [&](const storage::named_codec& codec) {
    return detail::sum_bound<T, Schedule>(codec, ranks).relative;
  };
  storage::named_codec best("none");
  if (!(bound(best) <= tolerance)) {
    raise<invalid_argument>({"the tolerance of a sum of ", ranks, " ranks is ", tolerance,
                             ", but additions alone may round by ", bound(best), "; expected at least that much"});
  }
  const auto block =
      static_cast<std::size_t>((n + static_cast<std::uint64_t>(ranks) - 1) / static_cast<std::uint64_t>(ranks));
  storage::named_codec::for_each<T>([&](const storage::named_codec& codec) {
    if (codec.template encoded_bytes<T>(block) < best.template encoded_bytes<T>(block) && bound(codec) <= tolerance)
      best = codec;
  });
  return best;
}

} // namespace spar::inline v0_1
