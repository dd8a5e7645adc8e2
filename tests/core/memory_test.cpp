// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pool, which recycles every block, and the types that use it: buffers and vectors of fixed capacity.
#include "support/counting_resource.hpp"

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/memory/pool.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using spar_test::counting_resource;

/// Whether all of the `size` bytes at `at` are `mark`: the first byte is, and each byte equals the next one. memcmp is
/// fast with sanitizers, unlike a loop.
bool is_filled(const unsigned char* at, std::size_t size, unsigned char mark) {
  return size == 0 || (at[0] == mark && std::memcmp(at, at + 1, size - 1) == 0);
}

TEST(pool, gives_aligned_memory_of_the_size_asked_for) {
  counting_resource upstream;
  {
    spar::pool pool{upstream};
    for (const std::size_t bytes :
         {1U, 63U, 64U, 65U, 80U, 81U, 127U, 128U, 129U, 1000U, 4096U, 100'000U, 1'000'001U}) {
      void* p = pool.allocate(bytes, 64);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0U) << bytes;
      std::memset(p, 0xAB, bytes); // the address sanitizer checks that all of these bytes may be written
      pool.deallocate(p, bytes, 64);
    }
  }
  EXPECT_EQ(upstream.outstanding(), 0);
  EXPECT_EQ(upstream.outstanding_bytes(), 0);
}

TEST(pool, recycles_for_the_same_size_and_for_smaller_ones) {
  counting_resource upstream;
  spar::pool pool{upstream};
  for (std::size_t size = 10'000; size > 0; size /= 2) {
    void* p = pool.allocate(size, 16);
    pool.deallocate(p, size, 16);
  }
  EXPECT_EQ(upstream.allocations(), 1U);
}

TEST(pool, never_gives_a_block_twice) {
  counting_resource upstream;
  {
    spar::pool pool{upstream};
    std::mt19937 random(3);
    struct piece {
      unsigned char* at;
      std::size_t size;
      unsigned char mark;
    };
    std::vector<piece> live;
    for (int step = 0; step < 20'000; ++step) {
      if (live.size() < 50 && random() % 2 == 0) {
        const std::size_t size = 1 + random() % (1U << (random() % 14));
        const auto mark = static_cast<unsigned char>(random());
        auto* p = static_cast<unsigned char*>(pool.allocate(size, 8));
        std::memset(p, mark, size);
        live.push_back({p, size, mark});
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        const piece& gone = live.back();
        ASSERT_TRUE(is_filled(gone.at, gone.size, gone.mark));
        pool.deallocate(gone.at, gone.size, 8);
        live.pop_back();
      }
      ASSERT_EQ(pool.live(), live.size());
    }
    for (const piece& p : live) pool.deallocate(p.at, p.size, 8);
    EXPECT_EQ(pool.live(), 0U);
  }
  EXPECT_EQ(upstream.outstanding(), 0);
}

TEST(pool, wastes_at_most_a_quarter_and_its_own_header) {
  for (const std::size_t size : {100U, 1000U, 1025U, 5000U, 70'000U, 1'000'000U, 1'048'577U}) {
    counting_resource upstream;
    spar::pool pool{upstream};
    void* p = pool.allocate(size, 8);
    EXPECT_LE(upstream.bytes(), size + size / 4 + 128) << size;
    pool.deallocate(p, size, 8);
  }
}

/// The requests of one call: each number allocates that many bytes; 0 frees one of the live blocks.
using calls = std::vector<std::size_t>;

calls random_call(std::mt19937& random, std::size_t largest) {
  calls steps(1 + random() % 60);
  for (auto& size : steps) size = random() % 2 == 0 ? 0 : 1 + random() % (std::size_t{1} << (random() % largest));
  return steps;
}

/// Makes one call; the blocks that the call leaves live are freed after the next call. The destructor frees the blocks
/// that are still held.
class caller {
 public:
  explicit caller(spar::pool& memory) : memory_(&memory) {}
  caller(const caller&) = delete;
  ~caller() { give_back(held_); }

  void call(const calls& steps, std::mt19937& random, std::size_t keep) {
    memory_->begin_call();
    std::vector<taken> live;
    for (const std::size_t size : steps) {
      if (size > 0) {
        live.push_back(take(size));
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        give_back(live.back());
        live.pop_back();
      }
    }
    memory_->end_call();
    std::vector<taken> left;
    while (left.size() < keep && !live.empty()) {
      left.push_back(live.back());
      live.pop_back();
    }
    give_back(live);
    give_back(held_);
    held_ = std::move(left);
  }

 private:
  /// A block filled with its own mark: if another block overlaps it, the mark changes.
  struct taken {
    unsigned char* at;
    std::size_t size;
    unsigned char mark;
  };
  taken take(std::size_t size) {
    const taken b{static_cast<unsigned char*>(memory_->allocate(size, 64)), size, ++mark_};
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.at) % 64, 0U) << size;
    std::memset(b.at, b.mark, size);
    return b;
  }
  void give_back(const taken& b) {
    EXPECT_TRUE(is_filled(b.at, b.size, b.mark));
    memory_->deallocate(b.at, b.size, 64);
  }
  void give_back(std::vector<taken>& blocks) {
    for (const taken& b : blocks) give_back(b);
    blocks.clear();
  }
  spar::pool* memory_;
  unsigned char mark_ = 0;
  std::vector<taken> held_;
};

