// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A step of Ok-Topk with error feedback, k = 1 %, on values in device memory, beside the dense ring on the same
// transport: scripts/gpu runs it with 4 ranks that share a GPU. Reports the seconds of a step; the seconds of all
// kernels of a step, each alone on the device, beside the least bytes that they must move; how often a rank calls the
// CUDA runtime; and the time of each kernel, and of the copies of each kind and size. With SPAR_OVER_NCCL, also reports
// the seconds of a step that is the launch of a graph over NCCL, and those of dense allreduces with bfloat16, blocks at
// once and in pieces. Link with the options --wrap of `scripts/gpu`, which
// lead the calls to the functions below.
#include <spar/cuda_feedback.cuh>
#include <spar/on_device.cuh>
#include <spar/spar.hpp>
#ifdef SPAR_OVER_NCCL
#include <spar/stream_ordered.cuh>
#include <spar/stream_ordered_allreduce.cuh>

#include "../tests/cuda/launched_graph.hpp"
#endif

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cxxabi.h>

extern "C" {
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __real_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t __real_cudaMemsetAsync(void*, int, size_t, cudaStream_t);
cudaError_t __real_cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t __real_cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t __real_cudaEventQuery(cudaEvent_t);
cudaError_t __real_cudaEventSynchronize(cudaEvent_t);
}

namespace {

using spar::detail::check_cuda;

/// Launches of one kernel, or copies of one kind and size.
struct work {
  std::uint64_t times = 0, bytes = 0;
  double seconds = 0;

  void operator+=(const work& other) { times += other.times, bytes += other.bytes, seconds += other.seconds; }
};
/// What a rank has asked of the device since the last reset.
struct calls {
  std::uint64_t launches = 0, copies = 0, waits = 0; // a wait: an event of which the host asks whether it has happened
  std::map<std::string, work> timed;                 // by name, if kernels are timed

  [[nodiscard]] double seconds() const {
    double sum = 0;
    for (const auto& [name, its] : timed) sum += its.seconds;
    return sum;
  }
  void operator+=(const calls& other) {
    launches += other.launches, copies += other.copies, waits += other.waits;
    for (const auto& [name, its] : other.timed) timed[name] += its;
  }
};
thread_local calls made;
thread_local std::set<cudaEvent_t> recorded; // of which the host has not asked yet
bool times_kernels = false;
std::mutex one_kernel; // on the device at a time, while kernels are timed

/// The name of a kernel without namespaces and template arguments.
std::string name_of(const void* kernel) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess) return "?";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? text.get() : mangled;
  name.resize(std::min(name.find_first_of("<("), name.size()));
  return name.substr(name.find_last_of(": ") + 1);
}
std::string name_of(const char* what, std::size_t bytes) {
  const char* const size = bytes <= 4096 ? "up to 4 KiB" : bytes <= 1 << 20 ? "up to 1 MiB" : "larger";
  return std::string(what) + ", " + size;
}
const char* name_of(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice   ? "copy to the device"
         : kind == cudaMemcpyDeviceToHost ? "copy to the host"
                                          : "copy on the device";
}

/// Ends once `*go_on` is not 0, or after some milliseconds.
__global__ void hold(const volatile unsigned* go_on) {
  const long long begin = clock64();
  while (*go_on == 0 && clock64() - begin < 20'000'000) {
  }
}

/// Puts work into a stream; if kernels are timed, waits until it has ended, and adds its seconds to those of `name()`.
/// The stream is held until all is in it: the time of short work would otherwise be that of its launch by the host.
template <class Name, class Put>
cudaError_t timed(Name name, std::size_t bytes, cudaStream_t stream, Put put) {
  if (!times_kernels) return put();
  thread_local std::array<cudaEvent_t, 2> marks = [] {
    std::array<cudaEvent_t, 2> both{};
    for (cudaEvent_t& e : both) check_cuda(cudaEventCreateWithFlags(&e, cudaEventDefault), "cudaEventCreate");
    return both;
  }();
  thread_local volatile unsigned* const go_on = [] {
    void* word = nullptr;
    check_cuda(cudaMallocHost(&word, sizeof(unsigned)), "cudaMallocHost");
    return static_cast<unsigned*>(word);
  }();
  const std::lock_guard alone(one_kernel);
  *go_on = 0;
  hold<<<1, 1, 0, stream>>>(go_on);
  __real_cudaEventRecord(marks[0], stream);
  const cudaError_t error = put();
  __real_cudaEventRecord(marks[1], stream);
  *go_on = 1;
  __real_cudaEventSynchronize(marks[1]);
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, marks[0], marks[1]);
  made.timed[name()] += {1, bytes, milliseconds / 1e3};
  return error;
}

} // namespace

