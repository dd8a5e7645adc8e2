// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback in the C interface.
#include "request.hpp"
#include "stream.hpp"

#include <spar/any.hpp>
#include <spar/system/any/results-inl.hpp>

#include <cstddef>
#include <cstring>
#include <span>

namespace spar::inline v0_1::c {

namespace {

/// An allreduce with error feedback.
class feedback : public object {
 public:
  static constexpr kind handles = kind::feedback;

  feedback(int type, int index_bits) noexcept : type_(type), index_bits_(index_bits) {}

  [[nodiscard]] virtual const void* residual(std::int64_t& n) const = 0;
  [[nodiscard]] virtual any_bytes save() const = 0;
  virtual void load(std::span<const std::byte> saved) = 0;
  virtual void take_over(std::span<const std::byte> saved) = 0;
  [[nodiscard]] int type() const noexcept { return type_; }
  [[nodiscard]] int index_bits() const noexcept { return index_bits_; }

 private:
  int type_;
  int index_bits_;
};

template <class T, class Index>
class typed_feedback final : public feedback {
 public:
  typed_feedback(const communicator& on, int type, int index_bits, const char* algorithm)
      : feedback(type, index_bits), reduce(algorithm, on.hosts()) {}

  [[nodiscard]] const void* residual(std::int64_t& n) const override {
    const std::span<const T> values = reduce.residual();
    n = signed_of(values.size());
    return values.data();
  }
  [[nodiscard]] any_bytes save() const override { return reduce.save(); }
  void load(std::span<const std::byte> saved) override { reduce.load(saved); }
  void take_over(std::span<const std::byte> saved) override { reduce.take_over(saved); }

  any_feedback<T, Index> reduce;
};

/// As `for_types`, for the types of values of error feedback.
template <class F>
auto for_types_of_feedback(int type, int index_bits, const F& f) {
  return for_types(
      type, index_bits, [&]<class T, class Index>(std::type_identity<T> values, std::type_identity<Index> indices) {
        if constexpr (is_floating<T>) {
          return f(values, indices);
        } else {
          raise<invalid_argument>({"'type' is ", type, "; error feedback takes SPAR_FLOAT (", int{SPAR_FLOAT},
                                   "), SPAR_DOUBLE (", int{SPAR_DOUBLE}, ") or SPAR_HALF (", int{SPAR_HALF}, ")"});
          return decltype(f(std::type_identity<float>(), indices))();
        }
      });
}

/// Calls `f(its)` with the object of `handle` as a typed_feedback, and the operation `op`.
template <class F>
void with_feedback(spar_feedback handle, spar_op op, const F& f) {
  const auto its = shared_from<feedback>(handle, "feedback");
  const used_operation by = operation_of(op, its->type());
  if (by.what.which() != any_operation::kind::sum && by.what.which() != any_operation::kind::average) {
    raise<invalid_argument>({"'op' is ", op,
                             "; error feedback adds unsent values to those of later calls, so it takes "
                             "SPAR_SUM (",
                             int{SPAR_SUM}, ") or SPAR_AVERAGE (", int{SPAR_AVERAGE}, ")"});
  }
  for_types_of_feedback(its->type(), its->index_bits(),
                        [&]<class T, class Index>(std::type_identity<T>, std::type_identity<Index>) {
                          f(std::static_pointer_cast<typed_feedback<T, Index>>(its), by, std::type_identity<T>());
                        });
}

void reduce_values(spar_feedback handle, spar_comm comm, void* values, std::int64_t n, spar_op op,
                   spar_request* request) {
  const auto on = open_communicator(comm);
  with_feedback(handle, op, [&]<class Its, class T>(const Its& its, const used_operation& by, std::type_identity<T>) {
    const auto x = checked_array<T>(values, n, "values");
    if (request == nullptr) return its->reduce(on->net(), x, by.what);
    keep_call(comm, on, its, request, [&] { return its->reduce.start(on->net(), x, by.what); }, [] {});
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
    if (request == nullptr) return finish(its->reduce.reduce(on->net(), x, by.what));
    keep_call(comm, on, its, request, [&] { return its->reduce.start_reduce(on->net(), x, by.what); }, finish);
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
