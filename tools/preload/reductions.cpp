// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "reductions.hpp"

#include <spar/core/op.hpp>

#include <algorithm>
#include <array>
#include <complex>
#include <utility>
#include <vector>

namespace preload {

namespace {

enum class operation : std::uint8_t { sum, product, minimum, maximum, land, lor, lxor, band, bor, bxor, count };

template <operation Op, class T>
T apply(T a, T b) {
  if constexpr (Op == operation::sum) return spar::detail::wrapping(a, b, [](auto x, auto y) { return x + y; });
  if constexpr (Op == operation::product) return spar::detail::wrapping(a, b, [](auto x, auto y) { return x * y; });
  if constexpr (Op == operation::minimum) return b < a ? b : a;
  if constexpr (Op == operation::maximum) return a < b ? b : a;
  if constexpr (Op == operation::land) return static_cast<T>(a != 0 && b != 0);
  if constexpr (Op == operation::lor) return static_cast<T>(a != 0 || b != 0);
  if constexpr (Op == operation::lxor) return static_cast<T>((a != 0) != (b != 0));
  if constexpr (Op == operation::band) return static_cast<T>(a & b);
  if constexpr (Op == operation::bor) return static_cast<T>(a | b);
  if constexpr (Op == operation::bxor) return static_cast<T>(a ^ b);
}

template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<std::complex<T>> = true;

/// Whether MPI defines the operation for the type (MPI 4.0, section 6.9.2).
template <operation Op, class T>
inline constexpr bool is_defined =
    Op <= operation::product || (!is_complex<T> && (Op <= operation::maximum || std::is_integral_v<T>));

template <operation Op, class T, bool Left>
void loop(void* inout, const void* other, std::size_t n) {
  T* __restrict to = static_cast<T*>(inout);
  const T* __restrict from = static_cast<const T*>(other);
  constexpr std::size_t block = 32; // a constant length, so that compilers vectorise the inner loop
  const auto one = [&](std::size_t i) { to[i] = Left ? apply<Op>(from[i], to[i]) : apply<Op>(to[i], from[i]); };
  std::size_t i = 0;
  for (; i + block <= n; i += block)
    for (std::size_t b = 0; b < block; ++b) one(i + b);
  for (; i < n; ++i) one(i);
}

constexpr auto operations = static_cast<std::size_t>(operation::count);
constexpr auto numbers = static_cast<std::size_t>(number::count);
using row = std::array<reduction, operations>;

template <class T, std::size_t... Op>
constexpr row make_row(number type, std::index_sequence<Op...>) {
  row all{};
  const auto fill = [&]<std::size_t O>() {
    constexpr auto op = static_cast<operation>(O);
    if constexpr (is_defined<op, T>) {
      all[O] = {type,
                sizeof(T),
                op == operation::sum,
                static_cast<std::uint64_t>(type) * operations + O + 1,
                {loop<op, T, false>, loop<op, T, true>}};
    }
  };
  (fill.template operator()<Op>(), ...);
  return all;
}
template <class T>
constexpr row make_row(number type) {
  return make_row<T>(type, std::make_index_sequence<operations>{});
}

constexpr std::array<row, numbers> table{make_row<std::int8_t>(number::int8),
                                         make_row<std::int16_t>(number::int16),
                                         make_row<std::int32_t>(number::int32),
                                         make_row<std::int64_t>(number::int64),
                                         make_row<std::uint8_t>(number::uint8),
                                         make_row<std::uint16_t>(number::uint16),
                                         make_row<std::uint32_t>(number::uint32),
                                         make_row<std::uint64_t>(number::uint64),
                                         make_row<float>(number::float32),
                                         make_row<double>(number::float64),
                                         make_row<long double>(number::extended),
                                         make_row<std::complex<float>>(number::complex32),
                                         make_row<std::complex<double>>(number::complex64)};

constexpr number signed_of(std::size_t bytes) {
  return bytes == 1 ? number::int8 : bytes == 2 ? number::int16 : bytes == 4 ? number::int32 : number::int64;
}
constexpr number unsigned_of(std::size_t bytes) {
  return bytes == 1 ? number::uint8 : bytes == 2 ? number::uint16 : bytes == 4 ? number::uint32 : number::uint64;
}

using type_list = std::vector<std::pair<MPI_Datatype, number>>;

/// The known datatypes, the most frequent ones first.
type_list known_types() {
  type_list all{{MPI_FLOAT, number::float32},
                {MPI_DOUBLE, number::float64},
                {MPI_INT, signed_of(sizeof(int))},
                {MPI_LONG, signed_of(sizeof(long))},
                {MPI_LONG_LONG, number::int64},
                {MPI_UNSIGNED, unsigned_of(sizeof(unsigned))},
                {MPI_UNSIGNED_LONG, unsigned_of(sizeof(unsigned long))},
                {MPI_UNSIGNED_LONG_LONG, number::uint64},
                {MPI_SHORT, number::int16},
                {MPI_UNSIGNED_SHORT, number::uint16},
                {MPI_SIGNED_CHAR, number::int8},
                {MPI_UNSIGNED_CHAR, number::uint8},
                {MPI_INT8_T, number::int8},
                {MPI_INT16_T, number::int16},
                {MPI_INT32_T, number::int32},
                {MPI_INT64_T, number::int64},
                {MPI_UINT8_T, number::uint8},
                {MPI_UINT16_T, number::uint16},
                {MPI_UINT32_T, number::uint32},
                {MPI_UINT64_T, number::uint64},
                {MPI_LONG_DOUBLE, number::extended},
                {MPI_C_FLOAT_COMPLEX, number::complex32},
                {MPI_C_DOUBLE_COMPLEX, number::complex64}};
  // Fortran datatypes, if MPI supports Fortran; the sizes of the default kinds vary.
  const auto add = [&](MPI_Datatype type, std::size_t bytes, number its) {
    int size = 0;
    if (type != MPI_DATATYPE_NULL && PMPI_Type_size(type, &size) == MPI_SUCCESS &&
        static_cast<std::size_t>(size) == bytes) {
      all.emplace_back(type, its);
    }
  };
  add(MPI_REAL, 4, number::float32);
  add(MPI_REAL, 8, number::float64);
  add(MPI_DOUBLE_PRECISION, 8, number::float64);
  add(MPI_REAL4, 4, number::float32);
  add(MPI_REAL8, 8, number::float64);
  add(MPI_INTEGER, 4, number::int32);
  add(MPI_INTEGER, 8, number::int64);
  add(MPI_INTEGER4, 4, number::int32);
  add(MPI_INTEGER8, 8, number::int64);
  add(MPI_COMPLEX, 8, number::complex32);
  add(MPI_DOUBLE_COMPLEX, 16, number::complex64);
  return all;
}

std::array<std::pair<MPI_Op, operation>, operations> known_operations() {
  return {{{MPI_SUM, operation::sum},
           {MPI_MAX, operation::maximum},
           {MPI_MIN, operation::minimum},
           {MPI_PROD, operation::product},
           {MPI_LAND, operation::land},
           {MPI_LOR, operation::lor},
           {MPI_LXOR, operation::lxor},
           {MPI_BAND, operation::band},
           {MPI_BOR, operation::bor},
           {MPI_BXOR, operation::bxor}}};
}

const type_list& types() {
  static const type_list all = known_types();
  return all;
}

} // namespace

bool is_arithmetic(MPI_Datatype type) noexcept {
  return std::any_of(types().begin(), types().end(), [&](const auto& known) { return known.first == type; });
}

const reduction* find_reduction(MPI_Datatype type, MPI_Op op) noexcept {
  static const auto ops = known_operations();
  for (const auto& [known_op, its_op] : ops) {
    if (known_op != op) continue;
    for (const auto& [known_type, its_type] : types()) {
      if (known_type != type) continue;
      const reduction& found = table[static_cast<std::size_t>(its_type)][static_cast<std::size_t>(its_op)];
      return found.run.reduce == nullptr ? nullptr : &found;
    }
  }
  return nullptr;
}

} // namespace preload
