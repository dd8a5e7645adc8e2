// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The selector concept: which entries of a dense vector are sent (SparCML, section 2.2).
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

/// The `prepare` argument for values that exist before the selector is called.
struct nothing_to_prepare {
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

/// Moves entries out of `x` into a stream. The selected entries and what is left in `x` together equal the input, bit
/// for bit, so `x` is the residual afterwards. Zeros are never selected; NaN ranks above every number. The concept
/// rejects a selector that only reads `x`: its caller could not tell what was left.
///
/// - `validate(n)` throws `invalid_argument`, before anything is sent, for options that do not fit a vector of n
///   values;
/// - `options(f)` calls `f(name, value)` with each option that must be equal on all ranks;
/// - a selector that changes from call to call (`threshold_reuse`) has a copyable type `state`, which the call takes as
///   a third argument. A caller that keeps a state passes a copy, and keeps the copy only if the whole call succeeds.
///   The state lists its numbers: `shared_state(f)` those that are equal on all ranks, `own_state(f)` the others;
/// - the optional `bounds(n)` returns how many of n entries the selector selects (see topk_bounds), and the optional
///   `period` is the number of calls after which it finds a new threshold. Schedules that keep the largest entries of
///   the sum use both.
template <class Selector, class T, class Index>
concept selects = element<T> && index_type<Index> && part_for<Selector, slot::selector> &&
                  requires(const Selector& select, std::uint64_t n) { select.validate(n); } &&
                  (detail::selects_at_once<Selector, T, Index> || detail::selects_with_state<Selector, T, Index>);

/// Calls a selector with or without a state. `prepare(begin, end)` computes the values of [begin, end); it is called
/// once for each value, before the selector reads the value.
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
