// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The class Communicator of the extension module: makers, properties, and collectives of dense values.
#include "arrays.hpp"
#include "bindings.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <spar/spar.h>
#ifdef SPAR_PYTHON_UCX
#include <spar/spar_ucx.h>
#endif

#include <cstdint>
#include <exception>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar_python {

using namespace nb::literals;

namespace {

std::vector<std::uintptr_t> handles_of_threads(int ranks) {
  if (ranks < 1) raise(SPAR_ERR_INVALID_ARGUMENT, "'n' is " + std::to_string(ranks) + "; expected at least 1");
  std::vector<spar_comm> comms(static_cast<std::size_t>(ranks));
  check(spar_comm_from_threads(ranks, comms.data()));
  std::vector<std::uintptr_t> handles;
  for (const spar_comm comm : comms) handles.push_back(reinterpret_cast<std::uintptr_t>(comm));
  return handles;
}

#ifdef SPAR_PYTHON_UCX
/// A store in Python: put(key, value) returns the value that the key has then, wait(key, seconds) a value or None.
struct python_store {
  nb::object put, wait;
  std::exception_ptr raised; // what a function has raised

  template <class Call>
  static int answered(void* context, spar_store_answer* answer, void* to, const Call& call) noexcept {
    auto& self = *static_cast<python_store*>(context);
    const nb::gil_scoped_acquire held;
    try {
      const nb::object value = call(self);
      if (value.is_none()) return 0;
      const auto bytes = nb::cast<nb::bytes>(value);
      answer(to, bytes.data(), static_cast<std::int64_t>(bytes.size()));
      return 0;
    } catch (...) {
      self.raised = std::current_exception();
      return 1;
    }
  }
};

/// Makes a communicator of processes by `make`, and returns its handle.
template <class Make>
std::uintptr_t handle_by(const Make& make) {
  spar_comm comm = nullptr;
  int status = 0;
  std::string text;
  {
    const nb::gil_scoped_release released;
    status = make(&comm);
    if (status != SPAR_SUCCESS) text = spar_error_text(nullptr);
  }
  if (status != SPAR_SUCCESS) raise(status, text);
  return reinterpret_cast<std::uintptr_t>(comm);
}

std::uintptr_t handle_from_environment() { return handle_by(&spar_comm_from_environment); }
std::uintptr_t handle_of_joined() { return handle_by(&spar_comm_join); }

std::uintptr_t handle_from_store(nb::object put, nb::object wait, int rank, int size) {
  // Parts of the communicator may use the store as long as they exist, so stores are kept.
  static std::list<python_store>& stores = *new std::list<python_store>;
  python_store& own = stores.emplace_back(python_store{std::move(put), std::move(wait), nullptr});
  const spar_store store{.context = &own,
                         .put =
                             [](void* context, const char* key, const void* value, std::int64_t length,
                                spar_store_answer* answer, void* to) {
                               return python_store::answered(context, answer, to, [&](const python_store& self) {
                                 return self.put(key, nb::bytes(value, static_cast<std::size_t>(length)));
                               });
                             },
                         .wait =
                             [](void* context, const char* key, double seconds, spar_store_answer* answer, void* to) {
                               return python_store::answered(context, answer, to, [&](const python_store& self) {
                                 return self.wait(key, seconds);
                               });
                             }};
  try {
    return handle_by([&](spar_comm* comm) { return spar_comm_from_store(&store, rank, size, comm); });
  } catch (const nb::python_error&) {
    if (own.raised) std::rethrow_exception(std::exchange(own.raised, nullptr));
    throw;
  }
}
#else
[[noreturn]] void refuse_processes() {
  raise(SPAR_ERR_TRANSPORT, "this spar was built without UCX, over which processes communicate");
}
std::uintptr_t handle_from_environment() { refuse_processes(); }
std::uintptr_t handle_of_joined() { refuse_processes(); }
std::uintptr_t handle_from_store(nb::object, nb::object, int, int) { refuse_processes(); }
#endif

nb::object allreduce(communicator& self, nb::object values, nb::handle op, nb::handle algorithm, nb::object out) {
  const algorithm_text text(algorithm);
  const spar_op by = operation_of(op);
  if (out.is_none() || out.is(values)) {
    array to(values, "values", access::write, place::anywhere);
    const int type = code_on_device(to.type());
    if (to.on_device() != nullptr && self.has_kernels() && device_calls::can(*to.on_device(), type, by, text.c_str())) {
      const device_scope here(*to.on_device());
      self.call([&](spar_comm comm, spar_request* request) {
        return device_calls::start_allreduce(comm, *to.on_device(), to.size(), type, by, text.c_str(), request);
      });
      return values;
    }
    to.to_host();
    call_values x(to);
    self.call([&](spar_comm comm, spar_request* request) {
      return spar_start_allreduce(comm, x.data(), x.data(), x.size(), x.type(), by, text.c_str(), request);
    });
    x.finish();
    return values;
  }
  const array from(values, "values", access::read);
  const array to(out, "out", access::write);
  if (to.size() != from.size())
    raise(SPAR_ERR_INVALID_ARGUMENT, "values has " + std::to_string(from.size()) + " elements, but out has " +
                                         std::to_string(to.size()) + "; expected as many");
  if (to.type() != from.type()) {
    PyErr_Format(PyExc_TypeError, "values has elements of the type %S, but out has elements of the type %S",
                 from.type_name().ptr(), to.type_name().ptr());
    throw nb::python_error();
  }
  call_values x(from);
  const bool rounds = from.type() == element::bfloat16;
  self.call([&](spar_comm comm, spar_request* request) {
    return spar_start_allreduce(comm, x.data(), rounds ? x.data() : to.data(), x.size(), x.type(), by, text.c_str(),
                                request);
  });
  x.finish(to);
  return out;
}

nb::object allgather(communicator& self, nb::object values) {
  const array to(values, "values", access::write);
  call_values x(to);
  self.call([&](spar_comm comm, spar_request* request) {
    return spar_start_allgather(comm, x.data(), x.size(), x.type(), request);
  });
  x.finish();
  return values;
}

nb::object broadcast(communicator& self, nb::object values, int root) {
  const array to(values, "values", access::write);
  call_values x(to);
  self.call([&](spar_comm comm, spar_request* request) {
    return spar_start_broadcast(comm, x.data(), x.size(), x.type(), root, request);
  });
  x.finish();
  return values;
}

/// The elements [begin, end) of `values` in one dimension.
nb::object part_of(nb::handle values, std::int64_t begin, std::int64_t end) {
  const nb::object flat = nb::hasattr(values, "reshape") ? values.attr("reshape")(-1)
                                                         : nb::steal<nb::object>(PyMemoryView_FromObject(values.ptr()));
  return flat[nb::slice(nb::int_(begin), nb::int_(end), nb::none())];
}

nb::object reduce_scatter(communicator& self, nb::object values, nb::handle op,
                          const std::optional<std::vector<std::int64_t>>& bounds) {
  const spar_op by = operation_of(op);
  const array to(values, "values", access::write);
  call_values x(to);
  const int rank = self.rank(), ranks = self.size();
  check_bounds(self, bounds);
  std::int64_t begin = 0, end = 0;
  if (bounds) {
    begin = (*bounds)[static_cast<std::size_t>(rank)];
    end = (*bounds)[static_cast<std::size_t>(rank) + 1];
  } else {
    check(spar_block(x.size(), ranks, rank, &begin, &end));
  }
  self.call([&](spar_comm comm, spar_request* request) {
    return spar_start_reduce_scatter(comm, x.data(), x.size(), x.type(), by, bounds ? bounds->data() : nullptr,
                                     request);
  });
  x.finish();
  return part_of(values, begin, end);
}

std::uintptr_t split(communicator& self, int colour, int key) {
  spar_comm part = nullptr;
  self.run([&](spar_comm comm) { return spar_comm_split(comm, colour, key, &part); });
  return reinterpret_cast<std::uintptr_t>(part);
}

/// The communicator of the ranks that are left.
std::uintptr_t shrink(communicator& self) {
  spar_comm rest = nullptr;
  self.run([&](spar_comm comm) { return spar_comm_shrink(comm, &rest); });
  return reinterpret_cast<std::uintptr_t>(rest);
}

/// The communicator with those that have joined; 0 if nobody has.
std::uintptr_t grow(communicator& self) {
  spar_comm wider = nullptr;
  self.run([&](spar_comm comm) { return spar_comm_grow(comm, &wider); });
  return reinterpret_cast<std::uintptr_t>(wider);
}

nb::tuple last_call(const communicator& self) {
  spar_statistics s;
  check(spar_comm_last_call(self.handle(), &s));
  return nb::make_tuple(s.messages_sent, s.messages_received, s.bytes_sent, s.bytes_received, s.plain_bytes_sent,
                        s.codec_seconds, s.seconds);
}

void set_hosts(communicator& self, const std::vector<int>& hosts) {
  if (hosts.size() != static_cast<std::size_t>(self.size()))
    raise(SPAR_ERR_INVALID_ARGUMENT, "hosts has " + std::to_string(hosts.size()) +
                                         " numbers; expected one for each of the " + std::to_string(self.size()) +
                                         " ranks");
  self.run([&](spar_comm comm) { return spar_comm_set_hosts(comm, hosts.data()); });
}

} // namespace

