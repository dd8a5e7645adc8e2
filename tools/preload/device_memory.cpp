// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "device_memory.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>

namespace preload {

namespace {

// What is used of CUDA's driver interface, whose functions return 0 where all is well.
using address_of_device = unsigned long long;
using attribute_function = int (*)(void* value, int attribute, address_of_device);
using copy_function = int (*)(address_of_device to, address_of_device from, std::size_t bytes);
using synchronize_function = int (*)(void* stream);
using push_function = int (*)(void* context);
using pop_function = int (*)(void** context);
constexpr int context_attribute = 1;  // CU_POINTER_ATTRIBUTE_CONTEXT
constexpr int memory_attribute = 2;   // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr unsigned device_memory = 2; // CU_MEMORYTYPE_DEVICE

/// How many libraries the process has ever loaded.
unsigned long long loaded_so_far() noexcept {
  unsigned long long count = 0;
  const auto look = [](dl_phdr_info* info, std::size_t, void* out) {
    *static_cast<unsigned long long*>(out) = info->dlpi_adds;
    return 1;
  };
  dl_iterate_phdr(look, &count);
  return count;
}

/// CUDA's driver, null until it is loaded. CUDA's runtime opens it by itself, so its names are not among the program's.
/// To look for what is not there takes microseconds, so that is done only when a library has been loaded since.
void* driver() noexcept {
  static std::atomic<void*> found = nullptr;
  static std::atomic<unsigned long long> looked = 0;
  if (found.load() == nullptr) {
    const unsigned long long now = loaded_so_far();
    if (looked.load() != now) {
      void* const handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
      if (handle != nullptr) found = handle; // which another thread may have found meanwhile
      looked = now;
    }
  }
  return found;
}

template <class Function>
Function find(const char* name) noexcept {
  void* const from = driver();
  return from == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(from, name));
}

address_of_device number_of(const void* address) noexcept { return reinterpret_cast<address_of_device>(address); }

/// The context of a device's memory is this thread's while this lives: the program's thread may have none.
class context_of {
 public:
  explicit context_of(const void* address) {
    void* context = nullptr; // of memory from a pool it stays null
    find<attribute_function>("cuPointerGetAttribute")(&context, context_attribute, number_of(address));
    pushed_ = context != nullptr && find<push_function>("cuCtxPushCurrent_v2")(context) == 0;
  }
  context_of(const context_of&) = delete;
  ~context_of() {
    void* context = nullptr;
    if (pushed_) find<pop_function>("cuCtxPopCurrent_v2")(&context);
  }

 private:
  bool pushed_;
};

} // namespace

bool has_devices() noexcept { return find<attribute_function>("cuPointerGetAttribute") != nullptr; }

bool has_unknown_devices() noexcept {
  constexpr const char* names[] = {"libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7", "libze_loader.so.1"};
  return std::any_of(std::begin(names), std::end(names),
                     [](const char* name) { return dlopen(name, RTLD_LAZY | RTLD_NOLOAD) != nullptr; });
}

bool is_device_memory(const void* address) noexcept {
  const auto ask = find<attribute_function>("cuPointerGetAttribute");
  unsigned type = 0;
  // An error says that CUDA knows nothing of it.
  return ask != nullptr && ask(&type, memory_attribute, number_of(address)) == 0 && type == device_memory;
}

void copy(void* to, const void* from, std::size_t bytes) {
  const bool to_device = is_device_memory(to);
  if (!to_device && !is_device_memory(from)) {
    std::memcpy(to, from, bytes);
    return;
  }
  const context_of context(to_device ? to : from);
  int status = find<copy_function>("cuMemcpy")(number_of(to), number_of(from), bytes);
  // A copy to a device may return before it has ended, and the program's streams need not wait for that.
  if (status == 0) status = find<synchronize_function>("cuStreamSynchronize")(nullptr);
  if (status != 0) {
    throw std::runtime_error("CUDA's driver does not copy " + std::to_string(bytes) + " bytes: error " +
                             std::to_string(status));
  }
}

} // namespace preload
