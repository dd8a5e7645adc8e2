// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of the extension module, and what they share.
#pragma once

#include "communicator.hpp"

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace spar_python {

void bind_communicator(nb::module_& module);
void bind_sparse(nb::module_& module, nb::class_<communicator>& type);
void bind_feedback(nb::module_& module);
void bind_partial(nb::module_& module);

/// The code of the operation that `name`, a str, names. Throws TypeError or InvalidArgumentError.
spar_op operation_of(nb::handle name);

/// Throws InvalidArgumentError unless there is one bound more than ranks, or none at all.
void check_bounds(const communicator& of, const std::optional<std::vector<std::int64_t>>& bounds);

/// The text of a composition: of None for the default, of a str, or of an object whose str() is the text.
class algorithm_text {
 public:
  explicit algorithm_text(nb::handle given) {
    if (given.is_none()) return;
    text_ = nb::str(given);
    c_str_ = PyUnicode_AsUTF8(text_.ptr());
    if (c_str_ == nullptr) throw nb::python_error();
  }
  /// NULL for the default.
  [[nodiscard]] const char* c_str() const noexcept { return c_str_; }

 private:
  nb::object text_;
  const char* c_str_ = nullptr;
};

} // namespace spar_python
