// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of pool.hpp that do not depend on the type of values.
#pragma once

#include <spar/core/memory/pool.hpp>

namespace spar::inline v0_1 {

SPAR_INLINE pool::~pool() {
  while (block* chunk = chunks_) {
    chunks_ = chunk->older;
    upstream_->deallocate(chunk, chunk->chunk_bytes, alignment);
  }
}

SPAR_INLINE std::uint64_t pool::live() const noexcept {
  std::uint64_t sum = 0;
  for (const std::uint32_t of_class : in_use_) sum += of_class;
  return sum;
}

[[gnu::noinline]] SPAR_INLINE void* pool::do_allocate(std::size_t bytes, std::size_t align) {
  if (align > alignment) throw std::bad_alloc();
  const exclusive lock(*this);
  const std::size_t wanted = classes::of(bytes);
  pool_requests& by = *requests_;
  std::uint64_t& made = by.made_[wanted];
  made = std::max(made, by.period_) + 1;
  if (static_cast<std::uint32_t>(made) > most_[wanted]) by.grown_ = true;
  block* b = free_[wanted];
  if (b != nullptr)
    free_[wanted] = b->next;
  else
    b = find(wanted);
  ++in_use_[b->size_class];
  return b + 1;
}

[[gnu::noinline]] SPAR_INLINE void pool::do_deallocate(void* p, std::size_t, std::size_t) {
  {
    const exclusive lock(*this);
    block* b = static_cast<block*>(p) - 1;
    if (holds_) {
      b->next = held_;
      held_ = b;
      return;
    }
    put_back(b);
  }
  if (owners_ == 0 && live() == 0) delete this;
}

SPAR_INLINE bool pool::do_is_equal(const std::pmr::memory_resource& other) const noexcept { return this == &other; }

SPAR_INLINE pool::block* pool::find(std::size_t wanted) {
  std::uint64_t mask = ~std::uint64_t{0} << (wanted % 64);
  for (std::size_t word = wanted / 64; word < exist_.size(); ++word, mask = ~std::uint64_t{0}) {
    for (std::uint64_t bits = exist_[word] & mask; bits != 0; bits &= bits - 1) {
      const std::size_t c = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
      if (block* b = free_[c]) {
        free_[c] = b->next;
        return b;
      }
      if (rows_[c] != nullptr) return last_of_row(c);
    }
  }
  std::byte* at = add_chunk(bytes_of(wanted));
  add_row(at, wanted, 1);
  return last_of_row(wanted);
}

SPAR_INLINE pool::block* pool::last_of_row(std::size_t size_class) noexcept {
  block* const first = rows_[size_class];
  if (--first->row == 0) {
    rows_[size_class] = first->next;
    return first;
  }
  std::byte* const at = reinterpret_cast<std::byte*>(first) + first->row * bytes_of(size_class);
  return ::new (at) block{nullptr, size_class, 0, nullptr, 0};
}

SPAR_INLINE std::byte* pool::add_chunk(std::size_t bytes) {
  auto* chunk = ::new (upstream_->allocate(bytes, alignment)) block{nullptr, 0, 0, chunks_, bytes};
  chunks_ = chunk;
  return reinterpret_cast<std::byte*>(chunk);
}

SPAR_INLINE void pool::add_row(std::byte* at, std::size_t size_class, std::size_t length) noexcept {
  auto* first = reinterpret_cast<block*>(at);
  if (first != chunks_) ::new (first) block{nullptr, 0, 0, nullptr, 0};
  first->next = rows_[size_class];
  first->size_class = size_class;
  first->row = length;
  rows_[size_class] = first;
  blocks_[size_class] += length;
  exist_[size_class / 64] |= std::uint64_t{1} << (size_class % 64);
}

[[gnu::noinline]] SPAR_INLINE void pool::next_period(bool sets_aside) noexcept {
  const exclusive lock(*this);
  if (sets_aside && requests_->grown_) set_aside();
  requests_->next_period();
}

SPAR_INLINE void pool::set_aside() noexcept {
  std::uint32_t requested = 0; // requests of class c and above in this call
  bool grown = false;
  for (std::size_t c = classes::count; c-- > 0;) {
    requested += requests_->made(c);
    most_[c] = std::max(most_[c], requests_->made(c));
    grown = grown || requested > most_from_[c];
    most_from_[c] = std::max(most_from_[c], requested);
  }
  if (!grown) return; // for each c, an earlier call requested as many blocks of classes >= c: existing blocks suffice

  const std::uint64_t large_ones = ranks_ == 1 ? most_from_[classes::of(large)] : 0;
  classes::table<std::uint64_t> lacking{};
  std::uint64_t existing = 0;
  std::uint64_t in_use = 0;
  std::size_t bytes = 0;
  for (std::size_t c = classes::count; c-- > 0;) {
    existing += blocks_[c];
    in_use += in_use_[c];
    const std::uint64_t twice = most_from_[c] - std::min<std::uint64_t>(most_from_[c], large_ones);
    const std::uint64_t goal = (most_from_[c] + twice) * ranks_ + in_use;
    if (goal <= existing) continue;
    lacking[c] = goal - existing;
    existing = goal;
    bytes += lacking[c] * bytes_of(c);
  }
  if (bytes == 0) return;
  try {
    std::byte* at = add_chunk(bytes);
    for (std::size_t c = 0; c < classes::count; ++c) {
      if (lacking[c] == 0) continue;
      add_row(at, c, lacking[c]);
      at += lacking[c] * bytes_of(c);
    }
  } catch (const std::bad_alloc&) { // not an error: later calls allocate missing blocks from upstream
  }
}

SPAR_INLINE pool_owner::pool_owner(std::pmr::memory_resource& upstream, std::uint32_t ranks)
    : pool_(new pool(upstream, ranks)) {}

SPAR_INLINE pool_owner::~pool_owner() {
  if (--pool_->owners_ == 0 && pool_->live() == 0) delete pool_;
}

} // namespace spar::inline v0_1
