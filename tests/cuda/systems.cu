// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// systems [RANKS [N]]: every system of the papers on values in device memory, over one transport, against the same
// system on the host, bit for bit, on vectors of N values; partial allreduces against the sum of all calls. The ranks
// are threads; with SPAR_OVER_MPI, they are the processes of MPI, and with SPAR_OVER_UCX those that scripts/ranks has
// started, whatever RANKS is. They share a GPU if there are fewer GPUs. Compile with nvcc; with SPAR_OVER_NCCL,
// payloads travel by NCCL, and a third argument is the number of bytes up to which they travel through the host.
// Without a GPU, tests compile and link the program.
#include <spar/cuda.hpp>
#include <spar/cuda/values/zfp.cuh>
#include <spar/cuda_feedback.cuh>
#include <spar/on_device.cuh>
#include <spar/spar.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>
#ifdef SPAR_OVER_MPI
#include <spar/mpi.hpp>
#endif
#ifdef SPAR_OVER_UCX
#include <spar/ucx.hpp>
#endif
#ifdef SPAR_OVER_NCCL
#include <spar/nccl.hpp>
#include <spar/stream_ordered.cuh>
#include <spar/stream_ordered_allreduce.cuh>

#include "launched_graph.hpp"
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using spar::compose, spar::detail::check_cuda;
using values = std::vector<float>;

constexpr int steps = 3;

spar::rank_t ranks = 2;
std::size_t n = 100'003; // values of a vector
std::size_t eager_bytes = 0;
int failures = 0;
bool prints = true; // of processes, the first one

/// The gradient of a step, by `fade` smaller than that of the step before.
values gradient(spar::rank_t rank, int step, float fade = 1) {
  std::mt19937 random(static_cast<unsigned>(rank) * 1000 + static_cast<unsigned>(step));
  std::normal_distribution<float> normal;
  values x(n);
  const float scale = std::pow(fade, static_cast<float>(step));
  for (float& v : x) v = normal(random) * scale;
  return x;
}

/// A rank's values in device memory, and its stream.
class on_gpu {
 public:
  on_gpu() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(float)), "cudaMalloc");
  }
  on_gpu(const on_gpu&) = delete;
  ~on_gpu() {
    cudaFree(data_);
    cudaStreamDestroy(stream_);
  }
  void write(const values& x) { copy(data_, x.data(), cudaMemcpyHostToDevice); }
  [[nodiscard]] values read() const {
    values x(n);
    copy(x.data(), data_, cudaMemcpyDeviceToHost);
    return x;
  }
  [[nodiscard]] spar::device_span<float> span() const { return {data_, n, stream_}; }

 private:
  void copy(float* to, const float* from, cudaMemcpyKind kind) const {
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    check_cuda(cudaMemcpy(to, from, n * sizeof(float), kind), "cudaMemcpy");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // a short copy may still be on its way
  }

  cudaStream_t stream_ = nullptr;
  float* data_ = nullptr;
};

#if defined(SPAR_OVER_MPI)
using host_net = spar::mpi;
#elif defined(SPAR_OVER_UCX)
using host_net = spar::ucx;
std::optional<spar::rendezvous> meeting;
#else
using host_net = spar::threads;
#endif
thread_local host_net* this_rank = nullptr;

/// Waits for all ranks. Over NCCL, a rank that is a thread must free device memory only when no rank is in a call.
void wait_for_all_ranks() {
  values one(1);
  spar::allreduce(*this_rank, std::span(one), spar::ring{});
}

/// Runs `program(net)`, which returns what all its steps return, on each rank. Returns the results of the ranks of this
/// process.
template <class Program>
std::vector<values> on_host_net(Program program) {
  const auto run = [&](host_net& net) {
    this_rank = &net;
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    check_cuda(cudaSetDevice(net.rank() % devices), "cudaSetDevice");
    return program(net);
  };
#if defined(SPAR_OVER_MPI)
  spar::mpi net;
  return {run(net)};
#elif defined(SPAR_OVER_UCX)
  spar::ucx net(*meeting);
  return {run(net)};
#else
  std::vector<values> results(static_cast<std::size_t>(ranks));
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) { results[static_cast<std::size_t>(net.rank())] = run(net); });
  return results;
