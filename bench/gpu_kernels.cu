// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Time of each kernel beside a copy in device memory, and beside Thrust and CUB: scripts/gpu runs it on a machine with
// a GPU. Each round times the copy, all kernels and all baselines once; a ratio is the median over the rounds of ratios
// in the same round. The bytes are those that the kernel moves by its source.
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/buckets.cuh>
#include <spar/cuda/kernel/coalesce.cuh>
#include <spar/cuda/kernel/coded.cuh>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/cuda/kernel/moments.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/qsgd.cuh>
#include <spar/cuda/kernel/search.cuh>
#include <spar/cuda/kernel/short_floats.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/kernel/zfp.cuh>
#include <spar/cuda/runtime.hpp>
#include <spar/cuda/values/codecs.cuh>

#ifdef __CUDACC__
#include "gpu_baselines.cuh"
#endif

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace kernel = spar::kernel;
using spar::detail::check_cuda;
using index = std::uint32_t;
using coo = kernel::device_coo<float, index>;

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

/// A kernel, or what Thrust and CUB offer in its place.
struct measured {
  std::string name;
  double bytes;                       // that the kernel moves
  double target;                      // of bytes per second, divided by those of the copy; 0 without one
  std::function<void()> prepare, run; // `prepare` is not timed
  std::string in_place_of{};          // of a baseline: the kernel
  std::vector<double> seconds{};
};

/// The seconds of a piece of work on the device.
class stopwatch {
 public:
  stopwatch() {
    for (cudaEvent_t& e : marks_) check_cuda(cudaEventCreateWithFlags(&e, cudaEventDefault), "cudaEventCreate");
  }
  stopwatch(const stopwatch&) = delete;
  ~stopwatch() {
    for (const cudaEvent_t e : marks_) cudaEventDestroy(e);
  }
  double operator()(const std::function<void()>& run) const {
    check_cuda(cudaEventRecord(marks_[0], nullptr), "cudaEventRecord");
    run();
    check_cuda(cudaEventRecord(marks_[1], nullptr), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(marks_[1]), "cudaEventSynchronize");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, marks_[0], marks_[1]), "cudaEventElapsedTime");
    return milliseconds / 1e3;
  }

 private:
  cudaEvent_t marks_[2]{};
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

/// One index of each `stride` neighbours.
std::vector<index> indices(std::uint64_t n, std::uint64_t stride, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<index> all(n / stride);
  for (std::size_t e = 0; e < all.size(); ++e) all[e] = static_cast<index>(e * stride + random() % stride);
  return all;
}

/// `count` indices below n, in any order and with repeats.
std::vector<index> unsorted_indices(std::uint64_t count, std::uint64_t n) {
  std::mt19937_64 random(9);
  std::vector<index> all(count);
  for (index& i : all) i = static_cast<index>(random() % n);
  return all;
}

/// The multiples of `stride` below n.
std::vector<std::uint64_t> every(std::uint64_t n, std::uint64_t stride) {
  std::vector<std::uint64_t> all(n / stride);
  for (std::size_t b = 0; b < all.size(); ++b) all[b] = b * stride;
  return all;
}

/// The device memory for vectors of n values, by which the benchmark chooses n.
double needed_bytes(std::uint64_t n) { return 44.0 * static_cast<double>(n); }

class benchmark {
 public:
  explicit benchmark(std::uint64_t length)
      : n(length), source(normal_values(length)), x(n), out_v(n), other_v(n), out_i(n), other_i(n), code(2 * n),
        words(std::max({kernel::take_words(n), kernel::bucket_words(n, 512), kernel::partition_words(n),
                        kernel::merge_words<float, index>(n / 8), kernel::merge_many_words<float>(8, n),
                        kernel::coded_words(n / 16)})),
        search(kernel::topk_bytes<float, index>(n, n / 100)), count(1), reached(32), cut(1) {
    for (std::uint64_t p = 0; p < 8; ++p) part_indices.emplace_back(indices(n, 16, p));
    for (const auto& part : part_indices) parts.push_back({part.data, source.data, part.size});
    parts_there.emplace_back(parts);
    add_dense();
    add_selections();
    add_merges();
    add_entries();
    add_coalesce();
    add_coded();
    add_codecs();
  }

