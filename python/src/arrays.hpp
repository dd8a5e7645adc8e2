// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arrays that callers pass: NumPy, torch, CuPy, and whatever has the buffer protocol, DLPack or the CUDA array
// interface.
#pragma once

#include "device.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spar_python {

namespace nb = nanobind;

/// The types of elements that spar takes: values, and integers for indices. `other` is refused by name.
enum class element : std::uint8_t { float32, float64, float16, bfloat16, int32, int64, uint32, uint64, other };

/// How a call uses an array.
enum class access : std::uint8_t { read, write };

/// Where a call takes an array: in host memory, to which an array of a device is copied, or wherever it is.
enum class place : std::uint8_t { host, anywhere };

/// A contiguous array, for as long as the object lives. Construction and destruction need the GIL.
class array {
 public:
  /// Throws TypeError or ValueError with the `name` of the argument unless `from` is a contiguous array, which for
  /// `access::write` is writable, in this process's memory or on a device. Raises TransportError if CUDA fails.
  array(nb::handle from, const char* name, access use, place where = place::host);
  array(const array&) = delete;
  ~array();

  /// The elements in host memory.
  [[nodiscard]] void* data() const noexcept { return data_; }
  /// The elements on a CUDA device; null if `data()` has them.
  [[nodiscard]] const device_values* on_device() const noexcept { return there_ ? &*there_ : nullptr; }
  /// Copies elements from a device to the memory of `data()`, with the errors of the constructor. Needs the GIL.
  void to_host();
  /// The number of elements.
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] element type() const noexcept { return type_; }
  [[nodiscard]] const char* name() const noexcept { return name_; }
  /// The name of the elements' type, for errors.
  [[nodiscard]] nb::object type_name() const;
  /// Copies the elements to the device of the caller's array, if it is on one. Needs the GIL.
  void copy_back() const;

 private:
  void from_buffer();
  void copy_by_framework(const std::string& why);
  void from_tensor(access use);
  void from_cuda_interface(const nb::dict& interface, access use);
  void check_contiguous(int dimensions, const std::int64_t* shape, const std::int64_t* strides) const;

  nb::handle from_;
  const char* name_;
  void* data_ = nullptr;
  std::int64_t size_ = 0;
  element type_ = element::other;
  Py_buffer buffer_{}; // if the object has the buffer protocol
  nb::ndarray<nb::ro> tensor_;
  std::optional<device_values> there_;     // the elements of an array on a CUDA device, until `to_host`
  std::unique_ptr<device_copy> on_device_; // their copy
  nb::object copied_;                      // the tensor of the CPU with the elements of one on another device
};

/// The values of a call, as spar reduces them: bfloat16 becomes float in memory of this object.
class call_values {
 public:
  /// Throws TypeError unless spar reduces values of this type.
  explicit call_values(const array& of);

  /// One of `enum spar_type`.
  [[nodiscard]] int type() const noexcept { return type_; }
  [[nodiscard]] void* data() noexcept { return widened_ ? wide_.data() : of_.data(); }
  [[nodiscard]] std::int64_t size() const noexcept { return of_.size(); }
  /// Brings the results to the caller's array: rounds them to bfloat16, and copies them to a device. Needs the GIL.
  void finish() const { finish(of_); }
  /// The same for `out`, an array of the same type.
  void finish(const array& out) const;

 private:
  const array& of_;
  int type_;
  bool widened_;
  std::vector<float> wide_;
};

/// The type of values that an object was made for, by the name of a dtype.
class value_type {
 public:
  /// Throws TypeError unless spar reduces values of this type.
  explicit value_type(const char* dtype);

  /// One of `enum spar_type`.
  [[nodiscard]] int code() const noexcept { return code_; }
  /// Throws TypeError unless the elements of `given` are of this type.
  void check(const array& given) const;

 private:
  element type_;
  int code_;
};

/// The type, one of `enum spar_type`, as which kernels reduce elements on a device; 0 if they do not.
int code_on_device(element type) noexcept;

/// The elements of values of `type`, one of `enum spar_type`, and their size in bytes.
element element_of(int type) noexcept;
std::size_t bytes_of(int type) noexcept;

/// A new NumPy array of `count` elements of `bytes` bytes each, with the type that `type` names.
nb::object new_array(std::int64_t count, element type, void** data);

} // namespace spar_python
