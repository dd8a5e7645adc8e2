// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The selector concept: a selector decides which entries of a dense vector are sent (SparCML, section 2.2).
#pragma once

#include <spar/core/policy/slot.hpp>
#include <spar/runtime/tasks/scheduler.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/workspace/host_work.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

namespace selector {

/// The argument `prepare` of a selector whose values exist before the call.
struct nothing_to_prepare {
  /// Does nothing for the values [begin, end).
  void operator()(std::size_t, std::size_t) const noexcept {}
};

} // namespace selector

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
/// of its position comes. A selector must not take a `std::span<const T>`: what it selects would stay in `x` as well.
///
/// - `operator()<Index>(work, x, state, prepare)` returns an awaitable whose result is the stream. A selector that
///   leaves the work to functions of the workspace `work`, of any type, also runs on a device. One that reads the
///   values itself takes a `const host_work&`, and returns `ready`. Both call `prepare(begin, end)`, or pass `prepare`
///   to `work`, to compute the values of `x` in [begin, end): each value once, before they read it. `prepare` does not
///   throw, and several threads may call it at the same time. The caller keeps the arguments until the awaitable has
///   ended.
/// - `validate(n)` throws `invalid_argument` if the options do not fit a vector of n values; spar calls `validate`
///   before it sends any message.
/// - `options(f)` calls `f(name, value)` for each option that must be equal on all ranks.
/// - A selector that changes from call to call (`threshold_reuse`) has a copyable type `state`; any other gets a
///   `no_state`. A caller passes a copy of its state, and keeps the copy only if the whole collective succeeds.
///   `shared_state(f)` calls `f` for each number of the state that is equal on all ranks, `own_state(f)` for each other
///   number. A number is an integer, a float, a double or a vector of `std::uint64_t`.
/// - The optional `bounds(n)` returns how many of n entries the selector selects (see `topk_bounds`). The optional
///   `period` is the number of calls after which the selector finds a new threshold. Schedules that keep the largest
///   entries of the sum use `bounds` and `period`. A call rejects members of these names of another form.
template <class Selector, class T, class Index, class Work = host_work>
concept selects = element<T> && index_type<Index> && part_for<Selector, slot::selector> &&
                  requires(const Selector& by, Work& work, std::span<T> x, state_of<Selector>& now,
                           const selector::nothing_to_prepare& prepare, void (*f)(std::uint64_t)) {
                    by.validate(x.size());
                    now.shared_state(f);
                    now.own_state(f);
                    {
                      by.template operator()<Index>(work, x, now, prepare).await_resume()
                    } -> std::convertible_to<sparse_stream<T, Index>>;
                  };

namespace detail {

/// Stops the compilation with a sentence unless `Selector` selects values of T. Returns whether it does, so that no
/// other error follows.
template <class Selector, class T, class Index, class Work>
constexpr bool expect_selector() {
  static_assert(selects<Selector, T, Index, Work>,
                "this selector selects no values of this type: what keeps the largest values takes numbers only, and "
                "every selector has validate(n), options(f) and a const member template operator()<Index>(work, x, "
                "state, prepare), which returns an awaitable of a sparse_stream<T, Index>: see spar::selects");
  return selects<Selector, T, Index, Work>;
}

} // namespace detail

/// Calls the selector `by` with the state `now` on the values `x` in host memory, outside of collectives. Returns the
/// selected entries, with memory of `memory`. Throws what the selector throws.
template <index_type Index = std::uint32_t, class Selector, element T, class State = state_of<Selector>>
sparse_stream<T, Index> select(const Selector& by, std::span<T> x, pool& memory, State&& now = {}) {
  if constexpr (detail::expect_selector<Selector, T, Index, host_work>()) {
    scheduler none_suspended(memory);
    host_work work(none_suspended);
    const selector::nothing_to_prepare prepare;
    return by.template operator()<Index>(work, x, now, prepare).await_resume();
  }
}

} // namespace spar::inline v0_1