  void run(int rounds) {
    for (int round = -2; round < rounds; ++round) { // two to warm up
      for (measured& m : all) {
        m.prepare();
        const double seconds = watch(m.run);
        if (round >= 0) m.seconds.push_back(seconds);
      }
    }
  }
  void print() const {
    std::printf("%-34s%10s%9s%27s%8s\n", "kernel", "ms", "GB/s", "of the copy (min .. max)", "target");
    for (const measured& m : all) {
      if (!m.in_place_of.empty()) continue;
      const auto [middle, least, most] = ratios(m, all.front());
      const double seconds = median(m.seconds), rate = m.bytes / all.front().bytes;
      std::printf("%-34s%10.4f%9.0f%11.2f (%.2f .. %.2f)", m.name.c_str(), seconds * 1e3, m.bytes / seconds / 1e9,
                  rate / middle, rate / most, rate / least);
      if (m.target > 0) std::printf("%8.2f", m.target);
      std::printf("\n");
    }
    std::printf("\n%-34s%10s%36s\n", "Thrust and CUB", "ms", "time / that of the kernel (min .. max)");
    for (const measured& m : all) {
      if (m.in_place_of.empty()) continue;
      const auto its = std::find_if(all.begin(), all.end(), [&](const measured& k) { return k.name == m.in_place_of; });
      const auto [middle, least, most] = ratios(m, *its);
      std::printf("%-34s%10.4f%11.2f (%.2f .. %.2f), target %.1f: %s\n", m.name.c_str(), median(m.seconds) * 1e3,
                  middle, least, most, m.target, m.in_place_of.c_str());
    }
  }
  /// Seconds from one kernel to the next whose launch depends on a count of the first, which writes it to page-locked
  /// memory, as the library's kernels do.
  double count_to_the_host_and_back(int times) {
    std::uint64_t* on_host = nullptr;
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&on_host), sizeof *on_host), "cudaMallocHost");
    const spar::detail::device_stream order;
    spar::detail::cuda_event written;
    std::vector<double> seconds;
    for (int time = 0; time < times; ++time) {
      const auto begin = std::chrono::steady_clock::now();
      kernel::start_fill(reinterpret_cast<std::int64_t*>(on_host), 1, std::int64_t{1}, order.get());
      written.record(order.get());
      while (!written.complete()) {
      }
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    cudaFreeHost(on_host);
    return median(seconds);
  }

 private:
  static std::vector<float> normal_values(std::uint64_t n) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = i < 1 << 20 ? normal(random) : values[i - (1 << 20)] * 0.9999F;
    return values;
  }
  /// The median, the least and the greatest of the ratios of seconds.
  static std::array<double, 3> ratios(const measured& a, const measured& b) {
    std::vector<double> each;
    for (std::size_t r = 0; r < a.seconds.size(); ++r) each.push_back(a.seconds[r] / b.seconds[r]);
    const auto [least, most] = std::minmax_element(each.begin(), each.end());
    return {median(each), *least, *most};
  }
  void add(std::string name, double bytes, double target, std::function<void()> prepare, std::function<void()> work) {
    all.push_back({std::move(name), bytes, target, std::move(prepare), std::move(work)});
  }
#ifdef __CUDACC__
  void add_baseline(std::string name, std::string in_place_of, double target, std::function<void()> prepare,
                    std::function<void()> work) {
    all.push_back({std::move(name), 0, target, std::move(prepare), std::move(work), std::move(in_place_of)});
  }
  baselines::scratch temporary{std::size_t{256} << 20};