spar_op operation_of(nb::handle name) {
  static constexpr const char* expected = "expected 'sum', 'average', 'min', 'max' or 'prod'";
  if (!nb::isinstance<nb::str>(name)) { // such as a ReduceOp of torch.distributed
    PyErr_Format(PyExc_TypeError, "op is %R, of the type %s; %s", name.ptr(), Py_TYPE(name.ptr())->tp_name, expected);
    throw nb::python_error();
  }
  const auto text = nb::cast<std::string>(name);
  if (text == "sum") return SPAR_SUM;
  if (text == "average") return SPAR_AVERAGE;
  if (text == "min") return SPAR_MIN;
  if (text == "max") return SPAR_MAX;
  if (text == "prod") return SPAR_PROD;
  raise(SPAR_ERR_INVALID_ARGUMENT, "op is '" + text + "'; " + expected);
}

void check_bounds(const communicator& of, const std::optional<std::vector<std::int64_t>>& bounds) {
  const int ranks = of.size();
  if (bounds && bounds->size() != static_cast<std::size_t>(ranks) + 1)
    raise(SPAR_ERR_INVALID_ARGUMENT, "bounds has " + std::to_string(bounds->size()) + " numbers; expected " +
                                         std::to_string(ranks + 1) + ", one more than there are ranks");
}