/// The guarantee of pool.hpp: for the same requests in any order, each of the same size or smaller, with any frees in
/// between, the pool allocates nothing upstream.
TEST(pool, takes_nothing_upstream_for_calls_that_are_no_larger) {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    counting_resource upstream;
    {
      spar::pool pool{upstream};
      caller rank(pool);
      const calls first = random_call(random, 1 + random() % 20);
      rank.call(first, random, 0);
      const std::uint64_t before = upstream.allocations();
      for (int repetition = 0; repetition < 50; ++repetition) {
        calls next = first;
        std::shuffle(next.begin(), next.end(), random);
        for (auto& size : next) {
          if (size > 0 && random() % 2 == 0) size = 1 + random() % size;
        }
        rank.call(next, random, 0);
        ASSERT_EQ(upstream.allocations(), before) << "round " << round << ", repetition " << repetition;
      }
    }
    EXPECT_EQ(upstream.outstanding_bytes(), 0);
  }
}

/// The same guarantee while the previous call's result is kept.
TEST(pool, takes_nothing_upstream_while_results_are_kept) {
  std::mt19937 random(12);
  for (int round = 0; round < 400; ++round) {
    counting_resource upstream;
    spar::pool pool{upstream};
    caller rank(pool);
    calls first = random_call(random, 1 + random() % 20);
    first.push_back(1 + random() % 200'000); // the result
    rank.call(first, random, 1);
    const std::uint64_t before = upstream.allocations();
    for (int repetition = 0; repetition < 50; ++repetition) {
      rank.call(first, random, 1);
      ASSERT_EQ(upstream.allocations(), before) << "round " << round << ", repetition " << repetition;
    }
  }
}

TEST(pool, sets_nothing_aside_for_requests_outside_calls) {
  counting_resource upstream;
  spar::pool pool{upstream};
  for (int i = 0; i < 1000; ++i) pool.deallocate(pool.allocate(1000, 8), 1000, 8);
  pool.begin_call();
  pool.deallocate(pool.allocate(500, 8), 500, 8);
  pool.end_call();
  EXPECT_LE(upstream.bytes(), 5000U);
}

/// With a handle that is always open, all calls would form one long period if the end of each call did not end a
/// period.
TEST(pool, takes_nothing_upstream_while_another_call_is_always_open) {
  counting_resource upstream;
  spar::pool pool{upstream};
  pool.begin_call();
  std::uint64_t after_first = 0;
  for (int call = 0; call < 1000; ++call) {
    for (int i = 0; i < 10; ++i) pool.deallocate(pool.allocate(1000, 8), 1000, 8);
    pool.end_call();
    if (call == 0) after_first = upstream.bytes();
  }
  EXPECT_EQ(upstream.bytes(), after_first);
}

TEST(pool, takes_large_blocks_once_more_only_where_they_stay_in_use) {
  counting_resource upstream;
  spar::pool pool{upstream};
  constexpr std::size_t size = 1'000'000;
  pool.begin_call();
  void* scratch = pool.allocate(size, 8);
  pool.deallocate(scratch, size, 8);
  pool.end_call();
  EXPECT_EQ(upstream.allocations(), 1U) << "one large request must take one block";
}

/// If the upstream resource has no memory to set aside, the pool goes on without an error.
TEST(pool, goes_on_where_nothing_can_be_set_aside) {
  class limited final : public std::pmr::memory_resource {
   public:
    std::size_t left = 4000;

   private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
      if (bytes > left) throw std::bad_alloc();
      left -= bytes;
      return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    }
    void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
      std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
    }
    [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  } upstream;
  spar::pool pool{upstream};
  for (int call = 0; call < 3; ++call) {
    pool.begin_call();
    for (int i = 0; i < 10; ++i) pool.deallocate(pool.allocate(1000, 8), 1000, 8);
    pool.end_call();
  }
  EXPECT_EQ(pool.live(), 0U);
}