#endif
}
/// The same over the transport of this program.
template <class Program>
std::vector<values> on_transport(Program program) {
#ifdef SPAR_OVER_NCCL
  return on_host_net([&](host_net& control) {
    spar::nccl net(control, {.eager_bytes = eager_bytes});
    return program(net);
  });
#else
  return on_host_net(program);
#endif
}
template <class Net, class Step>
values steps_on_gpu(Net& net, Step step, float fade = 1) {
  on_gpu x;
  values all;
  for (int s = 0; s < steps; ++s) {
    x.write(gradient(net.rank(), s, fade));
    step(x.span());
    const values sum = x.read();
    all.insert(all.end(), sum.begin(), sum.end());
  }
  wait_for_all_ranks();
  return all;
}
template <class Net, class Step>
values steps_on_host(Net& net, Step step, float fade = 1) {
  values all;
  for (int s = 0; s < steps; ++s) {
    values x = gradient(net.rank(), s, fade);
    step(std::span(x));
    all.insert(all.end(), x.begin(), x.end());
  }
  return all;
}

void report(const char* system, const std::vector<values>& got, const std::vector<values>& expected) {
  std::size_t different = 0;
  for (std::size_t r = 0; r < got.size(); ++r)
    for (std::size_t i = 0; i < got[r].size(); ++i)
      different += std::memcmp(&got[r][i], &expected[r][i], sizeof(float)) != 0 ? 1 : 0;
  if (got.front().size() != expected.front().size() || got.front().size() < n) ++different;
  if (prints || different > 0) std::printf("%-22s %s\n", system, different == 0 ? "same bits" : "DIFFERENT BITS");
  failures += different == 0 ? 0 : 1;
}

/// An allreduce of dense values.
template <class Given>
void compare_dense(const char* system, const Given& algorithm) {
  report(system, on_transport([&](auto& net) {
           spar::on_device gpu(net);
           return steps_on_gpu(net, [&](auto x) { spar::allreduce(gpu, x, algorithm); });
         }),
         on_host_net([&](host_net& control) {
#ifdef SPAR_OVER_NCCL
           spar::nccl net(control, {.eager_bytes = SIZE_MAX}); // no payload travels by NCCL
#else
           host_net& net = control;
#endif
           const spar::on_device same_numbers_of_calls(net); // from which QSGD draws its random numbers
           return steps_on_host(net, [&](auto x) { spar::allreduce(net, x, algorithm); });
         }));
}
/// The same, staged through the host.
template <class Given>
void compare_staged(const char* system, const Given& algorithm) {
  report(system, on_transport([&](auto& net) {
           spar::staged gpu(net);
           return steps_on_gpu(net, [&](auto x) { spar::allreduce(gpu, x, algorithm); });
         }),
         on_host_net(
             [&](host_net& net) { return steps_on_host(net, [&](auto x) { spar::allreduce(net, x, algorithm); }); }));
}
/// Error feedback around a composition, with the entries on the device.
template <class Composition>
void compare_feedback(const char* system, const Composition& algorithm) {
  report(system, on_transport([&](auto& net) {
           spar::on_device gpu(net);
           auto reduce = spar::with_device_feedback<float>(algorithm);
           return steps_on_gpu(net, [&](auto x) { reduce(gpu, x); });
         }),
         on_host_net([&](host_net& net) {
           auto reduce = spar::with_error_feedback<float>(algorithm);
           return steps_on_host(net, [&](auto x) { reduce(net, x); });
         }));
}
#ifdef SPAR_OVER_NCCL
/// The same by launches of a graph, if `is_checked` after a checked call. The gradients fade, so that thresholds suit
/// them.
template <class Composition>
void compare_in_stream(const char* system, const Composition& algorithm, bool is_checked = true) {
  constexpr float fade = 0.4F;
  report(system, on_host_net([&](host_net& control) {
           spar::nccl net(control, {.eager_bytes = eager_bytes});
           spar::on_device gpu(net);
           spar::nccl_stream order(control);
           auto reduce = spar::with_stream_ordered_feedback<float>(order, n, algorithm);
           launched_graph once;
           bool checks = is_checked;
           const auto step = [&](spar::device_span<float> x) {
             if (std::exchange(checks, false))
               reduce(gpu, x);
             else
               once.launch(x.stream, [&] { reduce(x); });
             reduce.wait(x.stream);
           };
           return steps_on_gpu(control, step, fade);
         }),
         on_host_net([&](host_net& net) {
           auto reduce = spar::with_error_feedback<float>(algorithm);
           return steps_on_host(net, [&](auto x) { reduce(net, x); }, fade);
         }));
}
/// Dense values, by launches of a graph.
template <class Composition>
void compare_dense_in_stream(const char* system, const Composition& algorithm) {
  report(system, on_host_net([&](host_net& control) {
           spar::nccl_stream order(control);
           auto reduce = spar::with_stream_ordered_allreduce<float>(order, n, algorithm);
           launched_graph once;
           const auto step = [&](spar::device_span<float> x) {
             once.launch(x.stream, [&] { reduce(x); });
             reduce.wait(x.stream);
           };
           return steps_on_gpu(control, step);
         }),
         on_host_net(
             [&](host_net& net) { return steps_on_host(net, [&](auto x) { spar::allreduce(net, x, algorithm); }); }));
}
#endif
/// The same, with the entries on the host.
template <class Composition>
void compare_entries_on_host(const char* system, const Composition& algorithm) {
  report(system, on_transport([&](auto& net) {
           auto reduce = spar::with_device_feedback<float>(algorithm);
           return steps_on_gpu(net, [&](auto x) { reduce(net, x); });
         }),
         on_host_net([&](host_net& net) {
           auto reduce = spar::with_error_feedback<float>(algorithm);
           return steps_on_host(net, [&](auto x) { reduce(net, x); });
         }));
}

