// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback in the C interface.
#include "feedback.hpp"

#include "request.hpp"
#include "stream.hpp"

#include <spar/any.hpp>
#include <spar/system/any/results-inl.hpp>

#include <cstddef>
#include <cstring>
#include <span>

namespace spar::inline v0_1::c {

namespace {

void reduce_values(spar_feedback handle, spar_comm comm, void* values, std::int64_t n, spar_op op,
                   spar_request* request) {
  const auto on = open_communicator(comm);
  with_feedback(handle, op, [&]<class Its, class T>(const Its& its, const used_operation& by, std::type_identity<T>) {
    const auto x = checked_array<T>(values, n, "values");
    if (request == nullptr) return its->reduce(on->net())(on->net(), x, by.what);
    keep_call(comm, on, its, request, [&] { return its->reduce(on->net()).start(on->net(), x, by.what); }, [] {});
  });
}

void reduce_sparse(spar_feedback handle, spar_comm comm, const void* values, std::int64_t n, spar_op op,
                   spar_stream* sum, spar_request* request) {
  const auto on = open_communicator(comm);
  begin_output(sum, "sum");
  with_feedback(handle, op, [&]<class Its, class T>(const Its& its, const used_operation& by, std::type_identity<T>) {
    const auto x = checked_array<const T>(values, n, "values");
    const auto finish = [on, by, sum](auto result) {
      *sum = handle_of(on, by, std::move(detail::any_results::stream(result.sum)));
    };
    if (request == nullptr) return finish(its->reduce(on->net()).reduce(on->net(), x, by.what));
    keep_call(
        comm, on, its, request, [&] { return its->reduce(on->net()).start_reduce(on->net(), x, by.what); }, finish);
  });
}

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar;
using namespace spar::c;

extern "C" {

int spar_feedback_create(spar_comm comm, int type, int index_bits, const char* algorithm, spar_feedback* feedback) {
  return guarded(__func__, comm, [&] {
    const auto on = open_communicator(comm);
    begin_output(feedback, "feedback");
    check_pointer(algorithm, "algorithm");
    *feedback = for_types_of_feedback(
        type, index_bits, [&]<class T, class Index>(std::type_identity<T>, std::type_identity<Index>) {
          return handle_for<spar_feedback>(std::shared_ptr<c::feedback>(
              std::make_shared<typed_feedback<T, Index>>(*on, type, index_bits, algorithm)));
        });
  });
}

int spar_feedback_reduce(spar_feedback feedback, spar_comm comm, void* values, int64_t n, spar_op op) {
  return guarded(__func__, comm, [&] { reduce_values(feedback, comm, values, n, op, nullptr); });
}
int spar_start_feedback_reduce(spar_feedback feedback, spar_comm comm, void* values, int64_t n, spar_op op,
                               spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    reduce_values(feedback, comm, values, n, op, request);
  });
}

int spar_feedback_reduce_sparse(spar_feedback feedback, spar_comm comm, const void* values, int64_t n, spar_op op,
                                spar_stream* sum) {
  return guarded(__func__, comm, [&] { reduce_sparse(feedback, comm, values, n, op, sum, nullptr); });
}
int spar_start_feedback_reduce_sparse(spar_feedback feedback, spar_comm comm, const void* values, int64_t n, spar_op op,
                                      spar_stream* sum, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    reduce_sparse(feedback, comm, values, n, op, sum, request);
  });
}

int spar_feedback_residual(spar_feedback feedback, const void** values, int64_t* n) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(values, "values");
    check_pointer(n, "n");
    *values = get<c::feedback>(feedback, "feedback").residual(*n);
  });
}

int spar_feedback_saved_size(spar_feedback feedback, int64_t* bytes) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(bytes, "bytes");
    *bytes = signed_of(get<c::feedback>(feedback, "feedback").save().size());
  });
}

int spar_feedback_save(spar_feedback feedback, void* saved, int64_t bytes) {
  return guarded(__func__, nullptr, [&] {
    const auto room = checked_array<std::byte>(saved, bytes, "saved", "bytes");
    const any_bytes all = get<c::feedback>(feedback, "feedback").save();
    if (all.size() > room.size())
      raise<invalid_argument>(
          {"'bytes' is ", bytes, ", but the saved state has ", all.size(), " bytes, as spar_feedback_saved_size says"});
    std::memcpy(room.data(), all.data(), all.size());
  });
}

int spar_feedback_load(spar_feedback feedback, const void* saved, int64_t bytes) {
  return guarded(__func__, nullptr, [&] {
    get<c::feedback>(feedback, "feedback").load(checked_array<const std::byte>(saved, bytes, "saved", "bytes"));
  });
}

int spar_feedback_take_over(spar_feedback feedback, const void* saved, int64_t bytes) {
  return guarded(__func__, nullptr, [&] {
    get<c::feedback>(feedback, "feedback").take_over(checked_array<const std::byte>(saved, bytes, "saved", "bytes"));
  });
}

int spar_feedback_free(spar_feedback* feedback) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(feedback, "feedback");
    if (*feedback != nullptr) take<c::feedback>(feedback, "feedback");
  });
}

} // extern "C"
