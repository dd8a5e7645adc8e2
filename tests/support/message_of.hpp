// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sentence of an error that a call throws.
#pragma once

#include <string>

namespace test {

/// The message of the exception of type `Error` that `action` throws; "nothing" if it throws none.
template <class Error, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing";
}

} // namespace test
