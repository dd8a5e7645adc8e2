// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// MPI's predefined reductions as loops, looked up by the datatype and operation of a call.
#pragma once

#include <spar/core/element.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace preload {

/// The arithmetic type of an MPI datatype.
enum class number : std::uint8_t {
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float32,
  float64,
  extended, ///< long double
  complex32,
  complex64,
  count
};

/// Loops over n numbers: `reduce` computes `inout = inout op other`, `reduce_left` computes `inout = other op inout`.
struct loops {
  void (*reduce)(void* inout, const void* other, std::size_t n) = nullptr;
  void (*reduce_left)(void* inout, const void* other, std::size_t n) = nullptr;
};

/// One predefined operation on one predefined type.
struct reduction {
  number type{};
  std::size_t bytes = 0; ///< size of a number
  bool is_sum = false;
  std::uint64_t code = 0; ///< identifies type and operation, the same on all ranks
  loops run;
};

/// Whether `type` is one of the arithmetic types that `find_reduction` knows.
bool is_arithmetic(MPI_Datatype type) noexcept;

/// The reduction for a call; null unless `type` is a known arithmetic type and MPI defines `op` for it.
const reduction* find_reduction(MPI_Datatype type, MPI_Op op) noexcept;

/// 16 bytes of any type: transfers do not depend on the type.
struct word16 {
  std::uint64_t halves[2];
};

/// A reduction as an operation that spar's algorithms accept, on words of the size of its numbers. Algorithms call the
/// loops over whole vectors.
template <class Word>
struct any_reduction {
  static constexpr std::string_view name = "any";

  loops run;

  Word operator()(Word a, Word b) const {
    run.reduce(&a, &b, 1);
    return a;
  }
  template <class T>
  static constexpr T neutral() {
    return {}; // never called: no vector is sparse
  }
  void reduce(Word* inout, const Word* right, std::size_t n) const { run.reduce(inout, right, n); }
  void reduce_left(Word* inout, const Word* left, std::size_t n) const { run.reduce_left(inout, left, n); }
};

} // namespace preload

template <>
inline constexpr spar::element_code spar::code_of<std::uint8_t> = spar::element_code{64};
template <>
inline constexpr spar::element_code spar::code_of<std::uint16_t> = spar::element_code{65};
template <>
inline constexpr spar::element_code spar::code_of<preload::word16> = spar::element_code{66};
