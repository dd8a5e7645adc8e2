// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks of the arguments of the C interface: what the types of C++ refuse when a program is compiled.
#pragma once

#include "handles.hpp"

#include <spar/spar.h>

#include <spar/any.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

namespace spar::inline v0_1::c {

template <class T>
void check_pointer(T* pointer, const char* argument) {
  if (pointer == nullptr) raise<invalid_argument>({"the pointer '", argument, "' is NULL"});
}

/// Sets the handle that a function is about to return to NULL, which it remains after an error.
template <class Handle>
void begin_output(Handle* to, const char* argument) {
  check_pointer(to, argument);
  *to = Handle{};
}

constexpr std::int64_t signed_of(std::uint64_t count) noexcept { return static_cast<std::int64_t>(count); }

inline std::uint64_t checked_count(std::int64_t count, const char* argument) {
  if (count < 0) raise<invalid_argument>({"'", argument, "' is ", count, "; expected at least 0"});
  return static_cast<std::uint64_t>(count);
}

/// The array of `count` values at `pointer`. Throws `invalid_argument` unless it can be one.
template <class T>
std::span<T> checked_array(std::conditional_t<std::is_const_v<T>, const void*, void*> pointer, std::int64_t count,
                           const char* argument, const char* count_argument = "n") {
  const std::uint64_t size = checked_count(count, count_argument);
  if (size > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T))
    raise<invalid_argument>({"'", count_argument, "' is ", size, ", which is more values than memory can have"});
  if (pointer == nullptr && size != 0)
    raise<invalid_argument>({"the pointer '", argument, "' is NULL, but '", count_argument, "' is ", size});
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) != 0)
    raise<invalid_argument>(
        {"the address in '", argument, "' is not a multiple of ", alignof(T), ", the alignment of its values"});
  return {static_cast<T*>(pointer), static_cast<std::size_t>(size)};
}

/// Calls `f(std::type_identity<T>())` for the type of C++ that `type` names.
template <class F>
auto for_type(int type, const F& f) {
  switch (type) {
  case SPAR_FLOAT:
    return f(std::type_identity<float>());
  case SPAR_DOUBLE:
    return f(std::type_identity<double>());
  case SPAR_INT32:
    return f(std::type_identity<std::int32_t>());
  case SPAR_INT64:
    return f(std::type_identity<std::int64_t>());
#ifdef SPAR_HAS_HALF
  case SPAR_HALF:
    return f(std::type_identity<half>());
#else
  case SPAR_HALF:
    raise<invalid_argument>({"'type' is SPAR_HALF, which this library was compiled without"});
#endif
  }
  raise<invalid_argument>({"'type' is ", type, "; expected SPAR_FLOAT (", int{SPAR_FLOAT}, "), SPAR_DOUBLE (",
                           int{SPAR_DOUBLE}, "), SPAR_INT32 (", int{SPAR_INT32}, "), SPAR_INT64 (", int{SPAR_INT64},
                           ") or SPAR_HALF (", int{SPAR_HALF}, ")"});
}

/// The same for the type of indices of `bits` bits.
template <class F>
auto for_index(int bits, const F& f) {
  if (bits == 32) return f(std::type_identity<std::uint32_t>());
  if (bits == 64) return f(std::type_identity<std::uint64_t>());
  raise<invalid_argument>({"'index_bits' is ", bits, "; expected 32 or 64"});
}

template <class F>
auto for_types(int type, int index_bits, const F& f) {
  return for_type(type, [&]<class T>(std::type_identity<T> values) {
    return for_index(index_bits, [&]<class Index>(std::type_identity<Index> indices) { return f(values, indices); });
  });
}

/// The arrays of a sparse vector, of which the collectives check the indices.
template <class T, class Index>
struct sparse_arrays {
  explicit sparse_arrays(const spar_vector& given)
      : n(checked_count(given.n, "n")),
        indices(checked_array<const Index>(given.indices, given.count, "indices", "count")),
        values(checked_array<const T>(given.values, given.count, "values", "count")) {
    if (given.first != 0)
      raise<invalid_argument>({"'first' is ", given.first, "; expected 0, the value for whole vectors"});
  }

  std::uint64_t n;
  std::span<const Index> indices;
  std::span<const T> values;
};

/// An operation of the program's own, which a handle refers to.
class operation_object final : public object {
 public:
  static constexpr kind handles = kind::operation;

  int type = 0;
  std::string name;
  spar_function* function = nullptr;
  void* context = nullptr;
  alignas(8) std::byte neutral[8]{};
  own_operation own{};
};

/// An operation, and the owner of its function if it is one of the program's.
struct used_operation {
  any_operation what{};
  std::shared_ptr<operation_object> owner{};
};

/// The operation `op` for values of the type `type`.
used_operation operation_of(spar_op op, int type);

} // namespace spar::inline v0_1::c
