// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Time of each kernel beside a copy in device memory: scripts/gpu runs it on a machine with a GPU. Each round times the
// copy and all kernels once; the ratio is the median over the rounds of the kernel's bytes per second divided by those
// of the copy in the same round.
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/qsgd.cuh>
#include <spar/cuda/kernel/search.cuh>
#include <spar/cuda/kernel/short_floats.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/kernel/zfp.cuh>

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

using spar::detail::check_cuda;

template <class T>
struct device_array {
  explicit device_array(std::size_t n) : size(n) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data), n * sizeof(T)), "cudaMalloc");
  }
  explicit device_array(const std::vector<T>& from) : device_array(from.size()) {
    check_cuda(cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  device_array(const device_array&) = delete;
  ~device_array() { cudaFree(data); }

  T* data = nullptr;
  std::size_t size;
};

struct measured {
  std::string name;
  double bytes; // that the kernel reads and writes, by its source
  std::function<void()> prepare, run;
  std::vector<double> seconds{};
};

double seconds_of(const std::function<void()>& run) {
  static cudaEvent_t begin = [] {
    cudaEvent_t e;
    cudaEventCreate(&e);
    return e;
  }();
  static cudaEvent_t end = [] {
    cudaEvent_t e;
    cudaEventCreate(&e);
    return e;
  }();
  cudaEventRecord(begin);
  run();
  cudaEventRecord(end);
  check_cuda(cudaEventSynchronize(end), "cudaEventSynchronize");
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  return milliseconds / 1e3;
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

/// About a fraction `density` of [0, n), ascending.
std::vector<std::uint32_t> indices(std::uint64_t n, double density, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::geometric_distribution<std::uint64_t> gap(density);
  std::vector<std::uint32_t> all;
  for (std::uint64_t i = gap(random); i < n; i += 1 + gap(random)) all.push_back(static_cast<std::uint32_t>(i));
  return all;
}

} // namespace

/// gpu_kernels [log2 of n] [rounds]
int main(int argc, char** argv) {
  const std::uint64_t n = std::uint64_t{1} << (argc > 1 ? std::atoi(argv[1]) : 26);
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 21;
  const auto nd = static_cast<double>(n);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = i < 1 << 20 ? normal(random) : values[i - (1 << 20)] * 0.9999F;
  const std::uint64_t k = n / 100;
  const auto threshold = spar::kernel::magnitude_of(2.5F);

  const device_array<float> source(values);
  device_array<float> x(n), residual(n), out_v(n);
  device_array<std::uint32_t> out_i(n);
  device_array<std::uint64_t> words(spar::kernel::take_words(n)), count(1);
  device_array<spar::kernel::cut<float>> cut(1);
  device_array<std::byte> search(spar::kernel::largest_bytes<float>(n, k)), code(2 * n);
  const auto restore = [&] { cudaMemcpyAsync(x.data, source.data, n * sizeof(float), cudaMemcpyDeviceToDevice); };
  const auto nothing = [] {};

  std::vector<measured> all;
  all.push_back({"copy", 8 * nd, nothing, restore});
  const double taken = 0.0124 * nd; // of a normal distribution above 2.5
  all.push_back({"take_at_least", 4 * nd + 12 * taken, restore, [&] {
                   spar::kernel::start_take_at_least<float, std::uint32_t>(nullptr, x.data, x.data, n, threshold, 0,
                                                                           out_i.data, out_v.data, n, count.data,
                                                                           words.data, nullptr);
                 }});
  all.push_back({"take_at_least, added", 12 * nd + 8 * taken, restore, [&] {
                   spar::kernel::start_take_at_least<float, std::uint32_t>(source.data, x.data, x.data, n, threshold, 0,
                                                                           out_i.data, out_v.data, n, count.data,
                                                                           words.data, nullptr);
                 }});
  all.push_back({"largest 1 %", 4 * nd, restore,
                 [&] { spar::kernel::start_largest(x.data, n, k, cut.data, search.data, nullptr); }});
  all.push_back({"largest and take", 8 * nd + 12 * nd / 100, restore, [&] {
                   spar::kernel::start_largest(x.data, n, k, cut.data, search.data, nullptr);
                   spar::kernel::start_take_largest<float, std::uint32_t>(x.data, n, cut.data, 0, out_i.data,
                                                                          out_v.data, count.data, words.data, nullptr);
                 }});

  std::vector<device_array<std::uint32_t>*> part_indices;
  std::vector<spar::kernel::device_coo<float, std::uint32_t>> parts;
  double entries = 0;
  for (std::uint64_t p = 0; p < 8; ++p) {
    part_indices.push_back(new device_array<std::uint32_t>(indices(n, 0.01, p)));
    parts.push_back({part_indices.back()->data, source.data, part_indices.back()->size});
    entries += static_cast<double>(part_indices.back()->size);
  }
  const device_array<spar::kernel::device_coo<float, std::uint32_t>> parts_there(parts);
  device_array<std::uint64_t> many(spar::kernel::merge_many_words<float>(8, n));
  all.push_back({"merge of two", 8 * (entries / 8) * 2 * 2, nothing, [&] {
                   spar::kernel::start_merge(parts[0], parts[1], out_i.data, out_v.data, spar::sum{}, count.data,
                                             words.data, nullptr);
                 }});
  all.push_back({"merge of eight", 8 * entries * 2, nothing, [&] {
                   spar::kernel::start_merge_many<float, std::uint32_t>(
                       parts_there.data, 8, 0, n, out_i.data, out_v.data, spar::sum{}, count.data, many.data, nullptr);
                 }});
  // As many entries as the sum of eight: the larger half by magnitude, or the indices of a part, and all others.
  const device_array<std::uint32_t> sum_i(indices(n, 0.08, 9));
  const spar::kernel::device_coo<float, std::uint32_t> sum{sum_i.data, source.data, sum_i.size};
  const auto sums = static_cast<double>(sum_i.size);
  device_array<std::uint32_t> other_i(sum_i.size);
  device_array<float> other_v(sum_i.size);
  device_array<std::uint64_t> reached(32);
  const auto half = spar::kernel::magnitude_of(0.674F); // of a normal distribution
  all.push_back({"partition by cut", 16 * sums, nothing, [&] {
                   spar::kernel::start_partition(sum, 0, spar::kernel::by_cut<float>{{half, 0, 1, ~std::size_t{0}}},
                                                 out_i.data, out_v.data, other_i.data, other_v.data, count.data,
                                                 words.data, nullptr);
                 }});
  all.push_back({"partition by list", 16 * sums + 4 * entries / 8, nothing, [&] {
                   spar::kernel::start_partition(
                       sum, 0, spar::kernel::listed<std::uint32_t>{parts[0].indices, parts[0].count}, out_i.data,
                       out_v.data, other_i.data, other_v.data, count.data, words.data, nullptr);
                 }});
  all.push_back({"check indices", 4 * sums, nothing, [&] {
                   spar::kernel::start_check_indices(sum_i.data, sum_i.size, 0, n,
                                                     reinterpret_cast<std::uint32_t*>(reached.data), nullptr);
                 }});
  spar::kernel::magnitude_probes<float> probes{{}, 31};
  for (unsigned p = 0; p < 31; ++p) probes.probe[p] = spar::kernel::magnitude_of(0.1F * static_cast<float>(p + 1));
  all.push_back({"count reached", 4 * nd, nothing,
                 [&] { spar::kernel::start_count_reached(source.data, n, probes, reached.data, nullptr); }});
  const auto shorts = reinterpret_cast<std::uint16_t*>(code.data);
  const auto blocks = reinterpret_cast<std::uint32_t*>(code.data);
  all.push_back({"qsgd 8 encode", 5 * nd, nothing,
                 [&] { spar::kernel::start_qsgd_encode<8>(source.data, n, 1024, code.data, 1, 2, 0, nullptr); }});
  all.push_back({"qsgd 8 decode", 5 * nd, nothing,
                 [&] { spar::kernel::start_qsgd_decode<8>(code.data, n, 1024, x.data, nullptr); }});
  all.push_back({"bfloat16 encode", 6 * nd, nothing, [&] {
                   spar::kernel::start_encode_short<spar::kernel::bfloat16_code>(source.data, n, shorts, nullptr);
                 }});
  all.push_back({"bfloat16 decode", 6 * nd, nothing,
                 [&] { spar::kernel::start_decode_short<spar::kernel::bfloat16_code>(shorts, n, x.data, nullptr); }});
  all.push_back(
      {"zfp 8 encode", 5 * nd, nothing, [&] { spar::kernel::start_zfp_encode(source.data, n, 32, blocks, nullptr); }});
  all.push_back(
      {"zfp 8 decode", 5 * nd, nothing, [&] { spar::kernel::start_zfp_decode(blocks, n, 32, x.data, nullptr); }});

  for (int round = -2; round < rounds; ++round) { // two to warm up
    for (measured& m : all) {
      m.prepare();
      const double seconds = seconds_of(m.run);
      if (round >= 0) m.seconds.push_back(seconds);
    }
  }
  std::printf("n = 2^%d floats, %d rounds\n%-22s%12s%12s%24s\n", static_cast<int>(std::log2(nd)), rounds, "kernel",
              "ms", "GB/s", "of the copy (min .. max)");
  for (const measured& m : all) {
    std::vector<double> ratios;
    for (std::size_t r = 0; r < m.seconds.size(); ++r)
      ratios.push_back(m.bytes / m.seconds[r] / (all[0].bytes / all[0].seconds[r]));
    const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
    const double seconds = median(m.seconds);
    std::printf("%-22s%12.3f%12.0f%10.2f (%.2f .. %.2f)\n", m.name.c_str(), seconds * 1e3, m.bytes / seconds / 1e9,
                median(ratios), *least, *most);
  }
  for (auto* p : part_indices) delete p;
}
