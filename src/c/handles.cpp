// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of handles.
#include "handles.hpp"

#include <spar/core/error.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <mutex>
#include <utility>

namespace spar::inline v0_1::c {

namespace {

struct slot {
  std::atomic<std::uint32_t> use{0}; // the number of the object that is in the slot, or 0
  std::uint32_t last = 0;            // the number of the last object in the slot
  std::atomic<kind> of{kind::none};
  std::shared_ptr<object> what;
  std::uint32_t next_free = 0;
};

// A slot stays where it is, so that threads look up handles without a lock. Chunk c has 64 * 2^c slots.
constexpr std::uint32_t first_chunk = 64;
constexpr unsigned half = 4 * sizeof(std::uintptr_t); // bits of the number of a slot, and of the number of its use
constexpr std::uintptr_t low = (std::uintptr_t{1} << half) - 1;

/// The state of the C interface in a process: the table, and its list of free slots.
class table {
 public:
  std::uintptr_t add(kind of, std::shared_ptr<object> what) {
    const std::lock_guard lock(mutex_);
    if (free_ == 0) grow();
    const std::uint32_t number = free_;
    slot& s = at(number);
    free_ = s.next_free;
    s.last = s.last % static_cast<std::uint32_t>(low) + 1;
    s.of.store(of, std::memory_order_relaxed);
    s.what = std::move(what);
    s.use.store(s.last, std::memory_order_release);
    return std::uintptr_t{s.last} << half | number;
  }
  slot* find(std::uintptr_t handle) noexcept {
    const auto number = static_cast<std::uint32_t>(handle & low);
    if (number == 0 || number > size_.load(std::memory_order_acquire)) return nullptr;
    slot& s = at(number);
    return s.use.load(std::memory_order_acquire) == handle >> half ? &s : nullptr;
  }
  /// Returns null if another thread has removed the handle.
  std::shared_ptr<object> remove(slot& s, std::uintptr_t handle) {
    const std::lock_guard lock(mutex_);
    if (s.use.load(std::memory_order_relaxed) != handle >> half) return nullptr;
    s.use.store(0, std::memory_order_release);
    s.of.store(kind::none, std::memory_order_relaxed);
    s.next_free = std::exchange(free_, static_cast<std::uint32_t>(handle & low));
    return std::move(s.what);
  }

 private:
  slot& at(std::uint32_t number) noexcept {
    const std::uint32_t position = number - 1 + first_chunk;
    const auto chunk = static_cast<unsigned>(std::bit_width(position / first_chunk)) - 1;
    return chunks_[chunk].load(std::memory_order_acquire)[position - (first_chunk << chunk)];
  }
  void grow() {
    const std::uint32_t size = size_.load(std::memory_order_relaxed);
    const auto chunk = static_cast<unsigned>(std::bit_width((size + first_chunk) / first_chunk)) - 1;
    if (chunk >= chunks_.size() || size + (first_chunk << chunk) > low)
      raise<error>({"there are ", size, " handles in use, and no room for more"});
    chunks_[chunk].store(new slot[first_chunk << chunk], std::memory_order_release);
    size_.store(size + (first_chunk << chunk), std::memory_order_release);
    for (std::uint32_t number = size_.load(std::memory_order_relaxed); number > size; --number)
      at(number).next_free = std::exchange(free_, number);
  }

  std::mutex mutex_;
  std::array<std::atomic<slot*>, 24> chunks_{};
  std::atomic<std::uint32_t> size_{0};
  std::uint32_t free_ = 0;
};

table& all() noexcept {
  static auto* const handles = new table; // never destroyed: a program may free handles when it exits
  return *handles;
}

/// The kind with its article.
const char* name_of(kind of) noexcept {
  constexpr const char* names[] = {"an object", "a communicator",    "a stream",          "gathered vectors",
                                   "a request", "an error feedback", "a partial reducer", "an operation"};
  return names[static_cast<std::size_t>(of)];
}

slot& checked(kind of, std::uintptr_t handle, const char* argument) {
  if (handle == 0) raise<invalid_argument>({"'", argument, "' is NULL; expected the handle of ", name_of(of)});
  slot* const s = all().find(handle);
  if (s == nullptr)
    raise<invalid_argument>(
        {"'", argument, "' is not a handle, or was freed already; expected the handle of ", name_of(of)});
  const kind is = s->of.load(std::memory_order_relaxed);
  if (is != of)
    raise<invalid_argument>(
        {"'", argument, "' is the handle of ", name_of(is), "; expected the handle of ", name_of(of)});
  return *s;
}

} // namespace

std::uintptr_t add_handle(kind of, std::shared_ptr<object> what) { return all().add(of, std::move(what)); }

const std::shared_ptr<object>& object_of(kind of, std::uintptr_t handle, const char* argument) {
  return checked(of, handle, argument).what;
}

bool is_handle(kind of, std::uintptr_t handle) noexcept {
  const slot* const s = all().find(handle);
  return s != nullptr && s->of.load(std::memory_order_relaxed) == of;
}

std::shared_ptr<object> remove_handle(kind of, std::uintptr_t handle, const char* argument) {
  std::shared_ptr<object> removed = all().remove(checked(of, handle, argument), handle);
  if (removed == nullptr) checked(of, handle, argument); // throws
  return removed;
}

} // namespace spar::inline v0_1::c
