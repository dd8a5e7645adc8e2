// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pool of memory blocks. After the first call, a call that needs no more memory than earlier calls allocates nothing
// outside the pool.
#pragma once

#include <spar/core/util/algobase.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>

namespace spar::inline v0_1 {

namespace detail {

/// The sizes of memory blocks: 64 bytes in the first class, then four classes per power of two, so that a request of
/// more than 64 bytes leaves at most a fifth of its block unused.
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

/// The number of blocks of each size class that one rank has requested in its current call.
class pool_requests {
 private:
  friend class pool;

  // A period is a call, or the time between two calls. A count in `made_` is valid only if its upper 32 bits are equal
  // to those of `period_`. Therefore a new period can begin, with all counts 0, without a pass over `made_`.
  static constexpr std::uint64_t one_period = std::uint64_t{1} << 32;
  [[nodiscard]] std::uint32_t made(std::size_t size_class) const noexcept {
    return made_[size_class] > period_ ? static_cast<std::uint32_t>(made_[size_class]) : 0;
  }

  void next_period() noexcept {
    period_ += one_period;
    if (period_ == 0) made_ = {}; // after 2^32 periods, when old counts would seem valid again
    grown_ = false;
  }

  std::uint64_t period_ = 0;
  bool grown_ = false; // whether this call has requested more blocks of a class than any call before
  detail::size_classes::table<std::uint64_t> made_{};
};

/// Recycles memory blocks, and takes new memory from the memory resource `upstream`. A request gets the smallest free
/// block that is large enough. The pool keeps all blocks until the pool is destroyed. A pool belongs to one rank, or to
/// several ranks on one thread; only this thread allocates and frees, unless `share(true)` has been called. Blocks may
/// outlive the owner of the pool, for example in a result that the program keeps: see `pool_owner`.
///
/// A rank reports when its calls begin (`begin_call`) and end (`end_call`); a round of buckets is one call here. If a
/// call has made more requests than any earlier call, the pool sets blocks aside at the end of the call: for each size
/// class, as many blocks of this class and above as the call has requested. A later call that requests at most as many
/// blocks of each class and above takes nothing from upstream, in whatever order the call allocates and frees: the
/// blocks suffice even if the call frees nothing, and each free adds a block.
///
/// Memory that a call leaves in use (its result, messages in flight) may still be in use during the next call.
/// Therefore the pool counts each request below `large` bytes twice, or less than twice if another call requested more
/// blocks of at least `large` bytes. If R > 1 ranks share the pool, the pool counts each request of any size 2 R times.
/// The pool also sets aside as many additional blocks as are in use at the end of the call. All blocks that are set
/// aside at the end of one call are a single upstream allocation. Until these blocks are used, the pool writes only to
/// the header of the first block of each size class.
class pool final : public std::pmr::memory_resource {
  using classes = detail::size_classes;

 public:
  static constexpr std::size_t alignment = 64; ///< the alignment of every block, in bytes
  static constexpr std::size_t large = 65536;  ///< the size, in bytes, from which requests are counted once

  /// Creates a pool for `ranks` ranks that make the same calls and share the pool.
  explicit pool(std::pmr::memory_resource& upstream = *std::pmr::new_delete_resource(), std::uint32_t ranks = 1)
      : upstream_(&upstream), ranks_(ranks) {}
  pool(const pool&) = delete;
  ~pool() override;

  // These non-virtual functions hide those of std::pmr::memory_resource. Otherwise compilers would add to every call
  // site a test for the likely dynamic type of the memory resource.

  /// Like std::pmr::memory_resource::allocate: `bytes` bytes with the alignment `align`. Throws std::bad_alloc if
  /// upstream has no memory.
  void* allocate(std::size_t bytes, std::size_t align) { return do_allocate(bytes, align); }
  /// Gives back the block `p`, which `allocate` returned for the same `bytes` and `align`.
  void deallocate(void* p, std::size_t bytes, std::size_t align) noexcept { do_deallocate(p, bytes, align); }

  /// The number of blocks in use: those allocated and not deallocated, and those deallocated since `hold`.
  [[nodiscard]] std::uint64_t live() const noexcept;

  /// From now on, counts all requests in `rank`, which belongs to one of the ranks that share the pool.
  void charge(pool_requests& rank) noexcept { requests_ = &rank; }

  /// Sets whether several threads use the pool. If they do, the pool locks itself during each operation. Call `share`
  /// only while a single thread uses the pool.
  void share(bool on) noexcept { shared_ = on; }

