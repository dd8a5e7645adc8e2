// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime_double.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

struct CUgraph_st {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
  struct node {
    std::function<cuda_double::step()> make; // the work of one repetition
    std::vector<std::size_t> after;          // the nodes that end before this one begins
  };
  std::vector<node> nodes; // each after those on which it depends
};
struct CUgraphExec_st : CUgraph_st {};
struct CUstream_st {
  using step = cuda_double::step;
  [[nodiscard]] bool can_go_on() const {
    return !steps.empty() && (steps.front().can_begin == nullptr || steps.front().can_begin());
  }

  int device = 0;
  std::deque<step> steps;
  bool stalled = false;
  CUgraph_st* captured = nullptr; // gets the work while the stream is captured
  std::vector<std::size_t> last;  // the nodes that end before further work of the captured stream begins
};
struct CUevent_st {
  std::shared_ptr<bool> done = std::make_shared<bool>(true);
  int device = 0;
  int polls = 0;                        // since it was recorded
  const CUgraph_st* captured = nullptr; // the capture in which the event was recorded
  std::vector<std::size_t> last;        // the nodes before the event there
};

namespace {

cuda_double::mutex all;
std::mt19937_64 random_progress;
bool held = false, stopped = false;
void (*before_allocation)() = nullptr;
void (*before_release)() = nullptr;
CUstream_st default_stream; // of every device
std::vector<CUstream_st*> streams{&default_stream};
std::map<char*, std::size_t> device_memory, pinned_memory;

std::atomic<bool> peers_reach_each_other = true;
thread_local std::vector<int> peers; // devices whose memory the device of this thread can access
thread_local int own_device = 0, device_of_memory = -1;
thread_local std::uint64_t calls_made = 0, call_that_fails = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local const char* failed = "";
thread_local cuda_double::counts done_here;
thread_local int captures = 0; // of this thread that have begun and not ended

/// Whether `stream` is one of the handles of default streams, which are one stream here.
bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}
CUstream_st& of(cudaStream_t stream) { return is_default(stream) ? default_stream : *stream; }

void protect(int access) {
  for (auto next = device_memory.begin(); next != device_memory.end();) {
    char *const begin = next->first, *end = begin;
    for (; next != device_memory.end() && next->first == end; ++next) end += next->second; // neighbours at once
    if (mprotect(begin, static_cast<std::size_t>(end - begin), access) != 0) std::abort();
  }
}
/// While one exists, the device may access its memory, and so may the processor. Only under the lock.
class device_access {
 public:
  device_access() { ++nested; }
  device_access(const device_access&) = delete;
  ~device_access() {
    if (--nested == 0 && std::exchange(is_open, false)) protect(PROT_NONE);
  }
  static void open() {
    if (!std::exchange(is_open, true)) protect(PROT_READ | PROT_WRITE);
  }

 private:
  static inline int nested = 0;
  static inline bool is_open = false;
};
void do_step(CUstream_st& stream) {
  const device_access access;
  const auto next = std::move(stream.steps.front());
  stream.steps.pop_front();
  if (next.accesses) device_access::open();
  next.work();
}
/// Other streams go on while the processor does something.
void advance() {
  if (held) return;
  const device_access of_all_steps;                               // changing the protection of all memory takes long
  const bool needed = std::any_of(streams.begin(), streams.end(), // by a stream that waits for an event
                                  [](const CUstream_st* s) { return !s->steps.empty() && !s->can_go_on(); });
  for (CUstream_st* stream : streams) {
    while ((needed || !stream->stalled) && stream->can_go_on() && random_progress() % 3 == 0) do_step(*stream);
  }
}
/// Each stream whose next work can begin does it.
void go_on() {
  const device_access of_all_steps;
  for (CUstream_st* stream : streams) {
    if (stream->can_go_on()) do_step(*stream);
  }
}
/// Counts a call; returns the error with which it must fail, or cudaSuccess.
cudaError_t begin_call(const char* by = __builtin_FUNCTION()) {
  advance();
  if (++calls_made != call_that_fails) return cudaSuccess;
  failed = by;
  return last_error = cudaErrorUnknown;
}
/// The same for a call that waits for the device, or that CUDA refuses on a thread that captures a stream.
cudaError_t begin_uncaptured(std::uint64_t& count, const char* by = __builtin_FUNCTION()) {
  ++count;
  if (captures > 0) return last_error = cudaErrorStreamCaptureUnsupported;
  return begin_call(by);
}
/// Whether a capture has begun and not ended.
bool is_capturing(const CUgraph_st* graph) {
  return std::any_of(streams.begin(), streams.end(), [=](const CUstream_st* s) { return s->captured == graph; });
}
/// Which nodes end before work after the nodes `last` begins.
std::vector<bool> nodes_before(const CUgraph_st& graph, const std::vector<std::size_t>& last) {
  std::vector<bool> before(graph.nodes.size());
  for (const std::size_t n : last) before[n] = true;
  for (std::size_t n = before.size(); n-- > 0;) {
    if (!before[n]) continue;
    for (const std::size_t earlier : graph.nodes[n].after) before[earlier] = true;
  }
  return before;
}
bool is_within(const std::map<char*, std::size_t>& memory, const void* p, std::size_t bytes) {
  const char* const begin = static_cast<const char*>(p);
  auto after = memory.upper_bound(const_cast<char*>(begin));
  if (after == memory.begin()) return false;
  --after;
  return begin + bytes <= after->first + after->second;
}

} // namespace

