// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A memory resource that counts allocations, from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace spar_test {

class counting_resource final : public std::pmr::memory_resource {
 public:
  [[nodiscard]] std::uint64_t allocations() const { return allocations_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Blocks that have not been freed.
  [[nodiscard]] std::int64_t outstanding() const { return outstanding_; }
  /// Bytes that have not been freed. A block that is freed with another size or alignment than it was allocated with
  /// does not count as freed.
  [[nodiscard]] std::int64_t outstanding_bytes() const { return outstanding_bytes_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    ++allocations_;
    bytes_ += bytes;
    ++outstanding_;
    outstanding_bytes_ += static_cast<std::int64_t>(bytes);
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    --outstanding_;
    outstanding_bytes_ -= static_cast<std::int64_t>(bytes);
    std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::atomic<std::uint64_t> allocations_ = 0;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<std::int64_t> outstanding_ = 0;
  std::atomic<std::int64_t> outstanding_bytes_ = 0;
};

} // namespace spar_test
