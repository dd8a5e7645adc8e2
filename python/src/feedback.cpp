// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback: what a rank has not sent is added to the values of its next call.
#include "arrays.hpp"
#include "bindings.hpp"
#include "sparse.hpp"

#include <nanobind/stl/string.h>

#include <spar/spar.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace spar_python {

using namespace nb::literals;

namespace {

class error_feedback {
 public:
  error_feedback(communicator& comm, nb::handle algorithm, const char* dtype, int index_bits)
      : comm_(comm), type_(dtype), index_bits_(index_bits) {
    const algorithm_text text(algorithm);
    if (text.c_str() != nullptr) algorithm_ = text.c_str();
    comm.run(
        [&](spar_comm on) { return spar_feedback_create(on, type_.code(), index_bits, text.c_str(), &feedback_); });
  }
  error_feedback(const error_feedback&) = delete;
  ~error_feedback() {
    if (comm_.in_its_process()) static_cast<void>(spar_feedback_free(&feedback_));
  }

  nb::object reduce(nb::object values, nb::handle op) {
    const spar_op by = operation_of(op);
    array to(values, "values", access::write, place::anywhere);
    check_values(to);
    if (to.on_device() != nullptr && comm_.has_kernels() && index_bits_ == 32 &&
        device_calls::can(*to.on_device(), code_on_device(to.type()), by, algorithm_.c_str())) {
      const device_scope here(*to.on_device());
      comm_.call([&](spar_comm comm, spar_request* request) {
        return device_calls::start_feedback_reduce(feedback_, comm, *to.on_device(), to.size(), by, request);
      });
      return values;
    }
    to.to_host();
    call_values x(to);
    comm_.call([&](spar_comm comm, spar_request* request) {
      return spar_start_feedback_reduce(feedback_, comm, x.data(), x.size(), by, request);
    });
    x.finish();
    return values;
  }

  nb::tuple reduce_sparse(nb::handle values, nb::handle op) {
    const spar_op by = operation_of(op);
    const array from(values, "values", access::read);
    check_values(from);
    call_values x(from);
    owned_stream sum;
    comm_.call([&](spar_comm comm, spar_request* request) {
      return spar_start_feedback_reduce_sparse(feedback_, comm, x.data(), x.size(), by, sum.to(), request);
    });
    const spar_vector view = sum.view();
    const nb::tuple entries = sparse_entries::copy_of(view, element::int64);
    return nb::make_tuple(view.n, entries[0], entries[1]);
  }

  nb::object residual() {
    const void* values = nullptr;
    std::int64_t n = 0;
    comm_.run_idle([&] { return spar_feedback_residual(feedback_, &values, &n); });
    void* to = nullptr;
    const nb::object copy = new_array(n, element_of(type_.code()), &to);
    if (n != 0) std::memcpy(to, values, static_cast<std::size_t>(n) * bytes_of(type_.code()));
    return copy;
  }

  nb::bytes save() {
    std::string saved;
    comm_.run_idle([&] {
      std::int64_t bytes = 0;
      if (const int status = spar_feedback_saved_size(feedback_, &bytes); status != SPAR_SUCCESS) return status;
      saved.resize(static_cast<std::size_t>(bytes));
      return spar_feedback_save(feedback_, saved.data(), bytes);
    });
    return nb::bytes(saved.data(), saved.size());
  }
  void load(const nb::bytes& saved) {
    comm_.run_idle(
        [&] { return spar_feedback_load(feedback_, saved.data(), static_cast<std::int64_t>(saved.size())); });
  }
  void take_over(const nb::bytes& saved) {
    comm_.run_idle(
        [&] { return spar_feedback_take_over(feedback_, saved.data(), static_cast<std::int64_t>(saved.size())); });
  }

 private:
  void check_values(const array& given) const {
    type_.check(given);
    if (index_bits_ == 32 && given.size() > std::int64_t{1} << 32)
      raise(SPAR_ERR_INVALID_ARGUMENT, "values has " + std::to_string(given.size()) +
                                           " elements, but indices of 32 bits suffice for 2^32; make the ErrorFeedback "
                                           "with index_bits=64");
  }

  communicator& comm_;
  value_type type_;
  int index_bits_;
  std::string algorithm_;
  spar_feedback feedback_ = nullptr;
};

} // namespace

void bind_feedback(nb::module_& module) {
  nb::class_<error_feedback>(module, "ErrorFeedback", "An allreduce with error feedback.")
      .def(nb::init<communicator&, nb::handle, const char*, int>(), "comm"_a, "algorithm"_a, "dtype"_a, "index_bits"_a,
           nb::keep_alive<1, 2>())
      .def("reduce", &error_feedback::reduce, "values"_a.none(), "op"_a.none() = "sum",
           nb::sig("def reduce(self, values: ArrayT, op: str = 'sum') -> ArrayT"),
           "Replaces the values by the sum or the average of what the ranks have selected, with zeros where none "
           "has.\n\n"
           "values has as many elements in each call. What is not sent stays in the residual. `op` is 'sum' or\n"
           "'average'. Returns values.")
      .def("_reduce_sparse", &error_feedback::reduce_sparse, "values"_a.none(), "op"_a.none(),
           nb::sig("def _reduce_sparse(self, values: object, op: str) -> tuple[int, typing.Any, typing.Any]"))
      .def_prop_ro("residual", &error_feedback::residual,
                   "A copy of what this rank has not sent yet; empty before the first call.")
      .def("save", &error_feedback::save,
           "The residual and the state as bytes, from which a run with the same number of ranks resumes by load.")
      .def("load", &error_feedback::load, "saved"_a,
           "Restores `saved`, which save has returned for the same algorithm. Raises InvalidArgumentError if it is\n"
           "malformed or belongs to another algorithm, type or number of ranks, and then changes nothing.")
      .def("take_over", &error_feedback::take_over, "saved"_a,
           "Adds the residual that a rank of another run has saved, which may have had another number of ranks. Give\n"
           "each `saved` residual to one rank. Raises InvalidArgumentError as load does.");
}

} // namespace spar_python
