// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Errors of the C interface become exceptions of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace spar_python {

/// Raises the exception of spar._errors that belongs to `status`, with `text` without the name of a function of C.
[[noreturn]] void raise(int status, std::string text);

/// Raises the exception for the last failure on this thread, unless `status` is SPAR_SUCCESS. Needs the GIL.
void check(int status);

} // namespace spar_python
