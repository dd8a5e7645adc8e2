// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matching of arrived messages with posted receives, by (source, tag) in order; for the in-process transports.
#pragma once

#include <spar/core/endpoint.hpp>

#include <algorithm>
#include <vector>

namespace spar::detail {

/// One rank's receives that wait for a message, and messages that wait for a receive. `Arrival` and `Receive` are
/// pointers to records with members `source` and `tag`. Both lists are short, so a scan beats a hash table.
template <class Arrival, class Receive>
class matching {
 public:
  /// The receive that waits for `arrived`; a null pointer where none does: the message is kept.
  Receive arrive(Arrival arrived) {
    if (Receive found = take(receives_, *arrived)) return found;
    arrivals_.push_back(arrived);
    return nullptr;
  }

  /// The message that `posted` waits for; a null pointer where there is none: the receive is kept.
  Arrival post(Receive posted) {
    if (Arrival found = take(arrivals_, *posted)) return found;
    receives_.push_back(posted);
    return nullptr;
  }

  void withdraw(Receive posted) noexcept { std::erase(receives_, posted); }

  [[nodiscard]] const std::vector<Receive>& receives() const noexcept { return receives_; }
  [[nodiscard]] std::vector<Arrival>& arrivals() noexcept { return arrivals_; }

 private:
  template <class Pointer, class Key>
  static Pointer take(std::vector<Pointer>& list, const Key& key) {
    const auto found = std::find_if(list.begin(), list.end(), [&](Pointer candidate) {
      return candidate->source == key.source && candidate->tag == key.tag;
    });
    if (found == list.end()) return nullptr;
    Pointer taken = *found;
    list.erase(found);
    return taken;
  }

  std::vector<Arrival> arrivals_;
  std::vector<Receive> receives_;
};

} // namespace spar::detail
