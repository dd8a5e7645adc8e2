// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Partial allreduces, which go on without late ranks.
#include "arrays.hpp"
#include "bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <spar/spar.h>

#include <string>
#include <vector>

namespace spar_python {

using namespace nb::literals;

namespace {

class partial {
 public:
  partial(communicator& comm, std::int64_t n, const char* dtype, const char* participation, nb::handle op,
          nb::handle algorithm, std::int64_t tau)
      : comm_(comm), type_(dtype) {
    const algorithm_text text(algorithm);
    const spar_op by = operation_of(op);
    comm.set_progress_thread();
    comm.run([&](spar_comm on) {
      const int status = spar_comm_set_progress_thread(on, 1); // a rank takes part in the rounds of others at any time
      if (status != SPAR_SUCCESS) return status;
      return spar_partial_create(on, n, type_.code(), by, participation, text.c_str(), tau, &partial_);
    });
  }
  partial(const partial&) = delete;
  ~partial() {
    if (!comm_.in_its_process()) return;
    const nb::gil_scoped_release released; // waits for a round that is running, and so for other threads of Python
    static_cast<void>(spar_partial_free(&partial_));
  }

  std::vector<int> reduce(nb::handle values) { return call(values, &spar_start_partial_reduce); }
  std::vector<int> drain(nb::handle values) { return call(values, &spar_start_partial_drain); }
  void free() {
    comm_.run_idle([&] { return spar_partial_free(&partial_); });
  }

 private:
  std::vector<int> call(nb::handle values, decltype(spar_start_partial_reduce)* start) {
    const array to(values, "values", access::write);
    type_.check(to);
    call_values x(to);
    std::vector<int> presence(static_cast<std::size_t>(comm_.size()));
    comm_.call([&](spar_comm, spar_request* request) {
      return start(partial_, x.data(), x.size(), presence.data(), request);
    });
    x.finish();
    return presence;
  }

  communicator& comm_;
  value_type type_;
  spar_partial partial_ = nullptr;
};

} // namespace

void bind_partial(nb::module_& module) {
  nb::class_<partial>(module, "Partial", "An allreduce that does not wait for late ranks.")
      .def(nb::init<communicator&, std::int64_t, const char*, const char*, nb::handle, nb::handle, std::int64_t>(),
           "comm"_a, "n"_a, "dtype"_a, "participation"_a, "op"_a.none(), "algorithm"_a.none(), "tau"_a,
           nb::keep_alive<1, 2>())
      .def("_reduce", &partial::reduce, "values"_a.none())
      .def("_drain", &partial::drain, "values"_a.none())
      .def("_free", &partial::free);
}

} // namespace spar_python
