// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The selector concept: a selector decides which entries of a dense vector are sent (SparCML, section 2.2).
#pragma once

#include <spar/core/policy/slot.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar {

namespace selector {

/// The default `prepare` argument of `select_from`. Does nothing, because the values of the vector exist before the
/// call.
struct nothing_to_prepare {
  /// Does nothing for the values [begin, end).
  void operator()(std::size_t, std::size_t) const noexcept {}
};

} // namespace selector

namespace detail {

template <class Selector, class T, class Index>
concept selects_at_once = requires(const Selector& select, std::span<T> x, pool& memory) {
  { select.template operator()<Index>(x, memory) } -> std::same_as<sparse_stream<T, Index>>;
};
template <class Selector, class T, class Index>
concept selects_with_state = requires(const Selector& select, std::span<T> x, pool& memory, state_of<Selector>& now) {
  { select.template operator()<Index>(x, memory, now) } -> std::same_as<sparse_stream<T, Index>>;
} && requires(state_of<Selector>& now, void (*f)(std::uint64_t)) {
  now.shared_state(f);
  now.own_state(f);
};

} // namespace detail

/// Whether a selector ranks the values: true unless the selector has a member constant `ranks_values` that is false, as
/// one that selects random positions or entries in turn.
template <class Selector>
inline constexpr bool ranks_values = true;
/// The value of the member constant.
template <class Selector>
  requires requires {
    { Selector::ranks_values } -> std::convertible_to<bool>;
  }
inline constexpr bool ranks_values<Selector> = Selector::ranks_values;

/// A selector: moves entries out of a vector `x` into a sparse stream. The selected entries and the values left in `x`
/// together equal the input, bit for bit, so `x` becomes the residual. Zeros are never selected. A selector that ranks
/// the values (see `ranks_values`) ranks NaN above every number; any other leaves a NaN in the residual until the turn
/// of its position comes. Rejects a selector that only reads `x`, because its caller would not get the residual.
///
/// - `validate(n)` throws `invalid_argument` if the options do not fit a vector of n values; spar calls `validate`
///   before it sends any message.
/// - `options(f)` calls `f(name, value)` for each option that must be equal on all ranks.
/// - A selector that changes from call to call (`threshold_reuse`) has a copyable type `state`, and takes a state as
///   the third argument. A caller passes a copy of its state, and keeps the copy only if the whole collective succeeds.
///   `shared_state(f)` calls `f` for each number of the state that is equal on all ranks, `own_state(f)` for each other
///   number.
/// - The optional `bounds(n)` returns how many of n entries the selector selects (see `topk_bounds`). The optional
///   `period` is the number of calls after which the selector finds a new threshold. Schedules that keep the largest
///   entries of the sum use `bounds` and `period`.
template <class Selector, class T, class Index>
concept selects = element<T> && index_type<Index> && part_for<Selector, slot::selector> &&
                  requires(const Selector& select, std::uint64_t n) { select.validate(n); } &&
                  (detail::selects_at_once<Selector, T, Index> || detail::selects_with_state<Selector, T, Index>);

/// Calls the selector `select` on `x`, with the state `now` if the selector has a state. `prepare(begin, end)` computes
/// the values of `x` in [begin, end). The calls of `prepare` compute each value once, before the selector reads the
/// value.
template <index_type Index, class Selector, element T, class Prepare = selector::nothing_to_prepare>
sparse_stream<T, Index> select_from(const Selector& select, std::span<T> x, pool& memory, state_of<Selector>& now,
                                    const Prepare& prepare = {}) {
  if constexpr (requires { select.template operator()<Index>(x, memory, now, prepare); }) {
    return select.template operator()<Index>(x, memory, now, prepare);
  } else {
    prepare(0, x.size());
    if constexpr (detail::selects_with_state<Selector, T, Index>)
      return select.template operator()<Index>(x, memory, now);
    else
      return select.template operator()<Index>(x, memory);
  }
}

} // namespace spar
