// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arrays that callers pass.
#include "arrays.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <spar/spar.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar_python {

namespace {

[[noreturn]] void refuse(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw nb::python_error();
}

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

/// The element that a format of the buffer protocol describes, in the byte order of this machine.
element element_of(const char* format, Py_ssize_t bytes) noexcept {
  if (format == nullptr) return element::other; // unsigned bytes
  if (*format == '@' || *format == '=' || *format == (std::endian::native == std::endian::little ? '<' : '>')) ++format;
  if (*format == '\0' || format[1] != '\0') return element::other;
  if (std::strchr("ilqn", *format) != nullptr && bytes == 4) return element::int32;
  if (std::strchr("ilqn", *format) != nullptr && bytes == 8) return element::int64;
  if (std::strchr("ILQN", *format) != nullptr && bytes == 4) return element::uint32;
  if (std::strchr("ILQN", *format) != nullptr && bytes == 8) return element::uint64;
  if (*format == 'f' && bytes == 4) return element::float32;
  if (*format == 'd' && bytes == 8) return element::float64;
  if (*format == 'e' && bytes == 2) return element::float16;
  return element::other;
}

element element_of(nb::dlpack::dtype type) noexcept {
  if (type.lanes != 1) return element::other;
  switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
  case nb::dlpack::dtype_code::Float:
    if (type.bits == 16) return element::float16;
    if (type.bits == 32) return element::float32;
    return type.bits == 64 ? element::float64 : element::other;
  case nb::dlpack::dtype_code::Bfloat:
    return type.bits == 16 ? element::bfloat16 : element::other;
  case nb::dlpack::dtype_code::Int:
    if (type.bits == 32) return element::int32;
    return type.bits == 64 ? element::int64 : element::other;
  case nb::dlpack::dtype_code::UInt:
    if (type.bits == 32) return element::uint32;
    return type.bits == 64 ? element::uint64 : element::other;
  default:
    return element::other;
  }
}

/// The element that a typestr of NumPy's array interface describes, in the byte order of this machine.
element element_of(std::string_view typestr) noexcept {
  if (typestr.size() != 3 || typestr[0] != (std::endian::native == std::endian::little ? '<' : '>'))
    return element::other;
  const char kind = typestr[1] == 'f'   ? (typestr[2] == '2'   ? 'e'
                                           : typestr[2] == '4' ? 'f'
                                                               : 'd')
                    : typestr[1] == 'i' ? 'q'
                    : typestr[1] == 'u' ? 'Q'
                                        : '?';
  const char format[] = {kind, '\0'};
  return element_of(format, typestr[2] - '0');
}

constexpr const char* names[] = {"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32", "uint64"};
const std::string value_names = "float32, float64, float16, bfloat16, int32 or int64";

/// The type as which spar reduces elements; 0 if it does not.
int code_of(element type) noexcept {
  switch (type) {
  case element::float32:
  case element::bfloat16:
    return SPAR_FLOAT;
  case element::float64:
    return SPAR_DOUBLE;
  case element::float16:
    return SPAR_HALF;
  case element::int32:
    return SPAR_INT32;
  case element::int64:
    return SPAR_INT64;
  default:
    return 0;
  }
}

/// Rounds to the nearest, of ties to the even one; a NaN stays a NaN.
std::uint16_t to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// The array of NumPy that shares the memory of a tensor of torch on the host: 2 µs faster than DLPack. Invalid for
/// other objects, whose numpy() may return a copy, and for tensors of which NumPy has none.
nb::object numpy_of(nb::handle from) {
  if (!text_of(from.type().attr("__module__")).starts_with("torch")) return {};
  PyObject* const array = PyObject_CallMethod(from.ptr(), "numpy", nullptr);
  if (array == nullptr) PyErr_Clear();
  return nb::steal<nb::object>(array);
}

/// The stream that orders the work on an array of a CUDA device: that of its interface, or the current stream of torch.
/// Otherwise the default stream, behind which DLPack without a stream puts earlier work.
std::uintptr_t stream_of(nb::handle from) {
  if (nb::hasattr(from, "data_ptr") && nb::hasattr(from, "is_cuda")) {
    const nb::object current = nb::module_::import_("torch").attr("cuda").attr("current_stream");
    return nb::cast<std::uintptr_t>(current(from.attr("device")).attr("cuda_stream"));
  }
  const nb::object interface = nb::getattr(from, "__cuda_array_interface__", nb::none());
  if (!nb::isinstance<nb::dict>(interface)) return 0;
  const nb::object stream = interface.attr("get")("stream");
  return stream.is_none() ? 0 : nb::cast<std::uintptr_t>(stream); // 1 and 2 are cudaStreamLegacy, cudaStreamPerThread
}

} // namespace

