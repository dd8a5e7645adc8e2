// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of call_error.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/tasks/call_error.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE void call_error::note() noexcept {
  try {
    throw;
  } catch (const peer_failed&) {
    if (!error_) error_ = std::current_exception();
  } catch (...) {
    if (!caused_here_) error_ = std::current_exception();
    caused_here_ = true;
  }
  if (abort_ != nullptr) abort_(net_, error_);
}

} // namespace spar::inline v0_1::detail
