// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives of sparse vectors, as indices and values.
#include "sparse.hpp"

#include "bindings.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

namespace spar_python {

using namespace nb::literals;

namespace {

/// Calls f(T()) for the C++ type of `type`, an integer.
template <class F>
void for_index(element type, const F& f) {
  switch (type) {
  case element::int32:
    return f(std::int32_t());
  case element::int64:
    return f(std::int64_t());
  case element::uint32:
    return f(std::uint32_t());
  default:
    return f(std::uint64_t());
  }
}

bool is_index(element type) noexcept {
  return type == element::int32 || type == element::int64 || type == element::uint32 || type == element::uint64;
}

[[noreturn]] void out_of_range(std::size_t position, const std::string& index, std::int64_t n) {
  raise(SPAR_ERR_INVALID_ARGUMENT, "indices[" + std::to_string(position) + "] is " + index +
                                       "; expected at least 0 and less than n, " + std::to_string(n));
}

/// The `count` indices at `from` as integers of the type To: in new memory, which `to` owns, unless they have its size.
template <class To, class From>
const void* converted(const From* from, std::int64_t count, std::int64_t n, std::unique_ptr<std::byte[]>& to) {
  const auto size = static_cast<std::size_t>(count);
  const void* indices = from;
  const auto limit = static_cast<std::uint64_t>(n);
  std::uint64_t seen = 0; // its highest bit becomes 1 at an index below 0 or of at least n; the loops are vectorised
  const auto look = [&](From index) {
    const auto wide = static_cast<std::uint64_t>(index);
    seen |= wide | (limit - 1 - wide);
  };
  if constexpr (sizeof(From) == sizeof(To)) {
    for (std::size_t i = 0; i < size; ++i) look(from[i]);
  } else {
    to = std::make_unique_for_overwrite<std::byte[]>(size * sizeof(To));
    auto* const all = reinterpret_cast<To*>(to.get());
    for (std::size_t i = 0; i < size; ++i) {
      look(from[i]);
      all[i] = static_cast<To>(from[i]);
    }
    indices = all;
  }
  if (seen >> 63 != 0) {
    for (std::size_t i = 0; i < size; ++i)
      if (static_cast<std::uint64_t>(from[i]) >= limit) out_of_range(i, std::to_string(from[i]), n);
  }
  return indices;
}

nb::tuple allreduce_sparse(communicator& self, std::int64_t n, nb::handle indices, nb::handle values, bool ascending,
                           nb::handle op, nb::handle algorithm) {
  const algorithm_text text(algorithm);
  const spar_op by = operation_of(op);
  const sparse_entries mine(n, indices, values, ascending);
  owned_stream sum;
  self.call([&](spar_comm comm, spar_request* request) {
    return spar_start_allreduce_sparse(comm, mine.view(), by, text.c_str(), sum.to(), request);
  });
  return mine.copy_of(sum.view());
}

nb::list allgather_sparse(communicator& self, std::int64_t n, nb::handle indices, nb::handle values, bool ascending) {
  const sparse_entries mine(n, indices, values, ascending);
  spar_gathered all = nullptr;
  self.call([&](spar_comm comm, spar_request* request) {
    return spar_start_allgather_sparse(comm, mine.view(), &all, request);
  });
  const struct freed {
    ~freed() { static_cast<void>(spar_gathered_free(&all)); }
    spar_gathered& all;
  } at_end{all};
  nb::list parts;
  for (int rank = 0; rank < self.size(); ++rank) {
    spar_vector view;
    check(spar_gathered_view(all, rank, &view));
    parts.append(mine.copy_of(view));
  }
  return parts;
}

nb::tuple reduce_scatter_sparse(communicator& self, std::int64_t n, nb::handle indices, nb::handle values,
                                bool ascending, nb::handle op, const std::optional<std::vector<std::int64_t>>& bounds) {
  const spar_op by = operation_of(op);
  const sparse_entries mine(n, indices, values, ascending);
  check_bounds(self, bounds);
  owned_stream block;
  self.call([&](spar_comm comm, spar_request* request) {
    return spar_start_reduce_scatter_sparse(comm, mine.view(), by, bounds ? bounds->data() : nullptr, block.to(),
                                            request);
  });
  return mine.copy_of(block.view());
}

nb::tuple coalesce(std::int64_t n, nb::handle indices, nb::handle values, nb::handle op) {
  const spar_op by = operation_of(op);
  const sparse_entries entries(n, indices, values, true); // the library sums entries in any order
  owned_stream sum;
  check(spar_coalesce(entries.view(), by, sum.to()));
  return entries.copy_of(sum.view());
}

} // namespace

sparse_entries::sparse_entries(std::int64_t n, nb::handle indices, nb::handle values, bool ascending)
    : indices_(indices, "indices", access::read), values_(values, "values", access::read), x_(values_) {
  if (n < 0) raise(SPAR_ERR_INVALID_ARGUMENT, "n is " + std::to_string(n) + "; expected at least 0");
  if (!is_index(indices_.type())) {
    PyErr_Format(PyExc_TypeError, "indices has elements of the type %S; expected integers of 32 or 64 bits",
                 indices_.type_name().ptr());
    throw nb::python_error();
  }
  if (indices_.size() != values_.size())
    raise(SPAR_ERR_INVALID_ARGUMENT, "indices has " + std::to_string(indices_.size()) + " elements, but values has " +
                                         std::to_string(values_.size()) + "; expected as many");
  const bool narrow = n <= std::int64_t{1} << 32;
  view_ = {.n = n,
           .count = values_.size(),
           .indices = nullptr,
           .values = x_.data(),
           .first = 0,
           .index_bits = narrow ? 32 : 64,
           .type = x_.type()};
  for_index(indices_.type(), [&]<class From>(From) {
    const auto* from = static_cast<const From*>(indices_.data());
    view_.indices = narrow ? converted<std::uint32_t>(from, view_.count, n, own_indices_)
                           : converted<std::uint64_t>(from, view_.count, n, own_indices_);
  });
  if (!ascending) {
    check(spar_coalesce(&view_, SPAR_SUM, sums_.to()));
    view_ = sums_.view();
  }
  static constexpr std::uint64_t none = 0;
  if (view_.indices == nullptr) view_.indices = &none; // an empty array; NULL would mean a dense vector
}

nb::tuple sparse_entries::copy_of(const spar_vector& view, element index) {
  void* indices = nullptr;
  void* values = nullptr;
  const nb::object index_array = new_array(view.count, index, &indices);
  const nb::object value_array = new_array(view.count, element_of(view.type), &values);
  const auto count = static_cast<std::size_t>(view.count);
  for_index(index, [&]<class To>(To) {
    auto* to = static_cast<To*>(indices);
    if (view.indices == nullptr) {
      for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<To>(view.first + static_cast<std::int64_t>(i));
    } else if (view.index_bits == 32) {
      std::copy_n(static_cast<const std::uint32_t*>(view.indices), count, to);
    } else {
      std::copy_n(static_cast<const std::uint64_t*>(view.indices), count, to);
    }
  });
  if (count != 0) std::memcpy(values, view.values, count * bytes_of(view.type));
  return nb::make_tuple(index_array, value_array);
}

void bind_sparse(nb::module_& module, nb::class_<communicator>& type) {
  type.def("_allreduce_sparse", &allreduce_sparse, "n"_a, "indices"_a.none(), "values"_a.none(), "ascending"_a,
           "op"_a.none(), "algorithm"_a.none(),
           nb::sig("def _allreduce_sparse(self, n: int, indices: object, values: object, ascending: bool, op: str, "
                   "algorithm: object) -> tuple[typing.Any, typing.Any]"))
      .def("_allgather_sparse", &allgather_sparse, "n"_a, "indices"_a.none(), "values"_a.none(), "ascending"_a,
           nb::sig("def _allgather_sparse(self, n: int, indices: object, values: object, ascending: bool) -> "
                   "list[tuple[typing.Any, typing.Any]]"))
      .def(
          "_reduce_scatter_sparse", &reduce_scatter_sparse, "n"_a, "indices"_a.none(), "values"_a.none(), "ascending"_a,
          "op"_a.none(), "bounds"_a.none(),
          nb::sig("def _reduce_scatter_sparse(self, n: int, indices: object, values: object, ascending: bool, op: str, "
                  "bounds: collections.abc.Sequence[int] | None) -> tuple[typing.Any, typing.Any]"));
  module.def("coalesce", &coalesce, "n"_a, "indices"_a.none(), "values"_a.none(), "op"_a.none(),
             nb::sig("def coalesce(n: int, indices: object, values: object, op: str) -> "
                     "tuple[typing.Any, typing.Any]"));
}

} // namespace spar_python
