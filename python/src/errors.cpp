// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Errors of the C interface become exceptions of Python.
#include "errors.hpp"

#include <spar/spar.h>

#include <utility>

namespace spar_python {

namespace nb = nanobind;

namespace {

const char* name_of(int status) {
  switch (status) {
  case SPAR_ERR_INVALID_ARGUMENT:
    return "InvalidArgumentError";
  case SPAR_ERR_MISMATCH:
    return "MismatchError";
  case SPAR_ERR_CORRUPT_MESSAGE:
    return "CorruptMessageError";
  case SPAR_ERR_PEER_FAILED:
    return "PeerFailedError";
  case SPAR_ERR_TIMEOUT:
    return "TimeoutError";
  case SPAR_ERR_DEADLOCK:
    return "DeadlockError";
  case SPAR_ERR_TRANSPORT:
    return "TransportError";
  case SPAR_ERR_ASSERTION:
    return "AssertionFailedError";
  default:
    return "Error";
  }
}

} // namespace

void raise(int status, std::string text) {
  if (status == SPAR_ERR_NO_MEMORY) throw std::bad_alloc();
  if (const auto end = text.find(": "); text.starts_with("spar_") && end != std::string::npos) text.erase(0, end + 2);
  const nb::object type = nb::module_::import_("spar._errors").attr(name_of(status));
  PyErr_SetObject(type.ptr(), nb::str(text.data(), text.size()).ptr());
  throw nb::python_error();
}

void check(int status) {
  if (status != SPAR_SUCCESS) raise(status, spar_error_text(nullptr));
}

} // namespace spar_python
