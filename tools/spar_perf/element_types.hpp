// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The types that --type names, if this compiler supports them.
#pragma once

#include "options.hpp"
#include "units.hpp"

#include <spar/core/element.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace spar::perf {

/// T represents all whole numbers up to this limit exactly.
template <class T>
inline constexpr std::uint64_t exact_limit = std::uint64_t{1} << 31;
template <>
inline constexpr std::uint64_t exact_limit<float> = std::uint64_t{1} << 24;
template <>
inline constexpr std::uint64_t exact_limit<double> = std::uint64_t{1} << 53;
#ifdef SPAR_HAS_HALF
template <>
inline constexpr std::uint64_t exact_limit<spar::half> = std::uint64_t{1} << 11;
#endif
#ifdef SPAR_HAS_BFLOAT16
template <>
inline constexpr std::uint64_t exact_limit<spar::bfloat16> = std::uint64_t{1} << 8;
#endif

template <class T>
struct type_is {
  using type = T;
};

/// Calls f(type_is<T>{}, type_is<Index>{}) for the types that the options name. Throws `missing` for a type that the
/// compiler lacks. Each pair of types compiles every system once more, so 64-bit indices are compiled for float and
/// double only. SPAR_PERF_FEW_TYPES omits the types that the quick tests do not use.
template <class F>
auto with_types(const options& o, F f) {
  const type_is<std::uint32_t> narrow;
#ifdef SPAR_PERF_FEW_TYPES
  if (o.index_bits == 64 || (o.type != "float" && o.type != "int32"))
    throw missing("this spar_perf was compiled for the quick tests, with float, int32 and 32-bit indices only");
  if (o.type == "float") return f(type_is<float>{}, narrow);
  return f(type_is<std::int32_t>{}, narrow);
#else
  const type_is<std::uint64_t> wide;
  if (o.type == "float") return o.index_bits == 64 ? f(type_is<float>{}, wide) : f(type_is<float>{}, narrow);
  if (o.type == "double") return o.index_bits == 64 ? f(type_is<double>{}, wide) : f(type_is<double>{}, narrow);
  if (o.index_bits == 64) throw missing("spar_perf supports 64-bit indices for float and double, not for " + o.type);
  if (o.type == "int32") return f(type_is<std::int32_t>{}, narrow);
  if (o.type == "int64") return f(type_is<std::int64_t>{}, narrow);
#ifdef SPAR_HAS_HALF
  if (o.type == "half") return f(type_is<spar::half>{}, narrow);
#endif
#ifdef SPAR_HAS_BFLOAT16
  if (o.type == "bfloat16") return f(type_is<spar::bfloat16>{}, narrow);
#endif
  throw missing("the compiler that built spar_perf has no type " + o.type);
#endif
}

} // namespace spar::perf
