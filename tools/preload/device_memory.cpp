// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "device_memory.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>

namespace preload {

namespace {

// The functions of CUDA's driver interface that this file uses; they return 0 on success.
using address_of_device = unsigned long long;
using attribute_function = int (*)(void* value, int attribute, address_of_device);
using copy_function = int (*)(address_of_device to, address_of_device from, std::size_t bytes);
using synchronize_function = int (*)(void* stream);
using push_function = int (*)(void* context);
using pop_function = int (*)(void** context);
using retain_function = int (*)(void** context, int device);
using release_function = int (*)(int device);
constexpr int context_attribute = 1;  // CU_POINTER_ATTRIBUTE_CONTEXT
constexpr int memory_attribute = 2;   // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int device_attribute = 9;   // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr unsigned device_memory = 2; // CU_MEMORYTYPE_DEVICE

/// The number of shared libraries that the process has loaded so far.
unsigned long long loaded_so_far() noexcept {
  unsigned long long count = 0;
  const auto look = [](dl_phdr_info* info, std::size_t, void* out) {
    *static_cast<unsigned long long*>(out) = info->dlpi_adds;
    return 1;
  };
  dl_iterate_phdr(look, &count);
  return count;
}

/// A library that the process may load at any time, as CUDA's runtime does, and whose symbols the program need not
/// define. Searching for a missing library takes microseconds, so `handle` searches again only if the process has
/// loaded a library since the last search.
class late_library {
 public:
  /// Stands for the first loaded library among `names`, which must outlive this object.
  constexpr explicit late_library(std::span<const char* const> names) : names_(names) {}
  /// Null until the process loads the library.
  [[nodiscard]] void* handle() noexcept {
    if (found_.load() == nullptr) {
      const unsigned long long now = loaded_so_far();
      if (looked_.load() != now) {
        for (const char* name : names_) {
          void* const handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
          if (handle == nullptr) continue;
          found_ = handle; // another thread may have found the same library meanwhile
          break;
        }
        looked_ = now;
      }
    }
    return found_;
  }

 private:
  std::span<const char* const> names_;
  std::atomic<void*> found_ = nullptr;
  std::atomic<unsigned long long> looked_ = 0;
};

constexpr const char* cuda_names[] = {"libcuda.so.1"};
late_library cuda(cuda_names);
// HIP (AMD) and Level Zero (Intel).
constexpr const char* unknown_names[] = {"libamdhip64.so",   "libamdhip64.so.4", "libamdhip64.so.5",
                                         "libamdhip64.so.6", "libamdhip64.so.7", "libze_loader.so.1"};
late_library unknown(unknown_names);
// The modules with which UCX reads memory of HIP and Level Zero, even if the MPI library does not report it.
constexpr const char* module_names[] = {"libuct_rocm.so.0", "libuct_ze.so.0"};
late_library modules(module_names);

template <class Function>
Function find(const char* name) noexcept {
  void* const from = cuda.handle();
  return from == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(from, name));
}

address_of_device number_of(const void* address) noexcept { return reinterpret_cast<address_of_device>(address); }

/// Makes the context of a device address current on this thread for the lifetime of this object: the thread may have no
/// current context, or another one.
class context_of {
 public:
  explicit context_of(const void* address) {
    const auto ask = find<attribute_function>("cuPointerGetAttribute");
    void* context = nullptr;
    ask(&context, context_attribute, number_of(address));
    if (context == nullptr && ask(&device_, device_attribute, number_of(address)) == 0) { // memory from a pool
      release_ = find<release_function>("cuDevicePrimaryCtxRelease_v2");
      const auto retain = find<retain_function>("cuDevicePrimaryCtxRetain");
      if (release_ != nullptr && retain(&context, device_) != 0) release_ = nullptr;
    }
    pushed_ = context != nullptr && find<push_function>("cuCtxPushCurrent_v2")(context) == 0;
  }
  context_of(const context_of&) = delete;
  ~context_of() {
    void* context = nullptr;
    if (pushed_) find<pop_function>("cuCtxPopCurrent_v2")(&context);
    if (release_ != nullptr) release_(device_);
  }

 private:
  int device_ = 0;
  release_function release_ = nullptr; // null unless a context was retained
  bool pushed_ = false;
};

} // namespace

bool has_devices() noexcept { return find<attribute_function>("cuPointerGetAttribute") != nullptr; }

bool has_unknown_devices() noexcept { return unknown.handle() != nullptr; }

bool may_get_unknown_devices() noexcept {
  constexpr const char* queries[] = {"MPIX_Query_rocm_support", "MPIX_Query_hip_support", "MPIX_Query_ze_support"};
  const auto says_so = [](const char* name) {
    const auto ask = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, name)); // first: Open MPI 5; others: MPICH 4
    return ask != nullptr && ask() != 0;
  };
  const auto is_set = [](const char* variable) { // Intel MPI, MVAPICH2
    const char* const value = std::getenv(variable);
    return value != nullptr && std::atoi(value) != 0;
  };
  return std::any_of(std::begin(queries), std::end(queries), says_so) || modules.handle() != nullptr ||
         is_set("I_MPI_OFFLOAD") || is_set("MV2_USE_ROCM");
}

bool is_device_memory(const void* address) noexcept {
  const auto ask = find<attribute_function>("cuPointerGetAttribute");
  unsigned type = 0;
  // The driver returns an error for memory that CUDA did not allocate.
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
  // cuMemcpy to a device may return before the copy is complete, and the program's streams need not wait for the copy.
  if (status == 0) status = find<synchronize_function>("cuStreamSynchronize")(nullptr);
  if (status != 0) {
    throw std::runtime_error("CUDA's driver failed to copy " + std::to_string(bytes) + " bytes: error " +
                             std::to_string(status));
  }
}

} // namespace preload