namespace cuda_double {

void reset(std::uint64_t seed) {
  const std::lock_guard lock(all);
  random_progress.seed(seed);
  calls_made = call_that_fails = 0;
}
void fail_at(std::uint64_t call) { call_that_fails = calls_made + call; }
std::uint64_t calls() { return calls_made; }
std::string failed_call() { return failed; }
void hold(bool on) {
  const std::lock_guard lock(all);
  held = on;
}
void stop(bool on) {
  const std::lock_guard lock(all);
  held = stopped = on;
}
void stall(cudaStream_t stream) {
  const std::lock_guard lock(all);
  of(stream).stalled = true;
}
void put(cudaStream_t stream, std::function<void()> work) { put_when(stream, nullptr, std::move(work)); }
void put_when(cudaStream_t stream, std::function<bool()> can_begin, std::function<void()> work) {
  put_each(stream, [one = step{std::move(work), std::move(can_begin)}] { return one; });
}
void put_each(cudaStream_t stream, std::function<step()> make) {
  const std::lock_guard lock(all);
  ++done_here.steps;
  CUstream_st& to = of(stream);
  if (to.captured == nullptr) return to.steps.push_back(make());
  to.captured->nodes.push_back({std::move(make), std::exchange(to.last, {to.captured->nodes.size()})});
}
capture capture_of(cudaStream_t stream) {
  const std::lock_guard lock(all);
  const CUgraph_st* const captured = of(stream).captured;
  return {captured, captured != nullptr && captured->mode == cudaStreamCaptureModeGlobal};
}
counts of_this_thread() { return done_here; }
void let_streams_go_on() {
  const std::lock_guard lock(all);
  advance();
}
std::unique_lock<mutex> lock() { return std::unique_lock(all); }
bool is_accessible(const void* p, std::size_t bytes) {
  const std::lock_guard lock(all);
  return is_within(pinned_memory, p, bytes) || is_within(device_memory, p, bytes);
}
bool is_on_device(const void* p) {
  const std::lock_guard lock(all);
  return is_within(device_memory, p, 1);
}
void copy(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(all);
  const device_access access;
  device_access::open();
  std::memcpy(to, from, bytes);
}
void finish(cudaStream_t stream) {
  for (;; std::this_thread::yield()) { // work may wait for what other threads put into their streams
    const std::lock_guard lock(all);
    const device_access of_all_steps;
    for (bool goes_on = true; goes_on;) {
      if (of(stream).steps.empty()) return;
      goes_on = of(stream).can_go_on();
      if (goes_on) {
        do_step(of(stream));
        continue;
      }
      for (CUstream_st* other : streams) { // the stream waits for an event in another stream
        if (!other->can_go_on()) continue;
        do_step(*other);
        goes_on = true;
      }
    }
  }
}
void set_device(int device) { own_device = device; }
void set_device_of_memory(int device) { device_of_memory = device; }
std::size_t device_allocations() {
  const std::lock_guard lock(all);
  return device_memory.size();
}
void let_peers_reach_each_other(bool on) { peers_reach_each_other = on; }
void on_allocation(void (*what)()) {
  const std::lock_guard lock(all);
  before_allocation = what;
}
void on_release(void (*what)()) {
  const std::lock_guard lock(all);
  before_release = what;
}
std::size_t pinned_bytes() {
  const std::lock_guard lock(all);
  std::size_t sum = 0;
  for (const auto& [begin, bytes] : pinned_memory) sum += bytes;
  return sum;
}

} // namespace cuda_double

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorUnknown ? "cudaErrorUnknown" : "cudaErrorOfTheDouble";
}
const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "a planned error"; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  own_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  *device = own_device;
  return cudaSuccess;
}
/// Every device owns all device memory, unless a test has given it to one.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* where, const void* p) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  *where = {};
  where->type = is_within(device_memory, p, 1)   ? cudaMemoryTypeDevice
                : is_within(pinned_memory, p, 1) ? cudaMemoryTypeHost
                                                 : cudaMemoryTypeUnregistered;
  where->device = device_of_memory < 0 ? own_device : device_of_memory;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int own, int other) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  *can = own != other && peers_reach_each_other ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  if (std::find(peers.begin(), peers.end(), other) != peers.end())
    return last_error = cudaErrorPeerAccessAlreadyEnabled;
  peers.push_back(other);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  const std::lock_guard lock(all);
  if (before_allocation != nullptr) before_allocation();
  if (const cudaError_t error = begin_uncaptured(done_here.allocations); error != cudaSuccess) return error;
  constexpr std::size_t page = 4096;
  bytes = (bytes + page - 1) / page * page;
  if (bytes > std::size_t{1} << 32) return last_error = cudaErrorMemoryAllocation;
  *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*p == MAP_FAILED) return cudaErrorMemoryAllocation;
  std::memset(*p, 0xa5, bytes); // device memory is not initialised
  if (mprotect(*p, bytes, PROT_NONE) != 0) std::abort();
  device_memory[static_cast<char*>(*p)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  if (p == nullptr) return cudaSuccess;
  const std::lock_guard lock(all);
  if (captures > 0) return last_error = cudaErrorStreamCaptureUnsupported;
  if (before_release != nullptr) before_release();
  for (CUstream_st* stream : streams) { // as cudaFree does
    if (stream->device == own_device || stream == &default_stream) cuda_double::finish(stream);
  }
  const auto found = device_memory.find(static_cast<char*>(p));
  if (found == device_memory.end()) return cudaErrorInvalidValue;
  munmap(p, found->second);
  device_memory.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) {
  const std::lock_guard lock(all);
  if (before_allocation != nullptr) before_allocation();
  if (const cudaError_t error = begin_uncaptured(done_here.allocations); error != cudaSuccess) return error;
  *p = std::malloc(bytes);
  pinned_memory[static_cast<char*>(*p)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) {
  const std::lock_guard lock(all);
  if (p == nullptr) return cudaSuccess;
  if (before_release != nullptr) before_release();
  if (pinned_memory.erase(static_cast<char*>(p)) == 0) return cudaErrorInvalidValue;
  std::free(p);
  return cudaSuccess;
}
/// Only between device memory and page-locked memory: copies of other host memory are not asynchronous.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  const bool to_host = kind == cudaMemcpyDeviceToHost, from_host = kind == cudaMemcpyHostToDevice;
  if (!to_host && !from_host && kind != cudaMemcpyDeviceToDevice) return cudaErrorInvalidValue;
  if (!is_within(to_host ? pinned_memory : device_memory, to, bytes) ||
      !is_within(from_host ? pinned_memory : device_memory, from, bytes))
    return cudaErrorInvalidValue;
  cuda_double::put(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_uncaptured(done_here.waits); error != cudaSuccess) return error;
  cuda_double::put(nullptr, [=] { std::memcpy(to, from, bytes); });
  cuda_double::finish(nullptr);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  *stream = streams.emplace_back(new CUstream_st);
  (*stream)->device = own_device;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (is_default(stream)) return cudaErrorInvalidValue;
  const std::lock_guard lock(all);
  cuda_double::finish(stream);
  std::erase(streams, stream);
  delete stream;
  return cudaSuccess;
}
/// The default stream is that of every device.
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  *device = is_default(stream) ? own_device : stream->device;
  return cudaSuccess;
}
/// Kernels are work that tests put into streams; these calls only stand for their launches.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  {
    const std::lock_guard lock(all);
    error = begin_uncaptured(done_here.waits);
  }
  cuda_double::finish(stream);
  return error;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  *event = new CUevent_st;
  (*event)->device = own_device;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  if (event->device != (is_default(stream) ? own_device : stream->device)) return cudaErrorInvalidResourceHandle;
  event->captured = of(stream).captured;
  event->last = of(stream).last;
  if (event->captured != nullptr) return cudaSuccess;
  event->done = std::make_shared<bool>(false);
  event->polls = 0;
  of(stream).steps.push_back({[done = event->done] { *done = true; }, nullptr, false});
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  CUstream_st& waiting = of(stream);
  if (event->captured == nullptr) {
    if (waiting.captured != nullptr) return last_error = cudaErrorStreamCaptureIsolation;
    waiting.steps.push_back({[] {}, [done = event->done] { return *done; }, false});
    return cudaSuccess;
  }
  if (!is_capturing(event->captured)) return last_error = cudaErrorCapturedEvent;
  if (waiting.captured == nullptr) waiting.captured = const_cast<CUgraph_st*>(event->captured), waiting.last.clear();
  if (waiting.captured != event->captured) return last_error = cudaErrorStreamCaptureMerge;
  waiting.last.insert(waiting.last.end(), event->last.begin(), event->last.end());
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(all);
  if (event->captured != nullptr) return last_error = cudaErrorCapturedEvent;
  if (const cudaError_t error = begin_uncaptured(done_here.waits); error != cudaSuccess) return error;
  if (!*event->done && !stopped && ++event->polls > 1000) go_on(); // no device lets a program poll for ever
  if (!*event->done) last_error = cudaErrorNotReady;
  return *event->done ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(all);
  ++done_here.waits;
  while (!*event->done) go_on();
  return cudaSuccess;
}