  /// After `hold`, the pool keeps deallocated blocks unused until `release`, because peers may still read these blocks.
  void hold() noexcept {
    const exclusive lock(*this);
    holds_ = true;
  }
  /// Ends `hold`: blocks that were deallocated in the meantime become free.
  void release() noexcept {
    const exclusive lock(*this);
    holds_ = false;
    while (block* b = held_) {
      held_ = b->next;
      put_back(b);
    }
  }

  /// Begins to count the requests of a call.
  void begin_call() noexcept { next_period(false); }
  /// Ends the counting, and sets blocks aside if the call made more requests than any call before.
  void end_call() noexcept { next_period(true); }

 private:
  friend class pool_owner;

  /// The header in front of each block of memory.
  struct alignas(alignment) block {
    block* next;             // next free block, next held block, or first block of the next row
    std::size_t size_class;  // class of this block, which may be larger than the requested class
    std::size_t row;         // in the first block of a row (adjacent blocks, never used): number of blocks in the row
    block* older;            // in the first block of a chunk (an upstream allocation): the previous chunk
    std::size_t chunk_bytes; // in the first block of a chunk: size of the chunk in bytes
  };
  static_assert(sizeof(block) == alignment);

  /// Size of a block in bytes, including its header. The size is a multiple of the alignment, because the blocks of a
  /// row are adjacent in memory.
  static constexpr std::size_t bytes_of(std::size_t size_class) noexcept {
    return (sizeof(block) + classes::capacity(size_class) + alignment - 1) / alignment * alignment;
  }

  class exclusive {
   public:
    explicit exclusive(pool& memory) noexcept : taken_(memory.shared_ ? &memory.taken_ : nullptr) {
      while (taken_ != nullptr && __atomic_test_and_set(taken_, __ATOMIC_ACQUIRE)) {
      }
    }
    exclusive(const exclusive&) = delete;
    ~exclusive() {
      if (taken_ != nullptr) __atomic_clear(taken_, __ATOMIC_RELEASE);
    }

   private:
    bool* taken_;
  };

  // Not inlined: every coroutine and every buffer would otherwise contain a copy of this function.
  void* do_allocate(std::size_t bytes, std::size_t align) override;

  void do_deallocate(void* p, std::size_t, std::size_t) override;

  void put_back(block* b) noexcept {
    b->next = free_[b->size_class];
    free_[b->size_class] = b;
    --in_use_[b->size_class];
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  /// Returns a free block of the smallest size class that is at least `wanted` and has a free block. If there is no
  /// such class, allocates a block of the class `wanted` from upstream.
  [[gnu::cold]] block* find(std::size_t wanted);

  block* last_of_row(std::size_t size_class) noexcept;

  /// Allocates a chunk of `bytes` bytes from upstream, and returns its memory. The header of the first block in the
  /// chunk also links the chunk into the list of all chunks.
  std::byte* add_chunk(std::size_t bytes);
  void add_row(std::byte* at, std::size_t size_class, std::size_t length) noexcept;

  void next_period(bool sets_aside) noexcept;
  [[gnu::cold]] void set_aside() noexcept;

  std::pmr::memory_resource* upstream_;
  std::uint64_t ranks_;
  pool_requests* requests_ = &own_;
  classes::table<block*> free_{};
  classes::table<std::uint32_t> in_use_{};
  classes::table<block*> rows_{};                                 // rows of adjacent blocks that were never used
  std::array<std::uint64_t, (classes::count + 63) / 64> exist_{}; // bit set of the classes with existing blocks
  classes::table<std::uint64_t> blocks_{};
  classes::table<std::uint32_t> most_{};      // per class, most requests of one rank in one call
  classes::table<std::uint32_t> most_from_{}; // per class c, most requests of one rank in one call for classes >= c
  block* chunks_ = nullptr;
  block* held_ = nullptr; // blocks deallocated since `hold`
  bool holds_ = false;
  pool_requests own_;
  std::uint64_t owners_ = 1;
  bool shared_ = false;
  bool taken_ = false; // read and written by atomic operations
};

/// Shares the ownership of a pool with all copies of this object. The pool is destroyed when its last owner has been
/// destroyed and its last block deallocated, so that results may outlive their transport.
class pool_owner {
 public:
  /// Creates a pool for `ranks` ranks, which takes its memory from `upstream`.
  explicit pool_owner(std::pmr::memory_resource& upstream, std::uint32_t ranks = 1);
  /// Shares the pool of `other`.
  pool_owner(const pool_owner& other) noexcept : pool_(other.pool_) { ++pool_->owners_; }
  pool_owner& operator=(const pool_owner&) = delete;
  ~pool_owner();
  /// The pool.
  [[nodiscard]] pool& operator*() const noexcept { return *pool_; }

 private:
  pool* pool_;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/core/memory/pool-inl.hpp>
#endif
