// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The handles of the C interface: numbers of slots in a table, so that a handle that was freed is noticed.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstdint>
#include <memory>
#include <utility>

namespace spar::inline v0_1::c {

/// What a handle of C refers to.
class object {
 public:
  object() = default;
  object(const object&) = delete;
  virtual ~object() = default;
};

/// The types of handles.
enum class kind : std::uint8_t { none, communicator, stream, gathered, request, feedback, partial, operation };

/// Puts `what`, an object of the kind `of`, into the table, and returns its handle, which is never 0. The handle is the
/// number of a slot and the number of its use, and is not an address.
std::uintptr_t add_handle(kind of, std::shared_ptr<object> what);
/// Returns the object of `handle`. Throws `invalid_argument`, which names the `argument`, if the handle is 0, was freed
/// or belongs to an object of another kind.
const std::shared_ptr<object>& object_of(kind of, std::uintptr_t handle, const char* argument);
/// Whether `handle` is that of an object of the kind `of`.
bool is_handle(kind of, std::uintptr_t handle) noexcept;
/// Takes the object of `handle` out of the table. Throws where `object_of` does.
std::shared_ptr<object> remove_handle(kind of, std::uintptr_t handle, const char* argument);

// The same for handles of C, by the kind of objects of the type Object: its member `handles`.

template <class Object, class Handle>
Object& get(Handle handle, const char* argument) {
  return static_cast<Object&>(*object_of(Object::handles, reinterpret_cast<std::uintptr_t>(handle), argument));
}
template <class Object, class Handle>
std::shared_ptr<Object> shared_from(Handle handle, const char* argument) {
  return std::static_pointer_cast<Object>(
      object_of(Object::handles, reinterpret_cast<std::uintptr_t>(handle), argument));
}
/// Sets the handle to NULL if it is valid.
template <class Object, class Handle>
std::shared_ptr<Object> take(Handle* handle, const char* argument) {
  auto taken = remove_handle(Object::handles, reinterpret_cast<std::uintptr_t>(*handle), argument);
  *handle = nullptr;
  return std::static_pointer_cast<Object>(std::move(taken));
}
template <class Handle, class Object>
Handle handle_for(std::shared_ptr<Object> what) {
  return reinterpret_cast<Handle>(add_handle(Object::handles, std::move(what)));
}

} // namespace spar::inline v0_1::c
