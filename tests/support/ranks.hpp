// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs one program on every rank of any in-process transport. A program is a function object whose call operator is a
// coroutine `template <class Net> spar::task<void> operator()(Net& net) const&`; the object outlives the run.
#pragma once

#include "support/extent.hpp"

#include <spar/sim.hpp>
#include <spar/transport/any.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>

namespace spar_test {

/// The transport on which ranks run, with buffered sends or with synchronous sends, which end only when they are
/// received.
enum class mode { threads, threads_synchronous, sim, sim_synchronous };

/// Under the thread sanitizer, tests skip the simulator, which has one thread. Under the address sanitizer, large
/// tests, which take long to compile, run in the simulator alone.
#if defined(SPAR_SANITIZES_THREADS)
inline constexpr bool has_threads = true, has_sim = false;
inline constexpr std::array all_modes{mode::threads, mode::threads_synchronous};
inline constexpr std::array free_modes{mode::threads};
#elif defined(SPAR_SANITIZES_ADDRESSES) && defined(SPAR_LARGE_TEST)
inline constexpr bool has_threads = false, has_sim = true;
inline constexpr std::array all_modes{mode::sim, mode::sim_synchronous};
inline constexpr std::array free_modes{mode::sim};
#else
inline constexpr bool has_threads = true, has_sim = true;
inline constexpr std::array all_modes{mode::threads, mode::threads_synchronous, mode::sim, mode::sim_synchronous};
inline constexpr std::array free_modes{mode::threads, mode::sim}; // sends may end before they are received
#endif

/// The numbers of ranks for all tests.
#if defined(SPAR_LARGE_TEST) && (defined(SPAR_SANITIZES_ADDRESSES) || defined(SPAR_SANITIZES_THREADS)) // shortened
inline constexpr std::array<spar::rank_t, 4> all_ranks{1, 3, 4, 5};
#else
inline constexpr std::array<spar::rank_t, 8> all_ranks{1, 2, 3, 4, 5, 7, 8, 13};
#endif

/// The larger numbers of ranks, for the simulator alone.
inline std::span<const spar::rank_t> many_ranks() {
  static constexpr std::array<spar::rank_t, 2> numbers{64, 256};
  return is_full() ? std::span(numbers) : std::span(numbers).first(1);
}

inline std::ostream& operator<<(std::ostream& out, mode where) {
  constexpr const char* names[] = {"threads", "threads, synchronous", "sim", "sim, synchronous, random order"};
  return out << names[static_cast<int>(where)];
}

/// The position of a mode for runs_case(): of two successive cases, one of two runs on threads and in the simulator,
/// with different kinds of sends.
inline std::uint64_t position_of(mode where) {
  constexpr std::uint64_t positions[] = {0, 1, 3, 2};
  return positions[static_cast<int>(where)];
}

/// A program on one rank, type-erased: the code that runs it is compiled once, not for every program.
template <class Net>
using on_rank = std::function<spar::task<void>(Net&)>;

// Defined for each transport and for any_transport in ranks.cpp, so that tests do not compile the transports again.
template <class Net>
void run_on_threads(spar::rank_t ranks, const on_rank<Net>& program, const spar::thread_options& options);
template <class Net>
double run_on_sim(spar::rank_t ranks, const on_rank<Net>& program, const spar::simulator_options& options);

template <class Net = spar::threads, class Program>
void run_threads(spar::rank_t ranks, const Program& program, const spar::thread_options& options = {}) {
  run_on_threads<Net>(ranks, std::cref(program), options);
}
/// Runs the program in the simulator; returns its virtual seconds.
template <class Net = spar::sim, class Program>
double run_sim(spar::rank_t ranks, const Program& program, const spar::simulator_options& options = {}) {
  return run_on_sim<Net>(ranks, std::cref(program), options);
}

/// Options that delay messages by up to ten latencies, in an order that depends on the seed.
inline spar::simulator_options random_order(std::uint64_t seed, bool synchronous = false) {
  spar::simulator_options options;
  options.jitter = 1e-5;
  options.seed = seed;
  options.synchronous = synchronous;
  return options;
}

/// Runs the program in `where`; if that transport is compiled out, on the other one with the same kind of sends.
template <class Program>
void run(mode where, spar::rank_t ranks, const Program& program) {
  using net = spar::any_transport;
  const bool synchronous = where == mode::threads_synchronous || where == mode::sim_synchronous;
  if (has_threads && (!has_sim || where == mode::threads || where == mode::threads_synchronous)) {
    return run_threads<net>(ranks, program, {.synchronous = synchronous});
  }
  run_sim<net>(ranks, program, synchronous ? random_order(7, true) : spar::simulator_options{});
}

} // namespace spar_test
