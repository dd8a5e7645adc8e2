// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of buffer.hpp that do not depend on the type of values.
#pragma once

#include <spar/core/memory/buffer.hpp>

namespace spar::inline v0_1 {

namespace detail {

memory_block::memory_block(std::pmr::memory_resource& memory, std::size_t count, std::size_t element_bytes)
    : memory_(&memory), bytes_(count * element_bytes) {
  if (count > max_bytes / element_bytes) throw std::bad_alloc();
  if (count != 0) data_ = memory.allocate(bytes_, alignment);
}

memory_block::~memory_block() { reset(); }

[[gnu::noinline]] SPAR_INLINE memory_block& memory_block::operator=(memory_block&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

} // namespace detail

} // namespace spar::inline v0_1