/// Partial allreduces through the host: in the sums of all rounds, each call of each rank is once.
void compare_solo(const char* system) {
  const auto all_rounds = on_transport([](auto& net) {
    spar::staged gpu(net);
    auto reduce = spar::partial_allreduce<float>(net, n, spar::solo{}, spar::ring{});
    on_gpu x;
    values all(n);
    const auto add = [&](auto call) {
      gpu.on_host(x.span(), call);
      const values sum = x.read();
      std::transform(all.begin(), all.end(), sum.begin(), all.begin(), std::plus<>());
    };
    for (int s = 0; s < steps; ++s) {
      x.write(values(n, static_cast<float>(1 + net.rank())));
      add([&](std::span<float> mine) { reduce(mine); });
    }
    add([&](std::span<float> rest) { reduce.drain(rest); });
    wait_for_all_ranks();
    return all;
  });
  const auto sum = static_cast<float>(steps * ranks * (ranks + 1) / 2);
  report(system, all_rounds, std::vector<values>(all_rounds.size(), values(n, sum)));
}

void compare_all() {
  const spar::selector::exact_topk largest{.k = n / 100};
  compare_feedback("SparCML, doubling", compose(largest, spar::recursive_doubling{}));
  compare_feedback("SparCML, SSAR", compose(largest, spar::ssar_split{}));
  compare_feedback("SparCML, DSAR", compose(largest, spar::dsar_split{}));
  compare_feedback("SparCML, coded", compose(largest, spar::storage::coded<>{.fast = true}, spar::ssar_split{}));
  compare_feedback("SparCML, coded, rounded",
                   compose(largest, spar::storage::coded<7>{.fast = true}, spar::recursive_doubling{}));
  const spar::ok_topk_allreduce<> ok_topk{.select = {.k = n / 100, .period = 2}};
  compare_feedback("Ok-Topk", ok_topk);
  std::vector<spar::rank_t> host_of(static_cast<std::size_t>(ranks)); // hosts of one rank and of all others
  std::fill(host_of.begin() + 1, host_of.end(), 1);
  const spar::tree_plans hosts(spar::tree_of_hosts(host_of));
  compare_feedback("Ok-Topk, on a tree", compose(ok_topk.select, spar::on_tree(hosts), spar::balanced_owners{}));
  compare_feedback("TopkA", spar::topka_allreduce{.select = largest});
  compare_feedback("gTopk", spar::gtopk_allreduce{.select = largest});
  compare_entries_on_host("Ok-Topk, on the host", ok_topk);
#ifdef SPAR_OVER_NCCL
  compare_in_stream("TopkA, in a stream", spar::topka_allreduce{.select = largest});
  compare_in_stream("SparCML, in a stream", compose(largest, spar::split_allgather{}));
  compare_in_stream("SparCML, dense, in a stream",
                    compose(spar::selector::exact_topk{.k = n / 4}, spar::split_allgather{}));
  using spar::storage::then, spar::storage::coo;
  compare_in_stream("SparCML, DSAR, bfloat16, in a stream",
                    compose(largest, then<coo, spar::storage::as_bfloat16>{}, spar::dsar_split{}));
  compare_in_stream("SparCML, DSAR, zfp, in a stream",
                    compose(largest, then<coo, spar::storage::zfp>{}, spar::dsar_split{}));
  compare_in_stream("SparCML, DSAR, QSGD, in a stream", spar::quantised_sparcml_allreduce<8>{.select = largest},
                    false); // calls on the host have random numbers of their own
  compare_in_stream("Ok-Topk, in a stream",
                    spar::ok_topk_allreduce<>{.select = {.k = n / 100, .period = steps, .epsilon = 0.9}});
  compare_dense_in_stream("two-shot, bfloat16, in a stream", compose(spar::storage::as_bfloat16{}, spar::two_shot{}));
  compare_dense_in_stream("two-shot, QSGD, in a stream", compose(spar::storage::qsgd<8>{}, spar::two_shot{}));
  compare_dense_in_stream("ring, half, in a stream", compose(spar::storage::as_half{}, spar::ring{}));
  compare_dense_in_stream("two-shot, zfp, in a stream", compose(spar::storage::zfp{}, spar::two_shot{}));
  compare_dense_in_stream("ring, QSGD, in a stream", compose(spar::storage::qsgd<8>{}, spar::ring{}));
  compare_dense_in_stream("ring, zfp, in a stream", compose(spar::storage::zfp{}, spar::ring{}));
#endif
  compare_dense("ring", spar::ring{});
  compare_dense("ring, QSGD", compose(spar::storage::qsgd<8>{}, spar::ring{}));
  compare_dense("ring, bfloat16", compose(spar::storage::as_bfloat16{}, spar::ring{}));
  compare_dense("ring, half", compose(spar::storage::as_half{}, spar::ring{}));
  compare_dense("ring, zfp", compose(spar::storage::zfp{}, spar::ring{}));
  const spar::flex_plan plan(spar::tree::flat(ranks), n);
  compare_dense("FlexReduce", spar::flexreduce(plan));
  compare_staged("ring, staged", spar::ring{});
  compare_solo("ring, solo, staged");
}

} // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0); // if a system does not end, the output says which
#if defined(SPAR_OVER_MPI)
  MPI_Init(&argc, &argv);
  ranks = spar::mpi().size();
  prints = spar::mpi().rank() == 0;
#elif defined(SPAR_OVER_UCX)
  meeting.emplace(spar::rendezvous::from_environment());
  ranks = meeting->size();
  prints = meeting->rank() == 0;
  const bool takes = spar::ucx(*meeting).port().path_on_device(1 << 20, 1) == spar::device_path::direct;
  if (prints) std::printf("UCX %s device memory\n", takes ? "takes" : "does not take");
#else
  if (argc > 1) ranks = std::atoi(argv[1]);
#endif
  if (argc > 2) n = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) eager_bytes = std::strtoull(argv[3], nullptr, 10);
  compare_all();
  if (prints || failures > 0) std::printf("%d ranks, %d systems with different bits\n", ranks, failures);
#ifdef SPAR_OVER_MPI
  MPI_Finalize();
#endif
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "systems: %s\n", error.what());
  return 2;
}
