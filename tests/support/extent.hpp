// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How much of a long test to run.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace spar_test {

/// Large tests run in full without sanitizers and shortened with them. Small tests always run in full; the quick set
/// runs them only with sanitizers.
#if defined(SPAR_LARGE_TEST) && (defined(SPAR_SANITIZES_ADDRESSES) || defined(SPAR_SANITIZES_THREADS))
inline constexpr bool is_shortened = true;
#else
inline constexpr bool is_shortened = false;
#endif

/// Whether to compile all cases, as scripts/test --full does. The quick set omits the cases under
/// `#if SPAR_ALL_CASES` of the tests that tests/CMakeLists.txt marks EXTENDED.
#ifdef SPAR_ALL_CASES
inline constexpr bool compiles_all_cases = SPAR_ALL_CASES != 0;
#endif

/// Whether to run additional cases, as in scripts/test --full.
inline bool is_full() { return !is_shortened && std::getenv("SPAR_FULL") != nullptr; }

/// Whether to run all cases of products of lists, as in scripts/test --full, also in shortened tests.
inline bool runs_all_cases() { return std::getenv("SPAR_FULL") != nullptr; }

/// Whether to run the case with these positions in a product of lists: all cases, or in the quick set one of `every`.
/// If one list has at least `every` elements, any choice from the other lists still runs with some of its elements.
template <class... Position>
bool runs_case(std::uint64_t every, Position... position) {
  return runs_all_cases() || (std::uint64_t{0} + ... + static_cast<std::uint64_t>(position)) % every == 0;
}

/// The number of random orders of events: SPAR_SCHEDULES, or if it is not set 100, or 20 in a shortened test.
inline std::uint64_t schedules() {
  const char* wanted = std::getenv("SPAR_SCHEDULES");
  return wanted != nullptr ? std::stoull(wanted) : is_shortened ? 20 : 100;
}

} // namespace spar_test
