// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A shared object of a program, with the function PART. Compiled with SPAR_COMPILED, it calls the library; without, its
// own copy of the headers.
#include <spar/core/error.hpp>
#ifdef SPAR_COMPILED
#include <spar/any.hpp>
#else
#include <spar/spar.hpp>
#endif

#include <array>
#include <atomic>
#include <span>

#ifndef SPAR_COMPILED
namespace {
struct one_allreduce {
  void operator()(spar::threads& net, std::span<float> x) const { spar::allreduce(net, x); }
};
} // namespace
#endif

/// Returns how many of three ranks got the right sum, plus 10 for each rank that caught an error by its type.
[[gnu::visibility("default")]] int PART() {
  std::atomic<int> right = 0;
#ifdef SPAR_COMPILED
  spar::any_group group = spar::any_group::threads(3);
  group.run([&](spar::any_transport& net) {
    const spar::any_allreduce<float> reduce("ring");
#else
  spar::thread_group group(3);
  group.run([&](spar::threads& net) {
    const one_allreduce reduce;
#endif
    std::array<float, 2> x{1, static_cast<float>(net.rank())};
    reduce(net, std::span<float>(x));
    if (x == std::array<float, 2>{3, 3}) ++right;
    try {
#ifdef SPAR_COMPILED
      const spar::any_allreduce<float> unknown("rinq");
#else
      spar::broadcast(net, std::span<float>(x), 99);
#endif
    } catch (const spar::invalid_argument&) {
      right += 10;
    }
  });
  return right;
}
