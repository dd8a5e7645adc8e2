// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes the types of <spar/any.hpp> from ranks and compositions of the program's own. Without the compiled library,
// also contains their functions.
#pragma once

#include <spar/any.hpp>
#include <spar/spar.hpp>
#include <spar/system/any/allreduce_object.hpp>
#include <spar/system/any/feedback_object.hpp>
#include <spar/transport/any.hpp>

namespace spar::inline v0_1 {

template <class T, class Index>
template <class Algorithm>
  requires requires { Algorithm::name; }
any_allreduce<T, Index>::any_allreduce(const Algorithm& algorithm) {
  auto composed = detail::as_algorithm(algorithm);
  object_ = new detail::allreduce_of<T, Index, decltype(composed)>(composed);
}

template <class T, class Index>
template <class Algorithm>
  requires requires { typename Algorithm::state; }
any_feedback<T, Index>::any_feedback(const Algorithm& algorithm, bool reject_nan)
    : object_(new detail::feedback_of<T, Index, Algorithm>(algorithm, reject_nan)) {}

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/system/any/allreduce-inl.hpp>
#include <spar/system/any/feedback-inl.hpp>
#include <spar/system/any/group-inl.hpp>
#include <spar/system/any/transport-inl.hpp>
#endif
