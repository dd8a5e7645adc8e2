// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback in the C interface: the objects.
#pragma once

#include "arguments.hpp"
#include "communicator.hpp"

#include <spar/any.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar::inline v0_1::c {

/// The residual and the state of an error feedback while they are in memory of a device.
class feedback_on_device : public object {
 public:
  /// The bytes of `any_feedback::save`. Throws `invalid_argument` if a call has not ended, and `transport_error` if
  /// CUDA fails.
  [[nodiscard]] virtual std::vector<std::byte> save() const = 0;
};

/// An allreduce with error feedback.
class feedback : public object {
 public:
  static constexpr kind handles = kind::feedback;

  feedback(int type, int index_bits, const char* algorithm)
      : algorithm_(algorithm), type_(type), index_bits_(index_bits) {}

  [[nodiscard]] virtual const void* residual(std::int64_t& n) = 0;
  [[nodiscard]] virtual any_bytes save() = 0;
  virtual void load(std::span<const std::byte> saved) = 0;
  virtual void take_over(std::span<const std::byte> saved) = 0;
  /// The text of the composition.
  [[nodiscard]] const std::string& algorithm() const noexcept { return algorithm_; }
  [[nodiscard]] int type() const noexcept { return type_; }
  [[nodiscard]] int index_bits() const noexcept { return index_bits_; }

  std::shared_ptr<feedback_on_device> device; ///< null if the residual is in host memory

 private:
  std::string algorithm_;
  int type_;
  int index_bits_;
};

template <class T, class Index>
class typed_feedback final : public feedback {
 public:
  typed_feedback(const communicator& on, int type, int index_bits, const char* algorithm)
      : feedback(type, index_bits, algorithm), reduce_(algorithm, on.hosts()) {}

  /// The object of a call of `net` on values in host memory, after the residual has moved there. If that fails, aborts
  /// the communicator: other ranks may wait for the call.
  [[nodiscard]] any_feedback<T, Index>& reduce(any_transport& net) {
    detail::or_abort(net, [&] { on_host(); });
    return reduce_;
  }
  [[nodiscard]] const void* residual(std::int64_t& n) override {
    const std::span<const T> values = on_host().residual();
    n = signed_of(values.size());
    return values.data();
  }
  [[nodiscard]] any_bytes save() override { return on_host().save(); }
  void load(std::span<const std::byte> saved) override { on_host().load(saved); }
  void take_over(std::span<const std::byte> saved) override { on_host().take_over(saved); }

 private:
  any_feedback<T, Index>& on_host() {
    if (device) {
      reduce_.load(device->save());
      device = nullptr;
    }
    return reduce_;
  }

  any_feedback<T, Index> reduce_;
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

} // namespace spar::inline v0_1::c
