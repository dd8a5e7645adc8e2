// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pool of memory blocks: after one call, calls that are no larger find all their memory here.
#pragma once

#include <spar/core/util/algobase.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>

namespace spar {

namespace detail {

/// Sizes of blocks: four classes per power of two waste at most a fifth; the first is 64 bytes.
struct size_classes {
  static constexpr std::size_t count = 4 * 58;

  static constexpr std::size_t of(std::size_t bytes) noexcept {
    if (bytes <= 64) return 0;
    const auto power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1; // 2^power < bytes <= 2^(power+1)
    const std::size_t quarter = ((bytes - 1) >> (power - 2)) & 3;
    return 4 * (power - 6) + quarter + 1;
  }
  static constexpr std::size_t capacity(std::size_t size_class) noexcept {
    if (size_class == 0) return 64;
    const std::size_t power = (size_class - 1) / 4 + 6;
    return (std::size_t{1} << power) + (((size_class - 1) % 4 + 1) << (power - 2));
  }

  template <class T>
  using table = std::array<T, count>;
};

} // namespace detail

/// How many blocks of each size one rank has requested in its present call.
class pool_requests {
 private:
  friend class pool;

  // A count is current if its upper half is the period's: so nothing has to be cleared when a period begins.
  static constexpr std::uint64_t one_period = std::uint64_t{1} << 32;
  [[nodiscard]] std::uint32_t made(std::size_t size_class) const noexcept {
    return made_[size_class] > period_ ? static_cast<std::uint32_t>(made_[size_class]) : 0;
  }

  void next_period() noexcept {
    period_ += one_period;
    if (period_ == 0) made_ = {}; // after 2^32 of them: what is old must not look new
    grown_ = false;
  }

  std::uint64_t period_ = 0;
  bool grown_ = false; // more of some class than in any call before
  detail::size_classes::table<std::uint64_t> made_{};
};

/// Recycles blocks over an upstream resource, the allocator hook. A request takes the smallest free block that is large
/// enough; blocks are kept until the end. Not synchronised unless shared: a pool belongs to one rank (or to all that
/// share a thread), and only its thread allocates and frees. Blocks may outlive the pool's owner (a result that is
/// kept): use `pool_owner`.
///
/// A rank says when its calls begin and end. Where one has made more requests than any before, the pool sets aside, at
/// its end, what it may lack for another: from each class upwards as many free blocks as the call has requested. Then
/// calls whose requests are as many or fewer, and no larger, take nothing from upstream, whatever the order in which
/// they allocate and free: without any free they would find as many blocks as they need, and a free adds one. Because
/// what a call leaves behind (its result, messages on their way) may still be in use during the next, blocks below
/// `large` are set aside twice (fewer where another call requested more large ones); of larger ones, as many more as
/// were in use. What is set aside is one allocation upstream and is not touched before it is used.
class pool final : public std::pmr::memory_resource {
  using classes = detail::size_classes;

 public:
  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t large = 65536; // bytes

  /// For so many ranks, which make the same calls.
  explicit pool(std::pmr::memory_resource& upstream = *std::pmr::new_delete_resource(), std::uint32_t ranks = 1)
      : upstream_(&upstream), ranks_(ranks) {}
  pool(const pool&) = delete;
  ~pool() override {
    while (block* chunk = chunks_) {
      chunks_ = chunk->older;
      upstream_->deallocate(chunk, chunk->chunk_bytes, alignment);
    }
  }

  // Called directly, where the base class would guess at the type of the resource in every place that allocates.
  void* allocate(std::size_t bytes, std::size_t align) { return do_allocate(bytes, align); }
  void deallocate(void* p, std::size_t bytes, std::size_t align) noexcept { do_deallocate(p, bytes, align); }

