// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of slab.hpp that do not depend on the type of values.
#pragma once

#include <spar/core/memory/slab.hpp>

namespace spar::inline v0_1::detail {

slab_memory::~slab_memory() {
  while (newest_ != nullptr) {
    chunk* const ended = std::exchange(newest_, newest_->older);
    while (ended->made > 0) destroy_(record(*ended, --ended->made));
    ::operator delete(ended, std::align_val_t{alignment_});
  }
}

[[gnu::noinline]] SPAR_INLINE void* slab_memory::add() {
  if (newest_ == nullptr || newest_->made == newest_->room) grow(made_ > 0 ? 3 * made_ : room_);
  return record(*newest_, newest_->made);
}

SPAR_INLINE void slab_memory::grow(std::size_t room) {
  void* const added = ::operator new(sizeof(chunk) + alignment_ + room * size_, std::align_val_t{alignment_});
  newest_ = ::new (added) chunk{room, newest_};
}

} // namespace spar::inline v0_1::detail
