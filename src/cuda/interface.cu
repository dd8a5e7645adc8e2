// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of <spar/spar_cuda.h>.
#include "calls.cuh"

#include <spar/spar_cuda.h>

#include <spar/system/any/systems.hpp>

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1::c {

namespace {

/// The ranks of a communicator on the devices of its calls.
class ranks_on_devices final : public object {
 public:
  ~ranks_on_devices() override {
    while (!ranks_.empty()) {
      const detail::home_device::scope here(ranks_.begin()->second.transport().device());
      ranks_.erase(ranks_.begin());
    }
  }
  /// That on the current device.
  device_rank* current(any_transport& net) { return &ranks_.try_emplace(current_device(), net).first->second; }

 private:
  std::map<int, device_rank> ranks_;
};

/// The rank of `comm` on the current device. If CUDA fails, aborts the communicator.
device_caller caller_of(spar_comm comm, std::shared_ptr<communicator> on) {
  device_rank* const rank = or_transport_error([&] {
    return detail::or_abort(on->net(), [&] {
      if (on->devices == nullptr) on->devices = std::make_shared<ranks_on_devices>();
      return static_cast<ranks_on_devices&>(*on->devices).current(on->net());
    });
  });
  return {comm, std::move(on), rank};
}

/// Ends a call at once, or keeps its handle in `to`, if that is not null.
void finish(const std::shared_ptr<request>& call, spar_request* to) {
  if (to != nullptr)
    *to = handle_for<spar_request>(call);
  else
    call->wait();
}

composition_text text_of(const char* algorithm) {
  return detail::read_any_text(algorithm == nullptr ? "sparcml" : algorithm);
}

/// Calls `f(std::type_identity<T>())` for the type of C++ that `type` names. Throws `invalid_argument` if there are no
/// kernels for it.
template <class F>
void for_type_on_device(int type, const F& f) {
  for_type(type, [&]<class T>(std::type_identity<T> values) {
    if constexpr (std::is_arithmetic_v<T>)
      f(values);
    else
      raise<invalid_argument>({"there are no kernels for values of the type SPAR_HALF in device memory"});
  });
}

void allreduce_values(spar_comm comm, void* values, std::int64_t n, int type, spar_op op, const char* algorithm,
                      void* stream, spar_request* request) {
  const auto on = open_communicator(comm);
  const used_operation by = operation_of(op, type);
  for_type_on_device(type, [&]<class T>(std::type_identity<T>) {
    const auto x = checked_array<T>(values, n, "values");
    const composition_text of = text_of(algorithm);
    start_on_device<T>(of, by.what, nullptr, {}); // before a rank is made, which is a collective call over threads
    const device_caller its = caller_of(comm, on);
    finish(start_on_device<T>(of, by.what, &its, {x.data(), x.size(), static_cast<cudaStream_t>(stream)}), request);
  });
}

/// The object of `its` on the current device, to which the residual and the state move.
template <class T>
std::shared_ptr<device_feedback_object<T>> on_current_device(typed_feedback<T, std::uint32_t>& its) {
  auto object = std::static_pointer_cast<device_feedback_object<T>>(its.device);
  if (object != nullptr && object->number() == current_device()) return object;
  const any_bytes state = its.save(); // moves them to host memory
  object = feedback_on_device_by<T>(text_of(its.algorithm().c_str()), true);
  object->load({state.data(), state.size()});
  its.device = object;
  return object;
}

void reduce_feedback(spar_feedback handle, spar_comm comm, void* values, std::int64_t n, spar_op op, void* stream,
                     spar_request* request) {
  const auto on = open_communicator(comm);
  const auto call = [&]<class T, class Index>(const std::shared_ptr<typed_feedback<T, Index>>& its,
                                              const used_operation& by, std::type_identity<T>) {
    if constexpr (!std::is_arithmetic_v<T> || !std::same_as<Index, std::uint32_t>) {
      raise<invalid_argument>({"there are no kernels for error feedback with values of the type SPAR_HALF or 64-bit "
                               "indices; create 'feedback' with SPAR_FLOAT or SPAR_DOUBLE, and 32-bit indices"});
    } else {
      const auto x = checked_array<T>(values, n, "values");
      feedback_on_device_by<T>(text_of(its->algorithm().c_str()), false); // as above
      const device_caller caller = caller_of(comm, on);
      const auto object =
          detail::or_abort(on->net(), [&] { return or_transport_error([&] { return on_current_device<T>(*its); }); });
      finish(object->start(object, caller, {x.data(), x.size(), static_cast<cudaStream_t>(stream)}, by.what), request);
    }
  };
  with_feedback(handle, op, call);
}

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar::c;

extern "C" {

int spar_device_check(int type, spar_op op, const char* algorithm) {
  return guarded(__func__, nullptr, [&] {
    const used_operation by = operation_of(op, type);
    for_type_on_device(
        type, [&]<class T>(std::type_identity<T>) { start_on_device<T>(text_of(algorithm), by.what, nullptr, {}); });
  });
}

int spar_device_allreduce(spar_comm comm, void* values, int64_t n, int type, spar_op op, const char* algorithm,
                          void* stream) {
  return guarded(__func__, comm, [&] { allreduce_values(comm, values, n, type, op, algorithm, stream, nullptr); });
}
int spar_start_device_allreduce(spar_comm comm, void* values, int64_t n, int type, spar_op op, const char* algorithm,
                                void* stream, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    allreduce_values(comm, values, n, type, op, algorithm, stream, request);
  });
}

int spar_device_feedback_reduce(spar_feedback feedback, spar_comm comm, void* values, int64_t n, spar_op op,
                                void* stream) {
  return guarded(__func__, comm, [&] { reduce_feedback(feedback, comm, values, n, op, stream, nullptr); });
}
int spar_start_device_feedback_reduce(spar_feedback feedback, spar_comm comm, void* values, int64_t n, spar_op op,
                                      void* stream, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    reduce_feedback(feedback, comm, values, n, op, stream, request);
  });
}

} // extern "C"
