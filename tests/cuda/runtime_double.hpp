// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Controls of a test double of the CUDA runtime: streams are queues of steps, which other calls of the runtime advance
// at random. A captured stream keeps its calls as a graph. The processor cannot access device memory, so that a program
// that reads device memory as if it were host memory dies.
#pragma once

#include "support/unfailing_allocations.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace cuda_double {

/// Begins again: another seed for the progress of streams, no error, and no calls. Only while no stream has work.
void reset(std::uint64_t seed);
/// The runtime's call with this number, from 1, fails; only calls of the thread that calls this function count.
void fail_at(std::uint64_t call);
/// The number of calls of this thread that could have failed.
std::uint64_t calls();
/// The function of the runtime that has failed last on this thread by `fail_at`.
std::string failed_call();
/// While streams are held, only `finish`, waits for them, and more than 1000 polls of an event advance them.
void hold(bool on);
/// Like `hold`, but polls of an event do not advance streams either.
void stop(bool on);
/// From now on, only `finish`, waits, also those of other streams, and more than 1000 polls of an event advance this
/// stream.
void stall(cudaStream_t stream);
/// Puts work of the device into a stream.
void put(cudaStream_t stream, std::function<void()> work);
/// Puts work into a stream that begins once it is the next work of the stream and `can_begin()` is true.
void put_when(cudaStream_t stream, std::function<bool()> can_begin, std::function<void()> work);
/// Work of a device.
struct step {
  std::function<void()> work;
  std::function<bool()> can_begin; // null if nothing must be true before the work begins
  bool accesses = true;            // whether the work accesses device memory
};
/// Puts work into a stream that `make` makes: once or, if the stream is captured, for each launch of the graph.
void put_each(cudaStream_t stream, std::function<step()> make);
/// A capture in progress.
struct capture {
  const void* graph = nullptr; // null if the stream is not captured
  bool is_global = false;      // whether its mode forbids all threads to allocate
};
capture capture_of(cudaStream_t stream);
/// What this thread has asked of the device.
struct counts {
  std::uint64_t steps = 0;  // kernels, fills, copies and groups of NCCL put into streams, or captured
  std::uint64_t graphs = 0; // launched
  std::uint64_t waits = 0;  // waits for streams and events, questions whether an event has happened, blocking copies
  std::uint64_t allocations = 0;
};
counts of_this_thread();
/// Streams go on at random, as in any call of the runtime.
void let_streams_go_on();
/// Does all work of a stream without counting as a call.
void finish(cudaStream_t stream);
/// The lock of the doubles, under which streams advance, and which the device's work holds, too.
struct mutex : std::recursive_mutex {
  void lock() {
    std::recursive_mutex::lock();
    ++spar_doubles::unfailing_allocations::nested;
  }
  void unlock() {
    --spar_doubles::unfailing_allocations::nested;
    std::recursive_mutex::unlock();
  }
};
/// For other doubles that put work into streams.
std::unique_lock<mutex> lock();
/// Whether a device can access the memory: it is page-locked or in device memory.
bool is_accessible(const void* p, std::size_t bytes);
bool is_on_device(const void* p);
/// A copy that a device makes.
void copy(void* to, const void* from, std::size_t bytes);
/// The bytes of page-locked host memory.
std::size_t pinned_bytes();
/// The current device of this thread.
void set_device(int device);
/// The device of all device memory, as this thread sees it; the current one if `device` is negative.
void set_device_of_memory(int device);
/// The number of allocations of device memory that are not freed.
std::size_t device_allocations();
/// Whether devices can access each other's memory.
void let_peers_reach_each_other(bool on);
/// Makes every allocation call `what` first, because CUDA may wait for the device.
void on_allocation(void (*what)());
/// The same for every release of device memory or page-locked memory.
void on_release(void (*what)());

/// The values in device memory after all work in the stream.
template <class T>
std::vector<T> values_at(const T* from, std::size_t n, cudaStream_t stream) {
  std::vector<T> values(n);
  put(stream, [&] { std::copy_n(from, n, values.data()); });
  finish(stream);
  return values;
}

class stream {
 public:
  stream() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  stream(const stream&) = delete;
  ~stream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// An array in device memory.
template <class T>
class device_array {
 public:
  explicit device_array(const std::vector<T>& values) : size_(values.size()) {
    if (cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(T) + 1) != cudaSuccess) throw std::bad_alloc();
    write(nullptr, values);
    finish(nullptr);
  }
  device_array(const device_array&) = delete;
  ~device_array() { cudaFree(data_); }

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Work of the device that overwrites the array.
  void write(cudaStream_t stream, std::vector<T> values) const {
    put(stream, [to = data_, values] { std::copy(values.begin(), values.end(), to); });
  }
  /// The values after all work in the stream.
  [[nodiscard]] std::vector<T> read(cudaStream_t stream) const { return values_at(data_, size_, stream); }

 private:
  std::size_t size_;
  T* data_ = nullptr;
};

} // namespace cuda_double