#endif

  void add_dense() {
    add("copy", 8 * nd, 0, nothing, restore);
    add("fill", 4 * nd, 0, nothing, [this] { kernel::start_fill(x.data, n, 1.0F, nullptr); });
    add("add", 12 * nd, 0, restore, [this] { kernel::start_add(source.data, x.data, n, out_v.data, nullptr); });
    add("combine", 12 * nd, 0, restore,
        [this] { kernel::start_combine(source.data, x.data, n, x.data, spar::sum{}, nullptr); });
    add("finalize", 8 * nd, 0, restore, [this] { kernel::start_finalize(x.data, n, 4, spar::average{}, nullptr); });
    add("find_any", 4 * nd, 0, nothing, [this] {
      kernel::start_find_any(source.data, n, reinterpret_cast<std::uint32_t*>(reached.data),
                             spar::detail::device_codec<spar::storage::as_half>::refuses{}, nullptr);
    });
    add("count_reached, 31 probes", 4 * nd, 0, nothing, [this] {
      kernel::magnitude_probes<float> probes{{}, 31};
      for (unsigned p = 0; p < 31; ++p) probes.probe[p] = kernel::magnitude_of(0.1F * static_cast<float>(p + 1));
      kernel::start_count_reached(source.data, n, probes, reached.data, zeros.data, nullptr);
    });
    add("moments", 4 * nd, 0, nothing, [this] { kernel::start_moments(source.data, n, moments.data, nullptr); });
  }
  void add_selections() {
    const float at = 2.576F; // 1 % of a normal distribution have a larger magnitude
    const double taken = nd / 100;
    const std::uint64_t k = n / 100;
    add("take_at_least, 1 %", 4 * nd + 12 * taken, 0.85, restore, [=, this] {
      kernel::start_take_at_least<float, index>(nullptr, x.data, x.data, n, kernel::magnitude_of(at), 0, out_i.data,
                                                out_v.data, n, count.data, words.data, nullptr);
    });
    add("take_at_least, residual added", 12 * nd + 8 * taken, 0.80, restore, [=, this] {
      kernel::start_take_at_least<float, index>(source.data, x.data, x.data, n, kernel::magnitude_of(2 * at), 0,
                                                out_i.data, out_v.data, n, count.data, words.data, nullptr);
    });
    const auto search_largest = [=, this] { kernel::start_largest(x.data, n, k, cut.data, search.data, nullptr); };
    const auto take = [=, this] {
      kernel::start_take_largest<float, index>(x.data, n, cut.data, 0, out_i.data, out_v.data, count.data, words.data,
                                               nullptr);
    };
    const auto restore_and_search = [=, this] { restore(), search_largest(); };
    add("largest, 1 %", 4.3 * nd, 0, restore, search_largest);
    add("take_largest, 1 %", 4 * nd + 12 * taken, 0, restore_and_search, take);
    // Each of about 1.2 % candidates: 12 bytes as an entry, and 4 at its old place; 16 for the digits; 8 + 8 at the
    // end.
    add("exact top-k, 1 %", 4 * nd + 48 * 0.012 * nd, 0, restore, [=, this] {
      kernel::start_topk<float, index>(x.data, n, k, 0, out_i.data, out_v.data, cut.data, search.data, nullptr);
    });
    add("take_from_buckets, 5 of 512", 4 * nd + 12 * taken, 0, restore, [this] {
      kernel::start_take_from_buckets<float, index>(x.data, n, 512, 5, out_i.data, out_v.data, count.data, words.data,
                                                    nullptr);
    });
#ifdef SPAR_BENCH_TOPK
    const auto magnitudes = reinterpret_cast<std::uint32_t*>(out_v.data);
    std::size_t bytes = 0;
    baselines::top_k(x.data, n, k, out_i.data, magnitudes, nullptr, bytes);
    const auto memory = std::make_shared<device_array<std::byte>>(bytes);
    add_baseline("DeviceTopK", "exact top-k, 1 %", 1, restore, [=, this] {
      std::size_t size = memory->size;
      baselines::top_k(x.data, n, k, out_i.data, magnitudes, memory->data, size);
    });
#endif
#ifdef __CUDACC__
    add_baseline("DeviceSelect", "take_at_least, 1 %", 1, restore,
                 [=, this] { baselines::select(x.data, n, at, out_i.data, out_v.data, count.data, temporary); });
    add_baseline("transform, DeviceSelect, transform", "take_at_least, residual added", 1.3, restore, [=, this] {
      baselines::select_in_three_passes(source.data, x.data, n, 2 * at, out_i.data, out_v.data, count.data, temporary);
    });
#endif
  }
  void add_merges() {
    const double entries = nd / 16;
    add("merge of two", 8 * 4 * entries, 0.60, nothing, [this] {
      kernel::start_merge(parts[0], parts[1], out_i.data, out_v.data, spar::sum{}, count.data, words.data, nullptr);
    });
    add("merge_many of eight", 8 * 16 * entries + 104 * 8 / 8192.0 * nd, 0.50, nothing, [this] {
      kernel::start_merge_many<float, index>(parts_there.front().data, 8, 0, n, out_i.data, out_v.data, spar::sum{},
                                             count.data, reached.data, words.data, nullptr);
    });
#ifdef __CUDACC__
    add_baseline("merge_by_key, reduce_by_key", "merge of two", 1.6, nothing, [this] {
      baselines::merge(parts[0].indices, parts[0].values, parts[0].count, parts[1].indices, parts[1].values,
                       parts[1].count, other_i.data, other_v.data, out_i.data, out_v.data, temporary);
    });
#endif
  }
  void add_entries() {
    const coo part = parts[0];
    const double entries = nd / 16;
    // The larger half by magnitude, and all others.
    const kernel::by_cut<float> larger{{kernel::magnitude_of(0.674F), 0, 1, ~std::size_t{0}}};
    add("partition by a cut", 16 * entries, 0, nothing, [=, this] {
      kernel::start_partition(part, 0, larger, out_i.data, out_v.data, other_i.data, other_v.data, count.data,
                              words.data, nullptr);
    });
    const auto scatter_zeros = [=, this] {
      kernel::start_fill(x.data, n, 0.0F, nullptr);
      kernel::start_scatter_assign(part.indices, part.values, part.count, 0, x.data, nullptr);
    };
    add("copy_differing, 6 %", 4 * nd + 8 * entries, 0, scatter_zeros, [this] {
      kernel::start_copy_differing(coo{nullptr, x.data, n}, 0, 0.0F, out_i.data, out_v.data, count.data, words.data,
                                   nullptr);
    });
    // Each entry has a sector of 32 bytes of its own.
    add("scatter_assign", (8 + 32) * entries / 2, 0, restore,
        [this] { kernel::start_scatter_assign(sparser.data, source.data, sparser.size, 0, x.data, nullptr); });
    add("write_entries, 3 %", 4 * nd + 8 * entries / 2, 0, nothing,
        [this] { kernel::start_write_entries(sparser.data, source.data, sparser.size, 0, x.data, n, 0.0F, nullptr); });
    add("copy_entries", 16 * 2 * entries, 0, nothing, [this] {
      kernel::entry_pieces<float, index> pieces;
      for (std::size_t p = 0; p < 2; ++p) pieces.add(parts[p].indices, parts[p].values, parts[p].count);
      kernel::start_copy_entries(pieces, out_i.data, out_v.data, nullptr);
    });
    add("assign_unlisted", (12 + 32) * entries / 2, 0, restore, [=, this] {
      kernel::start_assign_unlisted(sparser.data, source.data, sparser.size, part.indices, part.count, x.data, nullptr);
    });
    add("scatter", (8 + 64) * entries / 2, 0, restore,
        [this] { kernel::start_scatter(sparser.data, source.data, sparser.size, 0, x.data, spar::sum{}, nullptr); });
    add("gather", (8 + 32) * entries / 2, 0, nothing,
        [this] { kernel::start_gather(source.data, sparser.data, sparser.size, out_v.data, nullptr); });
    add("scatter_difference", (12 + 64) * entries / 2, 0, restore, [this] {
      kernel::start_scatter_difference(sparser.data, source.data, out_v.data, sparser.size, x.data, nullptr);
    });
    add("check_indices", 4 * entries, 0, nothing, [=, this] {
      kernel::start_check_indices(part.indices, part.count, 0, n, reinterpret_cast<std::uint32_t*>(reached.data),
                                  nullptr);
    });
    // Bounds and positions only: most steps of the searches hit the cache.
    add("find_bounds", 16 * static_cast<double>(bounds.size), 0, nothing, [=, this] {
      kernel::start_find_bounds(part.indices, part.count, bounds.data, bounds.size, positions.data, nullptr);
    });
  }
  void add_coalesce() {
    // Each index has four entries. By 8 bits at a time, a sort of CUB reads and writes an entry, and it reads the
    // indices once more; so does the check of their range.
    const double entries = nd / 16;
    const std::uint64_t below = n / 64;
    const double passes = std::ceil(std::log2(static_cast<double>(below)) / 8);
    add("coalesce", (16 * passes + 8 + 8 + 2) * entries, 0, nothing, [=, this] {
      kernel::start_coalesce<float, index>({unsorted.data, source.data, unsorted.size}, below, out_i.data, out_v.data,
                                           spar::sum{}, found.data, for_coalesce.data, nullptr);
    });
#ifdef __CUDACC__
    add_baseline("SortPairs, ReduceByKey", "coalesce", 0.9, nothing, [=, this] {
      baselines::coalesce(unsorted.data, source.data, unsorted.size, below, other_i.data, other_v.data, out_i.data,
                          out_v.data, count.data, temporary);
    });
#endif
  }
  void add_coded() {
    const std::span<const index> indices(parts[0].indices, parts[0].count);
    const std::span<const float> values(parts[0].values, parts[0].count);
    const auto encode = [=, this] {
      kernel::start_encode_coded<0>(spar::coo_span<float, index>{indices, values}, 0, code.data, reached.data,
                                    words.data, nullptr);
    };
    encode();
    std::uint64_t sizes[2];
    check_cuda(cudaMemcpy(sizes, reached.data, sizeof sizes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    const std::span<const std::byte> encoded(code.data, sizes[0] + sizes[1]);
    const double entries = nd / 16, bytes = static_cast<double>(encoded.size());
    add("coded: encode", 12 * entries + bytes, 0, nothing, encode); // reads the values twice
    add("coded: decode", 8 * entries + bytes, 0, encode, [=, this] {
      kernel::start_decode_coded<0>(encoded, spar::index_range{0, n}, std::span(out_i.data, indices.size()), out_v.data,
                                    count.data, words.data, nullptr);
    });
  }
  void add_codecs() {
    add("QSGD, 8 bits: encode", 5 * nd, 0.80, nothing,
        [this] { kernel::start_qsgd_encode<8>(source.data, n, 1024, code.data, 1, 2, 0, nullptr); });
    add("QSGD, 8 bits: decode", 5 * nd, 0.80, nothing,
        [this] { kernel::start_qsgd_decode<8>(code.data, n, 1024, x.data, nullptr); });
    add_short<kernel::bfloat16_code>("bfloat16");
    add_short<kernel::half_code>("half");
    const auto blocks = reinterpret_cast<std::uint32_t*>(code.data);
    add("zfp, 8 bits: encode", 5 * nd, 0, nothing,
        [=, this] { kernel::start_zfp_encode(source.data, n, 32, blocks, nullptr); });
    add("zfp, 8 bits: decode", 5 * nd, 0, nothing,
        [=, this] { kernel::start_zfp_decode(blocks, n, 32, x.data, nullptr); });
  }
  template <class Code>
  void add_short(const std::string& name) {
    const auto shorts = reinterpret_cast<std::uint16_t*>(code.data);
    add(name + ": encode", 6 * nd, 0, nothing,
        [=, this] { kernel::start_encode_short<Code>(source.data, n, shorts, nullptr); });
    add(name + ": decode", 6 * nd, 0, nothing,
        [=, this] { kernel::start_decode_short<Code>(shorts, n, x.data, nullptr); });
    add(name + ": reduce", 10 * nd, 0, restore,
        [=, this] { kernel::start_reduce_short<Code>(shorts, n, x.data, spar::sum{}, nullptr); });
  }

  std::uint64_t n;
  double nd = static_cast<double>(n);
  const device_array<float> source;
  device_array<float> x, out_v, other_v;
  device_array<index> out_i, other_i;
  device_array<std::byte> code;
  device_array<std::uint64_t> words;
  device_array<std::byte> search;
  device_array<std::uint64_t> count, reached;
  const device_array<std::uint64_t> zeros{std::vector<std::uint64_t>(kernel::count_words)};
  device_array<kernel::cut<float>> cut;
  std::deque<device_array<index>> part_indices;
  std::vector<coo> parts;
  std::deque<device_array<coo>> parts_there;
  const device_array<index> sparser{indices(n, 32, 8)};
  const device_array<std::uint64_t> bounds{every(n, 256)};
  device_array<std::uint64_t> positions{n / 256};
  const device_array<index> unsorted{unsorted_indices(n / 16, n / 64)};
  device_array<kernel::moments> moments{kernel::moments_room(n)};
  device_array<kernel::coalesced_entries> found{1};
  device_array<std::byte> for_coalesce{kernel::coalesce_bytes<float, index>(n / 16, n / 64)};
  const std::function<void()> nothing = [] {};
  const std::function<void()> restore = [this] {
    check_cuda(cudaMemcpyAsync(x.data, source.data, n * sizeof(float), cudaMemcpyDeviceToDevice, nullptr),
               "cudaMemcpyAsync");
  };
  stopwatch watch;
  std::vector<measured> all;
};

} // namespace

/// gpu_kernels [log2 of n [rounds]]: vectors of n values, and streams of n / 16 entries.
int main(int argc, char** argv) try {
  int log_n = argc > 1 ? std::atoi(argv[1]) : 28;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 21;
  std::size_t free = 0, whole = 0;
  check_cuda(cudaMemGetInfo(&free, &whole), "cudaMemGetInfo");
  while (log_n > 10 && needed_bytes(std::uint64_t{1} << log_n) > 0.9 * static_cast<double>(free)) --log_n;
  benchmark all(std::uint64_t{1} << log_n);
  all.run(rounds);
  std::printf("vectors of 2^%d floats, streams of 2^%d entries, %d rounds\n\n", log_n, log_n - 4, rounds);
  all.print();
  std::array<double, 5> of_count;
  for (double& microseconds : of_count) microseconds = all.count_to_the_host_and_back(1000) * 1e6;
  std::sort(of_count.begin(), of_count.end());
  std::printf("\n%-34s%10.1f (%.1f .. %.1f) us, target 10\n", "count to the host and back", of_count[2], of_count[0],
              of_count[4]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_kernels: %s\n", error.what());
  return 2;
}
