// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of failure.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/endpoint/failure.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE void failure::raise_peer_failed() const {
  raise<peer_failed>({"rank ", failed_rank_, failed_rank_ == rank_ ? " (this rank)" : "",
                      " failed, so its communicator is dead: ", reason_.data()});
}

SPAR_INLINE void failure::set(rank_t who, std::string_view why) noexcept {
  failed_rank_ = who;
  reason_[why.copy(reason_.data(), max_text_length)] = '\0';
  dead_ = true;
}

SPAR_INLINE bool failure::append(const control_message& part) noexcept {
  if (length_ > 0 && part.source != source_) return false;
  source_ = part.source;
  const std::size_t length = std::min<std::size_t>(part.length, max_text_length - length_);
  std::memcpy(arriving_.data() + length_, part.text.data(), length);
  length_ += length;
  return part.last != 0;
}

SPAR_INLINE std::string_view failure::take_reason(rank_t& failed, rank_t ranks) {
  const std::string_view text(arriving_.data(), std::exchange(length_, 0));
  failed = -1;
  if (text.size() >= sizeof(failed)) std::memcpy(&failed, text.data(), sizeof(failed));
  if (failed < 0 || failed >= ranks) {
    raise<corrupt_message>({"the reason of an abort by rank ", source_, " has ", text.size(),
                            " bytes and names the rank ", failed, "; expected 0 to ", ranks - 1});
  }
  return text.substr(sizeof(failed));
}

} // namespace spar::inline v0_1::detail
