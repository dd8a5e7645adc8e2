// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stands in for CUDA's driver, libcuda.so.1, on machines without a device: device memory that the processor cannot
// read, and copies that need a context and complete late.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace {

constexpr int invalid_value = 1, out_of_memory = 2, invalid_device = 101, invalid_context = 201, launch_failed = 719;

struct memory {
  std::size_t bytes;
  std::byte* seen; // where this file can read and write the memory
  bool from_pool;  // belongs to no context
};
std::mutex turn;
std::map<unsigned long long, memory> memories; // by address
char the_context, another_context;
constexpr int the_device = 3;
thread_local std::vector<void*> contexts; // the last context is current
int retained = 0;
bool failing = false, pooling = false;

/// A copy to a device that is still to be done.
struct copy {
  std::byte* to;
  std::vector<std::byte> values;
};
std::vector<copy> late;

/// Returns null for an address in the processor's memory.
std::byte* seen(unsigned long long address, bool* from_pool = nullptr) {
  const auto after = memories.upper_bound(address);
  if (after == memories.begin()) return nullptr;
  const auto& [begin, of] = *std::prev(after);
  if (from_pool != nullptr) *from_pool = of.from_pool;
  return address < begin + of.bytes ? of.seen + (address - begin) : nullptr;
}

} // namespace

extern "C" {

int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  const std::lock_guard mine(turn);
  const int file = memfd_create("device", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return out_of_memory;
  void* const hidden = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  void* const seen = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (hidden == MAP_FAILED || seen == MAP_FAILED) return out_of_memory;
  *address = reinterpret_cast<unsigned long long>(hidden);
  memories[*address] = {bytes, static_cast<std::byte*>(seen), pooling};
  return 0;
}

int cuPointerGetAttribute(void* value, int attribute, unsigned long long address) {
  const std::lock_guard mine(turn);
  bool from_pool = false;
  if (seen(address, &from_pool) == nullptr) return invalid_value;
  void* const context = from_pool ? nullptr : &the_context;
  const unsigned device = 2;
  if (attribute == 1) std::memcpy(value, static_cast<const void*>(&context), sizeof context);
  if (attribute == 2) std::memcpy(value, &device, sizeof device);
  if (attribute == 9) std::memcpy(value, &the_device, sizeof the_device);
  return attribute == 1 || attribute == 2 || attribute == 9 ? 0 : invalid_value;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (device != the_device) return invalid_device;
  ++retained;
  *context = &the_context;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  if (device != the_device || retained == 0) return invalid_device;
  --retained;
  return 0;
}
/// The number of retained contexts that have not been released.
int retained_contexts() { return retained; }
/// From now on new memory belongs to no context, like that of a memory pool.
void use_pool() { pooling = true; }

/// A context in which the device's memory cannot be accessed.
void* context_of_another_device() { return &another_context; }

int cuCtxPushCurrent_v2(void* context) {
  if (context != &the_context && context != &another_context) return invalid_context;
  contexts.push_back(context);
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return invalid_context;
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}

/// From now on every copy fails, as after a fault on the device.
void fail_copies() { failing = true; }

int cuMemcpy(unsigned long long to, unsigned long long from, std::size_t bytes) {
  const std::lock_guard mine(turn);
  if (contexts.empty() || contexts.back() != &the_context) return invalid_context;
  if (failing) return launch_failed;
  const std::byte* const source = seen(from) != nullptr ? seen(from) : reinterpret_cast<const std::byte*>(from);
  if (seen(to) != nullptr)
    late.push_back({seen(to), {source, source + bytes}});
  else
    std::memcpy(reinterpret_cast<void*>(to), source, bytes);
  return 0;
}
int cuStreamSynchronize(void*) {
  const std::lock_guard mine(turn);
  for (const copy& c : late) std::memcpy(c.to, c.values.data(), c.values.size());
  late.clear();
  return 0;
}

} // extern "C"