TEST(pool, refuses_what_it_cannot_align) {
  spar::pool pool;
  EXPECT_THROW((void)pool.allocate(64, 128), std::bad_alloc);
  EXPECT_EQ(pool.live(), 0U);
}

TEST(pool_owner, lets_a_block_outlive_it) {
  counting_resource upstream;
  spar::buffer<int> result;
  {
    const spar::pool_owner owner{upstream};
    result = spar::buffer<int>(*owner, 1000);
    const spar::buffer<int> other(*owner, 500);
    result.span()[999] = 5;
  }
  EXPECT_EQ(result.span()[999], 5);
  EXPECT_GT(upstream.outstanding(), 0);
  result = {};
  EXPECT_EQ(upstream.outstanding(), 0) << "freeing the last block must destroy the pool";
}

TEST(pool_owner, without_live_blocks_ends_at_once) {
  counting_resource upstream;
  {
    const spar::pool_owner owner{upstream};
    const spar::buffer<int> gone(*owner, 1000);
  }
  EXPECT_EQ(upstream.outstanding(), 0);
}

// --- buffer ---

TEST(buffer, can_be_moved) {
  spar::pool pool;
  spar::buffer<double> a(pool, 100);
  a.span()[7] = 3.5;
  spar::buffer<double> b(std::move(a));
  EXPECT_EQ(b.size(), 100U);
  EXPECT_EQ(b.span()[7], 3.5);
  spar::buffer<double> c;
  c = std::move(b);
  EXPECT_EQ(c.span()[7], 3.5);
  EXPECT_EQ(pool.live(), 1U);
}

TEST(buffer, gives_back_what_it_took) {
  counting_resource upstream;
  {
    spar::pool pool{upstream};
    {
      spar::buffer<int> a(pool, 10);
      const spar::buffer<double> b(pool, 1000);
      a = spar::buffer<int>(pool, 3);
      EXPECT_EQ(a.size(), 3U);
    }
    EXPECT_EQ(pool.live(), 0U);
  }
  EXPECT_EQ(upstream.outstanding_bytes(), 0);
}

TEST(buffer, of_nothing_takes_no_memory) {
  counting_resource upstream;
  spar::pool pool{upstream};
  const spar::buffer<int> b(pool, 0);
  EXPECT_EQ(b.size(), 0U);
  EXPECT_EQ(upstream.allocations(), 0U);
}

// --- fixed_vector ---

TEST(fixed_vector, constructs_and_destroys_its_elements) {
  spar::pool pool;
  const auto shared = std::make_shared<int>(1);
  {
    spar::fixed_vector<std::shared_ptr<int>> v(pool, 3);
    v.emplace_back(shared);
    EXPECT_EQ(*v.emplace_back(shared), 1);
    EXPECT_EQ(v.size(), 2U);
    EXPECT_EQ(shared.use_count(), 3);
    v.clear();
    EXPECT_EQ(shared.use_count(), 1);
    v.emplace_back(shared);
    EXPECT_EQ(v.span().size(), 1U);
  }
  EXPECT_EQ(shared.use_count(), 1);
  EXPECT_EQ(pool.live(), 0U);
}

TEST(fixed_vector, holds_what_can_neither_be_copied_nor_moved) {
  struct pinned {
    explicit pinned(int x) : value(x), self(this) {}
    pinned(const pinned&) = delete;
    int value;
    pinned* self;
  };
  spar::pool pool;
  spar::fixed_vector<pinned> v(pool, 10);
  for (int i = 0; i < 10; ++i) v.emplace_back(i);
  int sum = 0;
  for (const pinned& p : v) {
    sum += p.value;
    EXPECT_EQ(p.self, &p);
  }
  EXPECT_EQ(sum, 45);
}

} // namespace