void bind_communicator(nb::module_& module) {
  module.def("handles_of_threads", &handles_of_threads, "ranks"_a);
  module.def("handle_from_environment", &handle_from_environment);
  module.def("handle_of_joined", &handle_of_joined);
  module.def("handle_from_store", &handle_from_store, "put"_a, "wait"_a, "rank"_a, "size"_a);
#ifdef SPAR_PYTHON_UCX
  module.attr("has_ucx") = true;
#else
  module.attr("has_ucx") = false;
#endif
#ifdef SPAR_PYTHON_KERNELS
  module.attr("has_kernels") = true;
#else
  module.attr("has_kernels") = false;
#endif
  nb::class_<communicator> type(module, "Communicator",
                                "One rank of a communicator. spar.Communicator has the makers.");
  bind_sparse(module, type);
  type.def(nb::init<std::uintptr_t, bool>(), "handle"_a, "in_threads"_a = false)
      .def_prop_ro("_in_threads", &communicator::in_threads)
      .def_prop_ro("rank", &communicator::rank, "This rank, from 0 to size - 1.")
      .def_prop_ro("size", &communicator::size, "The number of ranks.")
      .def_prop_rw("deadline", &communicator::deadline, &communicator::set_deadline,
                   "For how many seconds a call waits for a message before it raises TimeoutError; 600 at first.")
      .def("_set_hosts", &set_hosts, "hosts"_a)
      .def(
          "set_network",
          [](communicator& self, double message_seconds, double byte_seconds) {
            self.run([&](spar_comm comm) { return spar_comm_set_network(comm, message_seconds, byte_seconds); });
          },
          "message_seconds"_a, "byte_seconds"_a,
          R"(Sets what a message and a byte cost on the network: message_seconds and byte_seconds.

Compositions such as 'dense' and 'sparcml+coded' choose a schedule by these numbers, and whether to encode entries. At
first 1e-6 and 1e-10, for ranks on one machine; links of 1 Gbit/s have about 5e-5 and 8e-9. A collective call: all ranks
get the numbers of rank 0. Raises InvalidArgumentError on all ranks if one of these is negative, infinite or NaN.)")
      .def("_last_call", &last_call, nb::sig("def _last_call(self) -> tuple[int, int, int, int, int, float, float]"))
      .def("_split", &split, "colour"_a, "key"_a)
      .def("_shrink", &shrink)
      .def("_grow", &grow)
      .def("_begin_started", &communicator::begin_started)
      .def("_end_started", &communicator::end_started)
      .def("_set_worker", &communicator::set_worker)
      .def("close", &communicator::close,
           "Waits for started calls, and frees the communicator. `with` closes, too. A second call does nothing.")
      .def("abort", &communicator::abort, "reason"_a,
           "Ends all calls, also later ones, on all ranks with PeerFailedError and the reason. Any thread may call it.")
      .def(
          "barrier", [](communicator& self) { self.call(&spar_start_barrier); },
          "Waits until all ranks have called it.")
      .def("allreduce", &allreduce, "values"_a.none(), "op"_a.none() = "sum", "algorithm"_a = nb::none(),
           "out"_a = nb::none(),
           nb::sig("def allreduce(self, values: ArrayT, op: str = 'sum', algorithm: object = None, "
                   "out: ArrayT | None = None) -> ArrayT"),
           R"(Reduces the values of all ranks, in place or to `out`, and returns that array.

Args:
    values: a contiguous array of float32, float64, float16, bfloat16, int32 or int64, of the same size on all ranks.
        The values of bfloat16 are reduced as float32, and rounded at the end.
    op: 'sum', 'average', 'min', 'max' or 'prod'; integers wrap around.
    algorithm: the text of a composition, such as 'ring' or 'ok_topk:0.01', or a Composition; None is the cheapest of
        SparCML's algorithms.
    out: an array like `values`, which then remain unchanged.)")
      .def("allgather", &allgather, "values"_a.none(), nb::sig("def allgather(self, values: ArrayT) -> ArrayT"),
           "Gathers in place: rank r contributes the elements of block(values.size, self.size, r). Returns values.")
      .def("broadcast", &broadcast, "values"_a.none(), "root"_a = 0,
           nb::sig("def broadcast(self, values: ArrayT, root: int = 0) -> ArrayT"),
           "Copies the values of the rank `root` to all ranks, in place. Returns values.")
      .def("reduce_scatter", &reduce_scatter, "values"_a.none(), "op"_a.none() = "sum", "bounds"_a = nb::none(),
           nb::sig("def reduce_scatter(self, values: ArrayT, op: str = 'sum', "
                   "bounds: collections.abc.Sequence[int] | None = None) -> ArrayT"),
           R"(Reduces the values of all ranks in place, and returns this rank's block of them, a view of one dimension.

The other values are unspecified afterwards. Rank r has block(values.size, self.size, r) or, with `bounds`, the elements
from bounds[r] to bounds[r + 1]; bounds ascends from 0 to values.size and is equal on all ranks. `op` is as of
allreduce.)");
  module.def(
      "block",
      [](std::int64_t n, int size, int rank) {
        std::int64_t begin = 0, end = 0;
        check(spar_block(n, size, rank, &begin, &end));
        return nb::make_tuple(begin, end);
      },
      "n"_a, "size"_a, "rank"_a, nb::sig("def block(n: int, size: int, rank: int) -> tuple[int, int]"),
      "The elements [begin, end) of rank `rank` if n elements are divided evenly among `size` ranks. Raises\n"
      "InvalidArgumentError unless n is at least 0, and rank from 0 to size - 1.");
}

} // namespace spar_python
