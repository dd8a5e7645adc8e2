// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedules that reduce everything, as lists of types: tests of properties that all such schedules have run each of
// them.
#pragma once

#include <spar/spar.hpp>

#include <concepts>
#include <tuple>
#include <type_traits>

namespace spar_test {

/// Schedules of streams, and the choice among them.
using stream_schedules = std::tuple<spar::recursive_doubling, spar::ring, spar::rabenseifner, spar::ssar_split,
                                    spar::dsar_split, spar::sparcml>;
/// Schedules of dense values, and the choice among them.
using dense_schedules = std::tuple<spar::recursive_doubling, spar::ring, spar::rabenseifner, spar::cheapest>;

namespace detail {

template <template <class...> class List, class... Types>
List<Types...> copied(std::tuple<Types...>);
template <template <class> class Of, class... Types>
std::tuple<Of<Types>...> each(std::tuple<Types...>);
template <class Left, class... Types>
auto without(std::tuple<Types...>)
    -> decltype(std::tuple_cat(std::conditional_t<std::same_as<Types, Left>, std::tuple<>, std::tuple<Types>>()...));

} // namespace detail

/// The types of all `Lists`, one list after the other, as arguments of `List`, for example of testing::Types.
template <template <class...> class List, class... Lists>
using joined = decltype(detail::copied<List>(std::tuple_cat(Lists()...)));
/// `Of<Schedule>` for each schedule of a list.
template <template <class> class Of, class Schedules>
using each = decltype(detail::each<Of>(Schedules()));
/// A list without the schedule `Left`.
template <class Left, class Schedules>
using without = decltype(detail::without<Left>(Schedules()));

} // namespace spar_test
