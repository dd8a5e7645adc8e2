// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce of the C interface: dense values and streams, by a composition's text.
#include "algorithm.hpp"
#include "request.hpp"
#include "stream.hpp"

#include <spar/any.hpp>

#include <cstddef>
#include <functional>

namespace spar::inline v0_1::c {

namespace {

void check_overlap(const void* in, const void* out, std::size_t bytes) {
  const auto from = reinterpret_cast<std::uintptr_t>(in), to = reinterpret_cast<std::uintptr_t>(out);
  if (from != to && bytes != 0 && from < to + bytes && to < from + bytes)
    raise<invalid_argument>({"'in' and 'out' overlap: their addresses differ by ", from < to ? to - from : from - to,
                             " bytes, less than the ", bytes,
                             " bytes of the values; expected separate arrays, or the "
                             "same pointer twice"});
}

void allreduce_values(spar_comm comm, const void* in, void* out, std::int64_t n, int type, spar_op op,
                      const char* algorithm, spar_request* request) {
  const auto on = open_communicator(comm);
  const used_operation by = operation_of(op, type);
  for_type(type, [&]<class T>(std::type_identity<T>) {
    const auto from = checked_array<const T>(in, n, "in");
    const auto to = checked_array<T>(out, n, "out");
    check_overlap(in, out, to.size_bytes());
    const auto reduce = detail::any_results::allreduce(algorithm_of<T, std::uint32_t>(*on, algorithm));
    if (request == nullptr && in == out) return reduce(on->net(), to, by.what);
    if (request == nullptr) return reduce(on->net(), from, to, by.what);
    const auto start = [&] {
      return in == out ? reduce.start(on->net(), to, by.what) : reduce.start(on->net(), from, to, by.what);
    };
    keep_call(comm, on, by, request, start, [] {});
  });
}

void allreduce_streams(spar_comm comm, const spar_vector* mine, spar_op op, const char* algorithm, spar_stream* sum,
                       spar_request* request) {
  const auto on = open_communicator(comm);
  begin_output(sum, "sum");
  check_pointer(mine, "mine");
  const used_operation by = operation_of(op, mine->type);
  for_types(mine->type, mine->index_bits, [&]<class T, class Index>(std::type_identity<T>, std::type_identity<Index>) {
    const sparse_arrays<T, Index> given(*mine);
    const auto reduce = detail::any_results::allreduce(algorithm_of<T, Index>(*on, algorithm));
    const auto finish = [on, by, sum](any_sum<T, Index> result) {
      *sum = handle_of<T, Index>(on, by, std::move(detail::any_results::stream(result)));
    };
    if (request == nullptr) return finish(reduce(on->net(), given.n, given.indices, given.values, by.what));
    const auto start = [&] { return reduce.start(on->net(), given.n, given.indices, given.values, by.what); };
    keep_call(comm, on, by, request, start, finish);
  });
}

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar::c;

extern "C" {

int spar_allreduce(spar_comm comm, const void* in, void* out, int64_t n, int type, spar_op op, const char* algorithm) {
  return guarded(__func__, comm, [&] { allreduce_values(comm, in, out, n, type, op, algorithm, nullptr); });
}
int spar_start_allreduce(spar_comm comm, const void* in, void* out, int64_t n, int type, spar_op op,
                         const char* algorithm, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    allreduce_values(comm, in, out, n, type, op, algorithm, request);
  });
}

int spar_allreduce_sparse(spar_comm comm, const spar_vector* mine, spar_op op, const char* algorithm,
                          spar_stream* sum) {
  return guarded(__func__, comm, [&] { allreduce_streams(comm, mine, op, algorithm, sum, nullptr); });
}
int spar_start_allreduce_sparse(spar_comm comm, const spar_vector* mine, spar_op op, const char* algorithm,
                                spar_stream* sum, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    allreduce_streams(comm, mine, op, algorithm, sum, request);
  });
}

} // extern "C"
