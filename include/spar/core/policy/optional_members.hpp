// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the names of optional members of parts, so that a member of a form that spar never calls is rejected, and not
// silently ignored.
#pragma once

#include <spar/core/compiler.hpp>

#include <type_traits>

namespace spar::inline v0_1::detail {

struct no_members {};
/// A class that inherits a name twice, and so ambiguously, if `Part` has a member of the name of the member of `Named`.
/// Nothing is inherited from a final class.
template <class Part, class Named>
struct with_name : std::conditional_t<std::is_final_v<Part>, no_members, Part>, Named {};

struct bounds_name {
  int bounds;
};
struct period_name {
  int period;
};
struct can_encode_name {
  int can_encode;
};
struct cost_name {
  int cost;
};
struct relative_error_name {
  int relative_error;
};
struct absolute_error_name {
  int absolute_error;
};

// Whether a part has a member of this name, in any form.
template <class Part>
concept names_bounds = !requires { &with_name<Part, bounds_name>::bounds; };
template <class Part>
concept names_period = !requires { &with_name<Part, period_name>::period; };
template <class Part>
concept names_can_encode = !requires { &with_name<Part, can_encode_name>::can_encode; };
template <class Part>
concept names_cost = !requires { &with_name<Part, cost_name>::cost; };
template <class Part>
concept names_relative_error = !requires { &with_name<Part, relative_error_name>::relative_error; };
template <class Part>
concept names_absolute_error = !requires { &with_name<Part, absolute_error_name>::absolute_error; };

} // namespace spar::inline v0_1::detail
