// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The extension module spar._spar.
#include "bindings.hpp"

#include <nanobind/typing.h>

#include <spar/spar.h>

NB_MODULE(_spar, module) {
  module.doc() = "The compiled part of spar.";
  module.attr("version") = spar_version();
  module.attr("ArrayT") = nanobind::type_var("ArrayT"); // in signatures
  spar_python::bind_communicator(module);
  spar_python::bind_feedback(module);
  spar_python::bind_partial(module);
}
