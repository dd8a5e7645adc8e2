// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The store by which the processes of a job agree before they can send each other messages: texts by key, of which the
// first of each key stays. `memory_store` keeps them in one process.
#pragma once

#include <spar/core/util/thread.hpp>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace spar::inline v0_1 {

/// Where the processes of a job meet: texts by key, of which the first of each key stays. Whoever puts a text first
/// decides, and all others read the decision. A program can bring a store of its own, for example one that calls
/// `compare_set` of torch's TCPStore. spar uses keys of at most 1024 letters, digits and `/`; values are any bytes.
/// Several threads may call a store at the same time.
class rendezvous_store {
 public:
  virtual ~rendezvous_store() = default;
  /// Keeps `value` under `key` unless `key` has a value already. Returns the value that `key` has now. Throws
  /// `transport_error` if the store cannot be reached.
  virtual std::string put(std::string_view key, std::string_view value) = 0;
  /// Returns the value of `key`, for which it waits at most `seconds`; nothing if the key has no value by then. Throws
  /// `transport_error` if the store cannot be reached.
  virtual std::optional<std::string> wait(std::string_view key, double seconds) = 0;
};

/// A store in the memory of one process.
class memory_store : public rendezvous_store {
 public:
  std::string put(std::string_view key, std::string_view value) override;
  std::optional<std::string> wait(std::string_view key, double seconds) override;
  /// Returns the value of `key`, which neither changes nor moves while the store lives; null if there is none.
  [[nodiscard]] const std::string* find(std::string_view key);

 private:
  std::mutex mutex_;
  detail::signal signal_;
  std::map<std::string, std::string, std::less<>> values_;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/rendezvous/store-inl.hpp>
#endif