array::array(nb::handle from, const char* name, access use, place where) : from_(from), name_(name) {
  const nb::object numpy = numpy_of(from);
  const nb::handle source = numpy.is_valid() ? nb::handle(numpy) : from;
  if (PyObject_CheckBuffer(source.ptr())) {
    if (PyObject_GetBuffer(source.ptr(), &buffer_, PyBUF_RECORDS_RO) == 0) {
      try {
        if (use == access::write && buffer_.readonly)
          refuse(PyExc_ValueError, std::string(name) + " is read-only; pass a writable array or out=");
        from_buffer();
      } catch (...) {
        PyBuffer_Release(&buffer_);
        throw;
      }
      return;
    }
    PyErr_Clear(); // for example NumPy's arrays of bfloat16, which have a DLPack in some versions
  }
  if (!nb::hasattr(from, "__dlpack__")) {
    const nb::object interface = nb::getattr(from, "__cuda_array_interface__", nb::none());
    if (nb::isinstance<nb::dict>(interface)) {
      from_cuda_interface(nb::cast<nb::dict>(interface), use);
      if (where == place::host) to_host();
      return;
    }
  }
  from_tensor(use);
  if (where == place::host) to_host();
}

array::~array() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void array::from_buffer() {
  std::int64_t strides[PyBUF_MAX_NDIM], shape[PyBUF_MAX_NDIM];
  size_ = 1;
  for (int d = 0; d < buffer_.ndim; ++d) {
    shape[d] = buffer_.shape[d];
    // A stride that is no multiple of the size of an element is that of a field of a structure.
    strides[d] = buffer_.strides[d] % buffer_.itemsize == 0 ? buffer_.strides[d] / buffer_.itemsize : 0;
    size_ *= shape[d];
  }
  check_contiguous(buffer_.ndim, shape, strides);
  data_ = buffer_.buf;
  type_ = element_of(buffer_.format, buffer_.itemsize);
}

void array::from_tensor(access use) {
  // A tensor of torch that autograd watches must not change behind its back.
  if (use == access::write && nb::getattr(from_, "requires_grad", nb::none()).is(nb::bool_(true)))
    refuse(PyExc_ValueError, std::string(name_) + " requires a gradient; pass " + name_ + ".detach()");
  nb::ndarray<> writable;
  if (nb::try_cast(from_, writable, false)) {
    tensor_ = nb::ndarray<nb::ro>(writable);
  } else if (!nb::try_cast(from_, tensor_, false)) {
    const std::string type = text_of(from_.type().attr("__name__"));
    if (!nb::hasattr(from_, "__dlpack__"))
      refuse(PyExc_TypeError, std::string(name_) + " is of the type " + type +
                                  "; expected a NumPy array, a torch tensor, or an object with the buffer protocol, "
                                  "DLPack or the CUDA array interface");
    try {
      from_.attr("__dlpack__")();
    } catch (const nb::python_error& e) {
      refuse(PyExc_TypeError, std::string(name_) + ", of the type " + type +
                                  ", does not give its memory through DLPack: " + text_of(e.value()));
    }
    refuse(PyExc_TypeError, std::string(name_) + ", of the type " + type + ", has no memory that spar can use");
  } else if (use == access::write) {
    refuse(PyExc_ValueError, std::string(name_) + " is read-only; pass a writable array or out=");
  }
  check_contiguous(static_cast<int>(tensor_.ndim()), tensor_.shape_ptr(), tensor_.stride_ptr());
  size_ = static_cast<std::int64_t>(tensor_.size());
  type_ = element_of(tensor_.dtype());
  const bool on_cuda =
      tensor_.device_type() == nb::device::cuda::value || tensor_.device_type() == nb::device::cuda_managed::value;
  if (on_cuda && tensor_.nbytes() > 0)
    there_ = {const_cast<void*>(tensor_.data()), tensor_.nbytes(), stream_of(from_)};
  else if (tensor_.device_type() != nb::device::cpu::value && tensor_.device_type() != nb::device::cuda_host::value)
    copy_by_framework(on_cuda ? std::string(", because ") + device_copy::why_none() : "");
  else
    data_ = const_cast<void*>(tensor_.data());
}

void array::copy_by_framework(const std::string& why) {
  if (!nb::hasattr(from_, "cpu") || !nb::hasattr(from_, "copy_"))
    refuse(PyExc_ValueError, std::string(name_) + " is on the device " +
                                 text_of(nb::getattr(from_, "device", nb::int_(tensor_.device_type()))) +
                                 "; expected a torch tensor, or an array in the memory of the CPU" + why);
  copied_ = from_.attr("cpu")();
  tensor_ = nb::cast<nb::ndarray<nb::ro>>(copied_);
  data_ = const_cast<void*>(tensor_.data());
}

void array::to_host() {
  if (!there_) return;
  on_device_ = device_copy::of(*there_);
  there_.reset();
  if (on_device_)
    data_ = on_device_->data();
  else if (tensor_.is_valid())
    copy_by_framework(std::string(", because ") + device_copy::why_none());
  else
    refuse(PyExc_ValueError, std::string(name_) +
                                 " is on a CUDA device; expected an array in the memory of the CPU, because " +
                                 device_copy::why_none());
}

