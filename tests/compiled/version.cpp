// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A part of a program that contains two versions of the headers; PART is a namespace for each of them.
#include <spar/allreduce.hpp>
#include <spar/core/error.hpp>
#include <spar/transport/threads.hpp>

#include <atomic>
#include <exception>
#include <span>
#include <vector>

/// A function with a type of this version.
[[gnu::visibility("default")]] int code_of(const spar::error&) { return 3; }

namespace PART {

/// Returns how many of three ranks got the right sum.
[[gnu::visibility("default")]] int reduce() {
  std::atomic<int> right = 0;
  spar::thread_group group(3);
  group.run([&](spar::threads& net) {
    std::vector<float> x{1, static_cast<float>(net.rank())};
    spar::allreduce(net, std::span(x));
    if (x == std::vector<float>{3, 3}) ++right;
  });
  return right;
}

[[gnu::visibility("default")]] void fail() { spar::raise<spar::timeout>({"a test"}); }

/// Whether `f` throws an error of this version.
[[gnu::visibility("default")]] bool catches(void (*f)()) {
  try {
    f();
  } catch (const spar::error&) {
    return true;
  } catch (const std::exception&) {
  }
  return false;
}

} // namespace PART
