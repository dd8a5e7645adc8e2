// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The selector concept: which entries of a dense vector are sent (SparCML, section 2.2).
#pragma once

#include <spar/storage/stream.hpp>

#include <concepts>
#include <span>
#include <string_view>

namespace spar {

/// Moves entries out of `x` into a stream: what is selected plus what is left in `x` is the input, bit for bit, so `x`
/// is the residual afterwards. Zeros are never selected; NaN ranks above every number. Rejects a selector that only
/// reads: the caller could not tell what was left.
///
/// A selector may change from call to call (`threshold_reuse`), and then it must be copyable: who keeps one copies it,
/// calls the copy, and keeps that only where the whole call succeeded. `selects<const Selector, T, Index>` is true for
/// those without such a state. A member `validate(n)`, where there is one, throws `invalid_argument` for options that
/// do not fit a vector of n values, and a collective calls it before anything is sent.
template <class Selector, class T, class Index>
concept selects = element<T> && index_type<Index> && std::copy_constructible<Selector> &&
                  requires(Selector& select, std::span<T> x, pool& memory) {
                    { Selector::name } -> std::convertible_to<std::string_view>;
                    { select.template operator()<Index>(x, memory) } -> std::same_as<stream<T, Index>>;
                  };

} // namespace spar