  /// Blocks that are in use now.
  [[nodiscard]] std::uint64_t live() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint32_t of_class : in_use_) sum += of_class;
    return sum;
  }

  /// From now on requests are made by this rank; for ranks that share a pool.
  void charge(pool_requests& rank) noexcept { requests_ = &rank; }

  /// Whether several threads use it; changed while one does.
  void share(bool on) noexcept { shared_ = on; }

  /// From now on what is given back is not handed out again, as somebody may still read it; until `release`.
  void hold() noexcept {
    const exclusive lock(*this);
    holds_ = true;
  }
  void release() noexcept {
    const exclusive lock(*this);
    holds_ = false;
    while (block* b = held_) {
      held_ = b->next;
      put_back(b);
    }
  }

  void begin_call() noexcept {
    const exclusive lock(*this);
    requests_->next_period();
  }
  void end_call() noexcept {
    const exclusive lock(*this);
    if (requests_->grown_) set_aside();
    requests_->next_period();
  }

 private:
  friend class pool_owner;

  /// Lies in front of the memory that is handed out.
  struct alignas(alignment) block {
    block* next;            // in a list of free blocks, or of rows
    std::size_t size_class; // can be larger than was asked for
    std::size_t row;        // of the first of a row: how many adjacent blocks have never been used
    block* older;           // of the first in a chunk from upstream: the chunk before
    std::size_t chunk_bytes;
  };
  static_assert(sizeof(block) == alignment);

  /// With the block in front; a multiple of the alignment, as blocks of a row are adjacent.
  static constexpr std::size_t bytes_of(std::size_t size_class) noexcept {
    return (sizeof(block) + classes::capacity(size_class) + alignment - 1) / alignment * alignment;
  }

  class exclusive {
   public:
    explicit exclusive(pool& its) noexcept : taken_(its.shared_ ? &its.taken_ : nullptr) {
      while (taken_ != nullptr && taken_->test_and_set(std::memory_order_acquire)) {
      }
    }
    exclusive(const exclusive&) = delete;
    ~exclusive() {
      if (taken_ != nullptr) taken_->clear(std::memory_order_release);
    }

   private:
    std::atomic_flag* taken_;
  };

  // Out of line: every coroutine and buffer would otherwise carry a copy.
  [[gnu::noinline]] void* do_allocate(std::size_t bytes, std::size_t align) override {
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

  [[gnu::noinline]] void do_deallocate(void* p, std::size_t, std::size_t) override {
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

  void put_back(block* b) noexcept {
    b->next = free_[b->size_class];
    free_[b->size_class] = b;
    --in_use_[b->size_class];
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  /// A block of the smallest class from `wanted` upwards that has one; a new one where none has.
  [[gnu::noinline]] block* find(std::size_t wanted) {
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

  block* last_of_row(std::size_t size_class) noexcept {
    block* const first = rows_[size_class];
    if (--first->row == 0) {
      rows_[size_class] = first->next;
      return first;
    }
    std::byte* const at = reinterpret_cast<std::byte*>(first) + first->row * bytes_of(size_class);
    return ::new (at) block{nullptr, size_class, 0, nullptr, 0};
  }

  /// The room that is in a chunk begins with its first block, which remembers the chunk.
  std::byte* add_chunk(std::size_t bytes) {
    auto* chunk = ::new (upstream_->allocate(bytes, alignment)) block{nullptr, 0, 0, chunks_, bytes};
    chunks_ = chunk;
    return reinterpret_cast<std::byte*>(chunk);
  }
  void add_row(std::byte* at, std::size_t size_class, std::size_t length) noexcept {
    auto* first = reinterpret_cast<block*>(at);
    if (first != chunks_) ::new (first) block{nullptr, 0, 0, nullptr, 0};
    first->next = rows_[size_class];
    first->size_class = size_class;
    first->row = length;
    rows_[size_class] = first;
    blocks_[size_class] += length;
    exist_[size_class / 64] |= std::uint64_t{1} << (size_class % 64);
  }

  [[gnu::noinline]] void set_aside() noexcept {
    std::uint32_t requested = 0; // of this class and all above, as what follows
    bool grown = false;
    for (std::size_t c = classes::count; c-- > 0;) {
      requested += requests_->made(c);
      most_[c] = std::max(most_[c], requests_->made(c));
      grown = grown || requested > most_from_[c];
      most_from_[c] = std::max(most_from_[c], requested);
    }
    if (!grown) return; // of other classes than before, but no more and no larger ones

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
    } catch (const std::bad_alloc&) { // then it is taken when it is needed, if ever
    }
  }

  std::pmr::memory_resource* upstream_;
  std::uint64_t ranks_;
  pool_requests* requests_ = &own_;
  classes::table<block*> free_{};
  classes::table<std::uint32_t> in_use_{};
  classes::table<block*> rows_{};                                 // never used
  std::array<std::uint64_t, (classes::count + 63) / 64> exist_{}; // classes that have blocks
  classes::table<std::uint64_t> blocks_{};
  classes::table<std::uint32_t> most_{};      // requests of the class by one call of one rank
  classes::table<std::uint32_t> most_from_{}; // of the class and all above
  block* chunks_ = nullptr;
  block* held_ = nullptr; // given back, but not to be used again yet
  bool holds_ = false;
  pool_requests own_;
  std::uint64_t owners_ = 1;
  bool shared_ = false;
  std::atomic_flag taken_;
};

/// Owns a pool, together with its copies. The pool lives on until its last block is returned, so that a result may
/// outlive the transport it came from.
class pool_owner {
 public:
  explicit pool_owner(std::pmr::memory_resource& upstream, std::uint32_t ranks = 1)
      : pool_(new pool(upstream, ranks)) {}
  pool_owner(const pool_owner& other) noexcept : pool_(other.pool_) { ++pool_->owners_; }
  pool_owner& operator=(const pool_owner&) = delete;
  ~pool_owner() {
    if (--pool_->owners_ == 0 && pool_->live() == 0) delete pool_;
  }
  [[nodiscard]] pool& operator*() const noexcept { return *pool_; }

 private:
  pool* pool_;
};

} // namespace spar
