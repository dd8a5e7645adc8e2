// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Texts of control messages, put together from their parts.
#pragma once

#include <spar/core/control.hpp>
#include <spar/core/error.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::detail {

/// Parts from one source come in order, those from several sources between each other.
class texts {
 public:
  /// Calls `take(text)` where `part` is the last one of its text. Throws `corrupt_message` for a text that is longer
  /// than any rank sends.
  template <class Take>
  void add(const control_message& part, Take take) {
    const std::string_view text(part.text.data(), part.length);
    for (std::size_t i = 0; i < begun_.size(); ++i) {
      auto& [source, what, whole] = begun_[i];
      if (source != part.source || what != part.what) continue;
      if (whole.size() + text.size() > told_length) throw corrupt_message("a text of control messages is too long");
      whole += text;
      if (part.last == 0) return;
      const std::string taken = std::move(whole);
      begun_.erase(begun_.begin() + static_cast<std::ptrdiff_t>(i));
      return take(taken);
    }
    if (part.last != 0) return take(text);
    begun_.push_back({part.source, part.what, std::string(text)});
  }

 private:
  struct begun {
    rank_t source;
    control_message::purpose what;
    std::string whole;
  };
  std::vector<begun> begun_;
};

} // namespace spar::detail