extern "C" {
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  ++made.launches;
  return timed([&] { return name_of(kernel); }, 0, config->stream,
               [&] { return __real_cudaLaunchKernelExC(config, kernel, arguments); });
}
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  ++made.copies;
  return timed([&] { return name_of(name_of(kind), bytes); }, bytes, stream,
               [&] { return __real_cudaMemcpyAsync(to, from, bytes, kind, stream); });
}
cudaError_t __wrap_cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  ++made.copies;
  return timed([&] { return name_of("fill", bytes); }, bytes, stream,
               [&] { return __real_cudaMemsetAsync(to, value, bytes, stream); });
}
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  ++made.launches;
  return __real_cudaGraphLaunch(graph, stream);
}
cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  recorded.insert(event);
  return __real_cudaEventRecord(event, stream);
}
cudaError_t __wrap_cudaEventQuery(cudaEvent_t event) {
  made.waits += recorded.erase(event);
  return __real_cudaEventQuery(event);
}
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event) {
  made.waits += recorded.erase(event);
  return __real_cudaEventSynchronize(event);
}
}

namespace {

/// So many steps that the residuals, which grow at first, let the threshold of Ok-Topk stay about the same.
constexpr int warm_up = 100;

/// A rank's device memory and stream.
class rank_values {
 public:
  rank_values(spar::rank_t rank, std::size_t n) : n_(n) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (float** p : {&source_, &x_}) check_cuda(cudaMalloc(reinterpret_cast<void**>(p), bytes()), "cudaMalloc");
    std::mt19937 random(static_cast<unsigned>(rank));
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& v : values) v = normal(random);
    check_cuda(cudaMemcpy(source_, values.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  rank_values(const rank_values&) = delete;
  ~rank_values() {
    cudaFree(source_), cudaFree(x_);
    cudaStreamDestroy(stream_);
  }
  /// Writes the gradient of a step: the same values for all steps, but at other indices.
  void write(int step) const {
    std::unique_lock alone(one_kernel, std::defer_lock);
    if (times_kernels) alone.lock(); // other ranks may still be in the step before
    const std::size_t first = static_cast<std::size_t>(step + warm_up) * 1024 % n_;
    const auto copy = [&](float* to, const float* from, std::size_t count) {
      check_cuda(__real_cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDeviceToDevice, stream_),
                 "cudaMemcpyAsync");
    };
    copy(x_, source_ + first, n_ - first);
    copy(x_ + (n_ - first), source_, first);
    wait();
  }
  void wait() const { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  [[nodiscard]] spar::device_span<float> span() const { return {x_, n_, stream_}; }

 private:
  [[nodiscard]] std::size_t bytes() const { return n_ * sizeof(float); }

  std::size_t n_;
  cudaStream_t stream_ = nullptr;
  float *source_ = nullptr, *x_ = nullptr;
};

/// The least time of a copy of n values on the device.
double copy_seconds(std::size_t n, int times) {
  const rank_values x(0, n);
  double least = 1e9;
  for (int time = 0; time < times; ++time) {
    const double before = made.seconds();
    check_cuda(cudaMemcpyAsync(x.span().data, x.span().data + n / 2, n / 2 * sizeof(float), cudaMemcpyDeviceToDevice,
                               x.span().stream),
               "cudaMemcpyAsync");
    least = std::min(least, 2 * (made.seconds() - before));
  }
  return least;
}

struct step {
  double seconds = 0; // of a step of all ranks
  calls of_ranks;     // of all ranks and steps
};

/// The steps of a system, of which `make(net, gpu)` makes the call of a rank.
template <class Make>
step steps_of(spar::rank_t ranks, std::size_t n, int steps, Make make) {
  step all;
  std::mutex adding;
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    const rank_values x(net.rank(), n);
    spar::on_device gpu(net);
    auto call = make(net, gpu);
    std::vector<double> seconds;
    const auto wait_for_all = [&] {
      float one = 1;
      spar::allreduce(net, std::span(&one, 1), spar::recursive_doubling{});
    };
    for (int s = -warm_up; s < steps; ++s) {
      if (s == 0) made = {};
      x.write(s);
      wait_for_all();
      const auto begin = std::chrono::steady_clock::now();
      call(x.span());
      x.wait();
      if (s >= 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    wait_for_all(); // a rank that frees memory delays the kernels of others
    std::sort(seconds.begin(), seconds.end());
    const std::lock_guard lock(adding);
    all.seconds = std::max(all.seconds, seconds[seconds.size() / 2]);
    all.of_ranks += made;
  });
  return all;
}

/// Prints the work of a step, the longest first.
void print_work(const char* name, const calls& of_ranks, spar::rank_t ranks, int steps) {
  std::vector<std::pair<std::string, work>> all(of_ranks.timed.begin(), of_ranks.timed.end());
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::printf("\n%-34s%14s%18s%18s\n", name, "ms of all ranks", "times, of a rank", "KiB, of a rank");
  const double of_rank = 1.0 / (static_cast<double>(ranks) * steps);
  for (const auto& [what, its] : all) {
    std::printf("%-34s%14.3f%18.1f", what.c_str(), its.seconds / steps * 1e3, static_cast<double>(its.times) * of_rank);
    if (its.bytes > 0) std::printf("%18.1f", static_cast<double>(its.bytes) * of_rank / 1024);
    std::printf("\n");
  }
}

struct measured {
  step free, alone;
};
/// Measures the steps twice: as they are, and with each kernel alone on the device.
template <class Make>
measured measure(const char* name, spar::rank_t ranks, std::size_t n, int steps, double floor, Make make) {
  times_kernels = false;
  const step free = steps_of(ranks, n, steps, make);
  times_kernels = true;
  const step alone = steps_of(ranks, n, steps, make);
  const double each = 1.0 / (static_cast<double>(ranks) * steps), kernels = alone.of_ranks.seconds() / steps;
  std::printf("%-10s%12.3f%16.3f%14.2f%12.1f%12.1f%12.1f\n", name, free.seconds * 1e3, kernels * 1e3, kernels / floor,
              static_cast<double>(free.of_ranks.launches) * each, static_cast<double>(free.of_ranks.copies) * each,
              static_cast<double>(free.of_ranks.waits) * each);
  return {free, alone};
}

#ifdef SPAR_OVER_NCCL

/// The calls of Ok-Topk of a rank: every 32nd is a checked one, all others are the launch of a graph.
class sparse_calls {
 public:
  sparse_calls(spar::threads& net, spar::on_device<spar::threads>& gpu, std::size_t n)
      : gpu_(&gpu), order_(net),
        reduce_(order_, n, spar::ok_topk_allreduce<>{.select = {.density = 0.01, .epsilon = 0.5}}) {}

  void operator()(spar::device_span<float> x) {
    if (number_++ % 32 == 0)
      reduce_(*gpu_, x);
    else
      once_.launch(x.stream, [&] { reduce_(x); });
  }

 private:
  spar::on_device<spar::threads>* gpu_;
  spar::nccl_stream<spar::threads> order_;
  spar::stream_ordered_feedback<spar::threads, spar::ok_topk_allreduce<>> reduce_;
  launched_graph once_;
  int number_ = 0;
};
/// The calls of a dense allreduce with bfloat16.
template <class Schedule>
class dense_calls {
 public:
  dense_calls(spar::threads& net, std::size_t n, std::uint64_t piece)
      : order_(net), reduce_(order_, n, spar::compose(spar::storage::as_bfloat16{}, Schedule{.piece = piece})) {}

  void operator()(spar::device_span<float> x) {
    once_.launch(x.stream, [&] { reduce_(x); });
  }

 private:
  using composition = decltype(spar::compose(spar::storage::as_bfloat16{}, Schedule{}));
  spar::nccl_stream<spar::threads> order_;
  spar::stream_ordered_allreduce<spar::threads, composition> reduce_;
  launched_graph once_;
};

/// Only as the steps are: transfers wait for peers, so that no kernel may be alone on the device. `make(net, gpu)`
/// returns a pointer to the calls of a rank.
template <class Make>
void measure_graph(const char* name, spar::rank_t ranks, std::size_t n, int steps, Make make) {
  times_kernels = false;
  const step in_stream = steps_of(ranks, n, steps, [&](spar::threads& net, auto& gpu) {
    return [calls = make(net, gpu)](spar::device_span<float> x) { (*calls)(x); };
  });
  const double each = 1.0 / (static_cast<double>(ranks) * steps);
  std::printf("%-10s%12.3f%16s%14s%12.1f%12.1f%12.1f\n", name, in_stream.seconds * 1e3, "-", "-",
              static_cast<double>(in_stream.of_ranks.launches) * each,
              static_cast<double>(in_stream.of_ranks.copies) * each,
              static_cast<double>(in_stream.of_ranks.waits) * each);
}
/// Blocks at once, and in four pieces that a second stream codes.
template <class Schedule>
void measure_pieces(const char* at_once, const char* in_pieces, spar::rank_t ranks, std::size_t n, int steps) {
  for (const std::uint64_t pieces : {1, 4}) {
    const std::uint64_t piece = n / (pieces * static_cast<std::uint64_t>(ranks)) + 1;
    measure_graph(pieces == 1 ? at_once : in_pieces, ranks, n, steps,
                  [&](auto& net, auto&) { return std::make_shared<dense_calls<Schedule>>(net, n, piece); });
  }
}

#endif

} // namespace

/// gpu_step [RANKS [log2 of n [STEPS]]]
int main(int argc, char** argv) try {
  const spar::rank_t ranks = argc > 1 ? std::atoi(argv[1]) : 4;
  const std::size_t n = std::size_t{1} << (argc > 2 ? std::atoi(argv[2]) : 26);
  const int steps = argc > 3 ? std::atoi(argv[3]) : 16;
  times_kernels = true;
  const double copy = copy_seconds(n, 10);
  // The bytes that a rank's kernels move by their source, without the entries: for Ok-Topk with a reused threshold, 12
  // per value where the selection adds the residual, and 4 where the sum is written; for the ring, 12 per value that it
  // reduces and 8 per value that it copies.
  const double all = static_cast<double>(ranks), share = (all - 1) / all;
  const auto floor_of = [&](double bytes_per_value) { return all * bytes_per_value / 8 * copy; };
  std::printf("%d ranks, n = %zu floats, k = 1 %%, %d steps; a copy of n values takes %.3f ms\n", ranks, n, steps,
              copy * 1e3);
  std::printf("%-10s%12s%16s%14s%12s%12s%12s\n", "", "ms a step", "ms of kernels", "/ byte floor", "launches", "copies",
              "host waits");
  const measured dense = measure("ring", ranks, n, steps, floor_of(20 * share), [](auto&, auto& gpu) {
    return [&gpu](spar::device_span<float> x) { spar::allreduce(gpu, x, spar::ring{}); };
  });
  const measured sparse = measure("Ok-Topk", ranks, n, steps, floor_of(16), [&](auto&, auto& gpu) {
    using feedback = spar::device_feedback<float, spar::ok_topk_allreduce<>>;
    const auto reduce = std::make_shared<feedback>(spar::ok_topk_allreduce<>{.select = {.density = 0.01}});
    return [&gpu, reduce](spar::device_span<float> x) { (*reduce)(gpu, x); };
  });
#ifdef SPAR_OVER_NCCL
  measure_graph("in a graph", ranks, n, steps,
                [&](auto& net, auto& gpu) { return std::make_shared<sparse_calls>(net, gpu, n); });
  measure_pieces<spar::two_shot>("two-shot", "in pieces", ranks, n, steps);
  measure_pieces<spar::ring>("ring bf16", "in pieces", ranks, n, steps);
#endif
  std::printf("Ok-Topk / ring: %.2f of the time; kernels / byte floor of Ok-Topk: target 1.5\n",
              sparse.free.seconds / dense.free.seconds);
  print_work("ring", dense.alone.of_ranks, ranks, steps);
  print_work("Ok-Topk", sparse.alone.of_ranks, ranks, steps);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_step: %s\n", error.what());
  return 2;
}
