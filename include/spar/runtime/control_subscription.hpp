// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A subscription to control messages, which ends with the object that owns it.
#pragma once

#include <spar/runtime/endpoint.hpp>

#include <cstdint>
#include <string_view>

namespace spar::inline v0_1::detail {

/// Subscribes to the control messages of one number on the rank `node`: see `control_subscriber`. The destructor ends
/// the subscription. So an object whose last member is a subscription gets no message before its other members exist,
/// and none after they are gone, even if its constructor throws.
class control_subscription {
 public:
  /// From now on, and for messages that have already arrived, the thread that makes progress on the rank calls
  /// `on_message(self, source, text)`.
  control_subscription(endpoint& node, void (*on_message)(void* self, rank_t source, std::string_view text), void* self)
      : node_(&node), entry_{0, on_message, self} {
    const rank_lock lock(node.shared());
    node.subscribers().add(entry_);
  }
  control_subscription(const control_subscription&) = delete;
  ~control_subscription() {
    const rank_lock lock(node_->shared());
    node_->subscribers().remove(entry_);
  }

  /// The number with which the messages begin, equal on all ranks.
  [[nodiscard]] std::uint32_t number() const noexcept { return entry_.number; }

 private:
  endpoint* node_;
  control_subscriber entry_;
};

} // namespace spar::inline v0_1::detail
