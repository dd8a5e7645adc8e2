// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A link of a ring, that is, of a doubly linked circular list that has no owner and allocates nothing.
#pragma once

#include <spar/core/compiler.hpp>

#include <utility>

namespace spar::inline v0_1::detail {

/// A link, which is always in exactly one ring. A new link forms a ring by itself.
class link {
 public:
  link() = default;
  link(const link&) = delete;

  void join_before(link& other) noexcept {
    after_ = &other;
    before_ = std::exchange(other.before_, this);
    before_->after_ = this;
  }
  void leave() noexcept {
    before_->after_ = after_;
    after_->before_ = before_;
    before_ = after_ = this;
  }
  [[nodiscard]] link& before() const noexcept { return *before_; }
  [[nodiscard]] link& after() const noexcept { return *after_; }

 private:
  link* before_ = this;
  link* after_ = this;
};

} // namespace spar::inline v0_1::detail
