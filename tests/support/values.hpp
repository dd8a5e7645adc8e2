// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the values of calls are. Tests for any place are templates of it: here is host memory, and
// tests/cuda/places.hpp has device memory.
#pragma once

#include <spar/transport/faulty.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace spar_test {

/// The dense values of a call on `net`: a vector in host memory. Tests of device memory specialise it for transports
/// whose calls have their values there.
template <class Net>
class call_values {
 public:
  call_values(Net&, const std::vector<float>& values) : values_(values) {}
  /// What a collective gets.
  [[nodiscard]] std::span<float> span() { return values_; }
  /// The values after the call.
  [[nodiscard]] std::vector<float> read() const { return values_; }

 private:
  std::vector<float> values_;
};

/// Whether calls on Net only block, so that a coroutine cannot await them.
template <class Net>
inline constexpr bool calls_only_block = false;

/// Access of tests to the payloads of messages on the transport Net, which are in host memory.
template <class Net>
struct payload_access {
  static void write(Net&, bool, std::span<std::byte> to, const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), to.begin());
  }
  static std::vector<std::byte> read(Net&, bool, std::span<const std::byte> from) { return {from.begin(), from.end()}; }
};

/// Values in host memory.
struct in_host_memory {
  /// Calls `body(net)` with a rank whose messages pass through `bad`.
  template <class Faulty, class Body>
  static void on(Faulty& bad, const Body& body) {
    body(bad);
  }
  /// Adds to the number of the affected message those that `on` exchanges before it calls `body`.
  static spar::fault after_start(const spar::fault& planned, spar::rank_t, spar::rank_t) { return planned; }
};

} // namespace spar_test
