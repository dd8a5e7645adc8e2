// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host_memory.hpp"

#include <dlfcn.h>

namespace preload {

namespace {

// cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) of CUDA's driver interface.
using attribute_function = int (*)(void* value, int attribute, unsigned long long address);
constexpr int memory_type = 2;
constexpr unsigned device_memory = 2; // CU_MEMORYTYPE_DEVICE

} // namespace

bool is_host_memory(const void* address) noexcept {
  static const auto ask = reinterpret_cast<attribute_function>(dlsym(RTLD_DEFAULT, "cuPointerGetAttribute"));
  if (ask == nullptr) return true;
  unsigned type = 0;
  // An error says that CUDA knows nothing of it.
  return ask(&type, memory_type, reinterpret_cast<unsigned long long>(address)) != 0 || type != device_memory;
}

} // namespace preload
