// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host_memory.hpp"

#include <dlfcn.h>

#include <atomic>

namespace preload {

namespace {

// cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) of CUDA's driver interface.
using attribute_function = int (*)(void* value, int attribute, unsigned long long address);
constexpr int memory_type = 2;
constexpr unsigned device_memory = 2; // CU_MEMORYTYPE_DEVICE

/// Null until the driver is loaded. CUDA's runtime opens it by itself, so its names are not among the program's.
attribute_function find_attribute_function() noexcept {
  static std::atomic<attribute_function> found = nullptr;
  if (found.load() == nullptr) {
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver != nullptr) found = reinterpret_cast<attribute_function>(dlsym(driver, "cuPointerGetAttribute"));
  }
  return found;
}

} // namespace

bool has_devices() noexcept { return find_attribute_function() != nullptr; }

bool is_host_memory(const void* address) noexcept {
  const attribute_function ask = find_attribute_function();
  if (ask == nullptr) return true;
  unsigned type = 0;
  // An error says that CUDA knows nothing of it.
  return ask(&type, memory_type, reinterpret_cast<unsigned long long>(address)) != 0 || type != device_memory;
}

} // namespace preload