void array::from_cuda_interface(const nb::dict& interface, access use) {
  const auto shape = nb::cast<std::vector<std::int64_t>>(interface["shape"]);
  const auto typestr = nb::cast<std::string>(interface["typestr"]);
  const auto data = nb::cast<std::pair<std::uintptr_t, bool>>(interface["data"]);
  const auto in_bytes = nb::cast<std::optional<std::vector<std::int64_t>>>(interface.attr("get")("strides"));
  if (!interface.attr("get")("mask").is_none())
    refuse(PyExc_ValueError, std::string(name_) + " has a mask; pass an array without one");
  if (use == access::write && data.second)
    refuse(PyExc_ValueError, std::string(name_) + " is read-only; pass a writable array or out=");
  type_ = element_of(std::string_view(typestr));
  if (type_ == element::other)
    refuse(PyExc_TypeError, std::string(name_) + " has elements of the type " + typestr + "; expected " + value_names);
  const std::int64_t bytes = typestr[2] - '0';
  size_ = 1;
  for (const std::int64_t extent : shape) size_ *= extent;
  if (in_bytes) {
    std::vector<std::int64_t> strides;
    for (const std::int64_t stride : *in_bytes) strides.push_back(stride % bytes == 0 ? stride / bytes : 0);
    check_contiguous(static_cast<int>(shape.size()), shape.data(), strides.data());
  }
  if (size_ == 0) return;
  there_ = {reinterpret_cast<void*>(data.first), static_cast<std::size_t>(size_ * bytes), stream_of(from_)};
}

void array::copy_back() const {
  if (on_device_) on_device_->copy_back();
  if (copied_.is_valid()) from_.attr("copy_")(copied_);
}

void array::check_contiguous(int dimensions, const std::int64_t* shape, const std::int64_t* strides) const {
  std::int64_t expected = 1;
  bool contiguous = true;
  for (int d = dimensions - 1; d >= 0; --d) {
    if (shape[d] == 0) return;
    contiguous = contiguous && (shape[d] == 1 || strides[d] == expected);
    expected *= shape[d];
  }
  if (contiguous) return;
  std::string text = std::string(name_) + " is not contiguous: its shape is (";
  for (int d = 0; d < dimensions; ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  text += "), its strides in elements are (";
  for (int d = 0; d < dimensions; ++d) text += (d == 0 ? "" : ", ") + std::to_string(strides[d]);
  refuse(PyExc_ValueError, text + "); pass a contiguous copy");
}

nb::object array::type_name() const {
  if (const nb::object type = nb::getattr(from_, "dtype", nb::none()); !type.is_none()) return nb::str(type);
  return nb::str(buffer_.format == nullptr ? "B" : buffer_.format);
}

call_values::call_values(const array& of)
    : of_(of), type_(code_of(of.type())), widened_(of.type() == element::bfloat16) {
  if (type_ == 0)
    refuse(PyExc_TypeError, std::string(of.name()) + " has elements of the type " + text_of(of.type_name()) +
                                "; expected " + value_names);
  if (!widened_) return;
  wide_.resize(static_cast<std::size_t>(of.size()));
  const auto* from = static_cast<const std::uint16_t*>(of.data());
  for (float& to : wide_) to = std::bit_cast<float>(static_cast<std::uint32_t>(*from++) << 16);
}

void call_values::finish(const array& out) const {
  auto* to = static_cast<std::uint16_t*>(out.data());
  for (const float value : wide_) *to++ = to_bfloat16(value);
  out.copy_back();
}

int code_on_device(element type) noexcept { return type == element::bfloat16 ? 0 : code_of(type); }

element element_of(int type) noexcept {
  switch (type) {
  case SPAR_FLOAT:
    return element::float32;
  case SPAR_DOUBLE:
    return element::float64;
  case SPAR_HALF:
    return element::float16;
  case SPAR_INT32:
    return element::int32;
  default:
    return element::int64;
  }
}

std::size_t bytes_of(int type) noexcept {
  return type == SPAR_HALF ? 2 : type == SPAR_FLOAT || type == SPAR_INT32 ? 4 : 8;
}

value_type::value_type(const char* dtype) : type_(element::other), code_(0) {
  for (std::size_t i = 0; i < std::size(names); ++i)
    if (std::string_view(dtype) == names[i]) type_ = static_cast<element>(i);
  code_ = code_of(type_);
  if (code_ == 0) refuse(PyExc_TypeError, "dtype is " + std::string(dtype) + "; expected " + value_names);
}

void value_type::check(const array& given) const {
  if (given.type() != type_)
    refuse(PyExc_TypeError, std::string(given.name()) + " has elements of the type " + text_of(given.type_name()) +
                                "; expected " + names[static_cast<std::size_t>(type_)] + ", the dtype of this object");
}

nb::object new_array(std::int64_t count, element type, void** data) {
  static const nb::handle empty = nb::object(nb::module_::import_("numpy").attr("empty")).release(); // never freed
  const nb::object array = empty(count, names[static_cast<std::size_t>(type)]);
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_WRITABLE) != 0) throw nb::python_error();
  *data = buffer.buf;
  PyBuffer_Release(&buffer); // the array keeps its memory
  return array;
}

} // namespace spar_python
