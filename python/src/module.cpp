// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The extension module spar._spar.
#include "bindings.hpp"

#include <nanobind/typing.h>

#include <spar/spar.h>

NB_MODULE(_spar, module) {
  // Objects may live until the process ends: DDP of torch keeps its hook in C++, where Python sees no reference cycle.
  nanobind::set_leak_warnings(false);
  module.doc() = "The compiled part of spar.";
  module.attr("version") = spar_version();
  module.attr("ArrayT") = nanobind::type_var("ArrayT"); // in signatures
  spar_python::bind_communicator(module);
  spar_python::bind_feedback(module);
  spar_python::bind_partial(module);
}