// Graphs: the work that the calls have put into a captured stream, and into those that events have brought into the
// capture. A launch puts it into a stream in one of the orders that streams and events allow, chosen at random.

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  if (is_default(stream) || stream->captured != nullptr) return last_error = cudaErrorStreamCaptureUnsupported;
  stream->captured = new CUgraph_st{mode, {}};
  stream->last.clear();
  ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(all);
  if (is_default(stream) || stream->captured == nullptr) return last_error = cudaErrorIllegalState;
  *graph = stream->captured;
  const std::vector<bool> before = nodes_before(**graph, stream->last);
  bool joined = true; // whether the stream waits for all work of the others
  for (CUstream_st* other : streams) {
    if (other->captured != *graph) continue;
    joined = joined && std::all_of(other->last.begin(), other->last.end(), [&](std::size_t n) { return before[n]; });
    other->captured = nullptr;
  }
  --captures;
  if (joined) return begin_call();
  delete std::exchange(*graph, nullptr);
  return last_error = cudaErrorStreamCaptureUnjoined;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  *exec = new CUgraphExec_st{*graph};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const std::lock_guard lock(all);
  if (const cudaError_t error = begin_call(); error != cudaSuccess) return error;
  ++done_here.graphs;
  std::vector<std::size_t> waits(exec->nodes.size()), ready; // the number of nodes for which each still waits
  for (std::size_t n = 0; n < waits.size(); ++n)
    if ((waits[n] = exec->nodes[n].after.size()) == 0) ready.push_back(n);
  while (!ready.empty()) {
    std::swap(ready[random_progress() % ready.size()], ready.back());
    const std::size_t next = ready.back();
    ready.pop_back();
    of(stream).steps.push_back(exec->nodes[next].make());
    for (std::size_t n = next + 1; n < waits.size(); ++n) {
      const auto& after = exec->nodes[n].after;
      const auto met = static_cast<std::size_t>(std::count(after.begin(), after.end(), next));
      if (met > 0 && (waits[n] -= met) == 0) ready.push_back(n);
    }
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
}
