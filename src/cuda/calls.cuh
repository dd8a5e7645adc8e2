// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls on values in device memory by the text of a composition: what spar_cuda.h needs of each type of values.
#pragma once

#include "../c/feedback.hpp"
#include "../c/request.hpp"

#include <spar/on_device.cuh>
#include <spar/runtime/signature.hpp>
#include <spar/system/text/composition_text.hpp>
#include <spar/transport/any.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace spar::inline v0_1::c {

/// A rank of a communicator of C for values in device memory.
using device_rank = on_device<any_transport>;

/// The rank by which a call is made.
struct device_caller {
  spar_comm comm;
  std::shared_ptr<communicator> on;
  device_rank* rank; // belongs to `on`
};

/// Calls `f()`. An error of CUDA becomes a `transport_error`, which has a code in C.
template <class F>
auto or_transport_error(const F& f) {
  try {
    return f();
  } catch (const cuda_error& e) {
    raise<transport_error>({std::string_view(e.what())});
  }
}

/// Throws `invalid_argument`: there are no kernels for the composition.
template <class T>
[[noreturn, gnu::cold]] void refuse_composition(const composition_text& of) {
  raise<invalid_argument>({"there are no kernels for the composition of '", of.text, "' and values of the type ",
                           detail::name_of(code_of<T>).c_str(), " in device memory; pass values in host memory"});
}

/// A call on values in device memory that has started. `Kept` is what must live as long as the call.
template <class Pending, class Kept>
class device_request final : public request {
 public:
  template <class Start>
  device_request(const device_caller& by, Kept kept, const Start& start)
      : request(by.comm, by.on), device_(by.rank->transport().device()), kept_(std::move(kept)), call_(start()) {}

  bool done() override {
    return there([&] { return call_.done(); });
  }
  bool wait_for(double seconds) override {
    return there([&] { return call_.wait_for(seconds); });
  }
  void wait() override {
    there([&] { call_.wait(); });
  }
  void cancel() override { call_.cancel(); }

 private:
  /// Calls `f()` while the device of the call is the current one.
  template <class F>
  auto there(const F& f) {
    const detail::home_device::scope here(device_);
    return or_transport_error(f);
  }

  const detail::home_device& device_; // of the communicator, which the base keeps
  Kept kept_;
  Pending call_;
};

/// The request of the call that `start()` starts.
template <class Kept, class Start>
std::shared_ptr<request> device_request_of(const device_caller& by, Kept kept, const Start& start) {
  using call = device_request<std::invoke_result_t<const Start&>, Kept>;
  return or_transport_error([&] { return std::make_shared<call>(by, std::move(kept), start); });
}

/// The number of the current device.
inline int current_device() {
  int number = 0;
  detail::check_cuda(cudaGetDevice(&number), "cudaGetDevice");
  return number;
}

// Each of the following functions checks a call, and then, if `by` is not null or `make` is true, starts it or makes
// the object. They throw `invalid_argument` if there are no kernels for the composition, its options, values of T or
// the operation. Other files have them for each type of values and each kind of composition.

/// Starts an allreduce of `x` by the composition `of`, whose selector is a `Selector`.
template <class T, class Selector>
std::shared_ptr<request> start_selected(const composition_text& of, any_operation op, const device_caller* by,
                                        device_span<T> x);
/// The same for any selector.
template <class T>
std::shared_ptr<request> start_on_device(const composition_text& of, any_operation op, const device_caller* by,
                                         device_span<T> x) {
  if (std::holds_alternative<selector::everything>(of.select))
    return start_selected<T, selector::everything>(of, op, by, x);
  if constexpr (is_floating<T>) {
    if (std::holds_alternative<selector::named_selector>(of.select))
      return start_selected<T, selector::named_selector>(of, op, by, x);
  }
  refuse_composition<T>(of);
}

/// An error feedback whose residual is in device memory.
template <class T>
class device_feedback_object : public feedback_on_device {
 public:
  /// Starts a call on `x`. `self` is an owner of this object.
  [[nodiscard]] virtual std::shared_ptr<request> start(std::shared_ptr<object> self, const device_caller& by,
                                                       device_span<T> x, any_operation op) = 0;
  virtual void load(std::span<const std::byte> saved) = 0;
  /// The number of its device.
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_ = current_device();
};
/// The error feedback around the composition `of`.
template <class T>
std::shared_ptr<device_feedback_object<T>> feedback_on_device_by(const composition_text& of, bool make);

} // namespace spar::inline v0_1::c
