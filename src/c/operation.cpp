// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The operations of the C interface.
#include "arguments.hpp"
#include "communicator.hpp"

#include <cstring>
#include <string>
#include <utility>

namespace spar::inline v0_1::c {

used_operation operation_of(spar_op op, int type) {
  switch (op) {
  case SPAR_SUM:
    return {sum{}};
  case SPAR_PROD:
    return {product{}};
  case SPAR_MIN:
    return {minimum{}};
  case SPAR_MAX:
    return {maximum{}};
  case SPAR_AVERAGE:
    return {average{}};
  default:
    break;
  }
  if (!is_handle(kind::operation, static_cast<std::uintptr_t>(op)))
    raise<invalid_argument>({"'op' is ", op,
                             "; expected SPAR_SUM, SPAR_PROD, SPAR_MIN, SPAR_MAX, SPAR_AVERAGE or what "
                             "spar_op_create has returned and spar_op_free has not freed"});
  auto owner =
      std::static_pointer_cast<operation_object>(object_of(kind::operation, static_cast<std::uintptr_t>(op), "op"));
  if (owner->type != type)
    raise<invalid_argument>({"the operation '", owner->name, "' is for values of the type ", owner->type,
                             ", but the type of the values is ", type});
  return {any_operation(owner->own), std::move(owner)};
}

} // namespace spar::inline v0_1::c

using namespace spar;
using namespace spar::c;

extern "C" {

int spar_op_create(int type, const char* name, spar_function* function, void* context, const void* neutral,
                   spar_op* op) {
  return guarded(__func__, nullptr, [&] {
    begin_output(op, "op");
    check_pointer(name, "name");
    check_pointer(function, "function");
    check_pointer(neutral, "neutral");
    auto own = std::make_shared<operation_object>();
    for_type(type, [&]<class T>(std::type_identity<T>) { std::memcpy(own->neutral, neutral, sizeof(T)); });
    own->type = type;
    own->name = name;
    own->function = function;
    own->context = context;
    own->own = {.name = own->name,
                .neutral = own->neutral,
                .reduce =
                    [](const void* in, void* inout, std::size_t n, void* self) {
                      const auto& called = *static_cast<const operation_object*>(self);
                      called.function(in, inout, static_cast<std::int64_t>(n), called.context);
                    },
                .context = own.get()};
    *op = static_cast<spar_op>(add_handle(kind::operation, std::move(own)));
  });
}

int spar_op_free(spar_op* op) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(op, "op");
    if (*op != 0) remove_handle(kind::operation, static_cast<std::uintptr_t>(std::exchange(*op, 0)), "op");
  });
}

} // extern "C"
