// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Replaces the global operator new by one that counts; in a separate file, so that it is not inlined into the tests.
#include "support/global_allocations.hpp"
#include "support/unfailing_allocations.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> count = 0;
thread_local std::uint64_t until_failure = 0; // allocations of this thread until one fails, including this; 0: none

void* counted(std::size_t size, std::size_t alignment) {
  ++count;
  if (until_failure > 0 && spar_doubles::unfailing_allocations::nested == 0 && --until_failure == 0)
    throw std::bad_alloc();
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(size)
                : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

} // namespace

std::uint64_t spar_test::global_allocations() { return count; }

spar_test::failing_allocation::failing_allocation(std::uint64_t number) : number_(number) { until_failure = number; }
spar_test::failing_allocation::~failing_allocation() { until_failure = 0; }
bool spar_test::failing_allocation::failed() const { return number_ > 0 && until_failure == 0; }

void* operator new(std::size_t size) { return counted(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return counted(size, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
