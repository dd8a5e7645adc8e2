// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the k-th largest magnitude of a vector in device memory, exactly and without a wait of the host, or takes the k
// largest entries. The device's versions of `kernel::largest` and of both steps of an exact top-k.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/marked.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace spar::inline v0_1::kernel {

namespace detail {

inline constexpr unsigned digit_bits = 8, radix = 1U << digit_bits;

/// The state of a search for the k-th largest magnitude, digit by digit from the most significant one. Zero at the
/// start of the search.
template <class T>
struct digit_search {
  unsigned long long histogram[radix]; // of the values whose upper digits are `digits`
  unsigned long long finished;         // blocks that have added to the histogram
  std::uint64_t above;                 // values whose upper digits are above `digits`
  magnitude<T> digits, mask;           // the digits found so far, and their mask
};

/// The values that a search examines: the candidates if they contain the `wanted` largest values, otherwise all values.
template <class T>
struct searched_values {
  const T* all;
  std::uint64_t n;
  const T* candidates = nullptr;        // null if there are none
  const std::uint64_t* count = nullptr; // of the candidates; more than `room` if some had no room
  std::uint64_t room = 0;
  cut<T>* of_all = nullptr; // gets the cut, too, if the search examines all values

  __device__ bool by_candidates(std::uint64_t wanted) const {
    return candidates != nullptr && *count <= room && *count >= wanted;
  }
};

/// The memory of a search, in device memory: this header, the sample, and the candidates.
template <class T>
struct largest_memory {
  digit_search<T> in_sample, in_values;
  cut<T> guess, of_all;
  std::uint64_t count; // of the candidates
  std::uint64_t taken; // from all values
};

struct digit_grid {
  static constexpr unsigned threads = radix;
  static constexpr std::uint64_t values = 16 * threads, most = 2048; // values of a block, or more
  static constexpr unsigned at_once = 4;                             // that a thread loads before it looks at any
  static std::uint64_t blocks(std::uint64_t n) { return std::min(spar::detail::tiles_of(n, values), most); }

  struct memory {
    unsigned histogram[radix]; // of at most 2^42 values, a block counts fewer than 2^32
    std::uint64_t of_warp[threads / spar::detail::warp_size];
    bool is_last;
  };
  static_assert((std::uint64_t{1} << 42) / most <= std::uint64_t{1} << 31);
};

/// Writes the value at a pseudo-random position of each part to the sample.
template <class T>
__global__ void __launch_bounds__(digit_grid::threads)
    take_sample(const T* x, std::uint64_t parts, std::uint64_t length, T* sample) {
  const std::uint64_t part = std::uint64_t{blockIdx.x} * digit_grid::threads + threadIdx.x;
  if (part < parts) sample[part] = x[part * length + scatter_of(part, length)];
}

template <class T>
struct candidates_memory {
  marked_values<T> marked[marking_tile::warps];
  spar::detail::block_sum<marking_tile::threads> sums;
  std::uint64_t before;
};

/// Copies the values that reach the threshold of `guess` to `out`, in any order, and counts them.
template <class T>
__global__ void __launch_bounds__(marking_tile::threads)
    copy_candidates(const T* x, std::uint64_t n, unsigned rows, const cut<T>* guess, T* out, std::uint64_t room,
                    std::uint64_t* count) {
  auto& shared = spar::detail::block_memory<candidates_memory<T>>();
  auto& marked = shared.marked[spar::detail::warp_of_thread()];
  const marking_part part(n, blockIdx.x, rows);
  const magnitude<T> threshold = guess->threshold;
  const std::uint32_t found = marked.find(part, x, [&](T value) { return magnitude_of(value) >= threshold; });
  std::uint32_t total = 0;
  std::uint64_t to = shared.sums.exclusive_of_warps(found, total);
  if (threadIdx.x == 0) {
    const auto all = reinterpret_cast<unsigned long long*>(count);
    shared.before = atomicAdd(all, static_cast<unsigned long long>(total));
  }
  __syncthreads();
  to += shared.before;
  const auto read_again = [&](unsigned at) { return x[part.first + at]; };
  marked.for_each(part, found, read_again, [&](bool has, unsigned rank, unsigned, T value, bool) {
    if (has && to + rank < room) out[to + rank] = value;
  });
}

/// Finds one digit of the k-th largest magnitude: counts the values by the digit at `shift`; the last block to end
/// chooses the digit. After the last digit, writes the cut.
template <class T>
__global__ void __launch_bounds__(digit_grid::threads)
    find_digit(searched_values<T> values, std::uint64_t k, unsigned shift, digit_search<T>* search, cut<T>* result) {
  using bits = magnitude<T>;
  auto& shared = spar::detail::block_memory<digit_grid::memory>();
  const unsigned thread = threadIdx.x;
  const bool few = values.by_candidates(k);
  const T* const x = few ? values.candidates : values.all;
  const std::uint64_t n = few ? *values.count : values.n;
  const bits digits = search->digits, mask = search->mask;
  shared.histogram[thread] = 0;
  __syncthreads();
  const std::uint64_t stride = std::uint64_t{gridDim.x} * digit_grid::threads;
  // A thread counts equal digits in a row before it adds their number to the histogram: most candidates have the same
  // first digit, and additions to the same word wait for each other.
  unsigned digit = 0, of_digit = 0;
  for (std::uint64_t at = std::uint64_t{blockIdx.x} * digit_grid::threads + thread; at < n;
       at += digit_grid::at_once * stride) {
    bits m[digit_grid::at_once];
    SPAR_UNROLL
    for (unsigned i = 0; i < digit_grid::at_once; ++i)
      m[i] = at + i * stride < n ? magnitude_of(x[at + i * stride]) : 0;
    SPAR_UNROLL
    for (unsigned i = 0; i < digit_grid::at_once; ++i) {
      if (at + i * stride >= n || (m[i] & mask) != digits) continue;
      const unsigned next_digit = static_cast<unsigned>(m[i] >> shift) & (radix - 1);
      if (next_digit != digit && of_digit > 0) atomicAdd(&shared.histogram[digit], of_digit);
      of_digit = next_digit != digit ? 1 : of_digit + 1;
      digit = next_digit;
    }
  }
  if (of_digit > 0) atomicAdd(&shared.histogram[digit], of_digit);
  __syncthreads();
  if (shared.histogram[thread] > 0)
    atomicAdd(&search->histogram[thread], static_cast<unsigned long long>(shared.histogram[thread]));
  __threadfence(); // the last block must see these counts
  __syncthreads();
  if (thread == 0) shared.is_last = atomicAdd(&search->finished, 1ULL) + 1 == gridDim.x;
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence(); // the counts must not be read before the ticket

  // Of the digits in descending order, a thread has one each, and the counts of those before it. Volatile: other blocks
  // have changed the counts. The next launch begins with zeros again.
  digit = radix - 1 - thread;
  volatile unsigned long long& mine = search->histogram[digit];
  const std::uint64_t equal = mine, through = spar::detail::warp_inclusive_sum(equal);
  mine = 0;
  if (spar::detail::lane_of_thread() == spar::detail::warp_size - 1)
    shared.of_warp[spar::detail::warp_of_thread()] = through;
  std::uint64_t above = search->above + through - equal;
  __syncthreads();
  for (unsigned w = 0; w < spar::detail::warp_of_thread(); ++w) above += shared.of_warp[w];
  if (above >= k || (above + equal < k && digit > 0)) return;
  const bits found = static_cast<bits>(digits | static_cast<bits>(static_cast<bits>(digit) << shift));
  search->finished = 0;
  search->above = above;
  search->digits = found;
  search->mask = static_cast<bits>(static_cast<bits>(-1) << shift);
  if (shift > 0) return;
  *result = {found, k, k - above, equal};
  if (found == 0) *result = {1, above, above, above}; // fewer than k nonzeros
  if (!few && values.of_all != nullptr) *values.of_all = *result;
}

template <class T>
void start_search(const searched_values<T>& values, std::uint64_t k, digit_search<T>* search, cut<T>* result,
                  cudaStream_t stream) {
  for (unsigned shift = 8 * sizeof(T); shift > 0;) {
    shift -= digit_bits;
    spar::detail::launch(find_digit<T>, digit_grid::blocks(values.n), digit_grid::threads, sizeof(digit_grid::memory),
                         stream, values, k, shift, search, result);
  }
}

/// Writes the cut of a search for nothing.
template <class T>
__global__ void empty_cut(cut<T>* result) {
  if (threadIdx.x == 0) *result = {greatest_magnitude<T>, 0, 0, 0};
}

/// Starts kernels that guess, from a sample, a threshold that somewhat more than `wanted` values reach.
template <class T>
void start_guess(const T* x, const sample_plan& plan, T* sample, largest_memory<T>& work, cudaStream_t stream) {
  spar::detail::launch(take_sample<T>, spar::detail::tiles_of(plan.parts, digit_grid::threads), digit_grid::threads, 0,
                       stream, x, plan.parts, plan.length, sample);
  start_search({sample, plan.parts}, plan.rank, &work.in_sample, &work.guess, stream);
}

/// Puts the candidates back into the vector unless they are complete.
template <class T, class Index>
__global__ void __launch_bounds__(digit_grid::threads)
    put_back(searched_values<T> values, std::uint64_t wanted, const Index* positions, T* x) {
  if (values.by_candidates(wanted)) return;
  const std::uint64_t count = *values.count < values.room ? *values.count : values.room;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * digit_grid::threads;
  for (std::uint64_t e = std::uint64_t{blockIdx.x} * digit_grid::threads + threadIdx.x; e < count; e += stride)
    x[positions[e]] = values.candidates[e];
}

/// Moves the candidates that the cut describes to the outputs, and puts all others back into the vector, if the
/// candidates are complete. Each block has a tile of candidates, or none. `words` belongs to the tiles; those of the
/// tiles' ties follow.
template <class T, class Index>
__global__ void __launch_bounds__(partition_tile::threads, partition_blocks<T, Index>)
    divide_candidates(searched_values<T> values, std::uint64_t wanted, const Index* positions, const cut<T>* where,
                      T* x, std::uint64_t begin, Index* out_i, T* out_v, std::uint64_t* words) {
  using tile = partition_tile;
  if (!values.by_candidates(wanted) || blockIdx.x >= tile::count(*values.count)) return;
  auto& shared = spar::detail::block_memory<tile::memory>();
  const spar::detail::tiles all(words);
  const std::uint64_t number = all.take(shared.state);
  const device_coo<T, Index> candidates{positions, values.candidates, *values.count};
  const partition_part<T, Index> part(candidates, 0, number * tile::values);
  T value[tile::rows];
  std::uint32_t found[tile::rows];
  mark(part, by_cut_at<T>{where}, value, found, shared, number, words + gridDim.x + 1);
  const std::uint32_t total = count_marked(found, shared);
  const std::uint64_t base = all.outputs_before(number, total, shared.state); // has a barrier
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    if (!part.has(row)) break;
    const Index at = part.index(part.at(row));
    const std::uint64_t to = base + rank_of(found, row, shared);
    if ((found[row] >> spar::detail::lane_of_thread() & 1U) != 0)
      out_i[to] = static_cast<Index>(begin + at), out_v[to] = value[row];
    else
      x[at] = value[row];
  }
}

} // namespace detail

/// The bytes of device memory, aligned for any type, that `start_largest` needs for the k largest of n values.
template <ranked T>
std::size_t largest_bytes(std::uint64_t n, std::uint64_t k) {
  const detail::sample_plan sample(n, std::min(k, n));
  return sizeof(detail::largest_memory<T>) + (sample.useful ? (sample.parts + sample.room) * sizeof(T) : 0);
}

/// Starts kernels that write the cut of the `k` largest entries of `x`, or of all nonzeros if there are fewer, to
/// `*result`. All pointers point to device memory. The search begins with a sample, like that of the host, and reads
/// `x` once, unless too few or too many values reach the sample's threshold; then it reads `x` once more for each byte
/// of T.
template <ranked T>
void start_largest(const T* x, std::uint64_t n, std::uint64_t k, cut<T>* result, void* memory, cudaStream_t stream) {
  const std::uint64_t wanted = std::min(k, n);
  if (wanted == 0) return spar::detail::launch(detail::empty_cut<T>, 1, spar::detail::warp_size, 0, stream, result);
  auto& work = *static_cast<detail::largest_memory<T>*>(memory);
  spar::detail::clear(&work, sizeof work, stream);
  detail::searched_values<T> values{x, n};
  if (const detail::sample_plan plan(n, wanted); plan.useful) {
    T* const sample = reinterpret_cast<T*>(&work + 1);
    T* const candidates = sample + plan.parts;
    detail::start_guess(x, plan, sample, work, stream);
    spar::detail::launch(detail::copy_candidates<T>, detail::marking_tile::count(n), detail::marking_tile::threads,
                         sizeof(detail::candidates_memory<T>), stream, x, n, detail::marking_tile::rows_of(n),
                         &work.guess, candidates, plan.room, &work.count);
    values = {x, n, candidates, &work.count, plan.room};
  }
  detail::start_search(values, wanted, &work.in_values, result, stream);
}

/// The bytes of device memory, aligned for any type, that `start_topk` needs for the k largest of n values.
template <ranked T, index_type Index>
std::size_t topk_bytes(std::uint64_t n, std::uint64_t k) {
  const detail::sample_plan sample(n, std::min(k, n));
  return largest_bytes<T>(n, k) + take_words(n) * sizeof(std::uint64_t) +
         (sample.useful ? partition_words(sample.room) * sizeof(std::uint64_t) + sample.room * sizeof(Index) : 0);
}

/// Starts kernels that do the work of `start_largest` and `start_take_largest`. They read `x` once: the values that
/// reach the sample's threshold leave `x`, and all but the k largest of them return. If the threshold does not serve,
/// all return, and `x` is searched.
template <ranked T, index_type Index>
void start_topk(T* x, std::uint64_t n, std::uint64_t k, std::uint64_t begin, Index* out_i, T* out_v, cut<T>* result,
                void* memory, cudaStream_t stream) {
  using namespace detail;
  const std::uint64_t wanted = std::min(k, n);
  if (wanted == 0) return spar::detail::launch(empty_cut<T>, 1, spar::detail::warp_size, 0, stream, result);
  auto& work = *static_cast<largest_memory<T>*>(memory);
  spar::detail::clear(&work, sizeof work, stream);
  const auto words = reinterpret_cast<std::uint64_t*>(&work + 1);
  const sample_plan plan(n, wanted);
  if (!plan.useful) {
    start_search({x, n}, wanted, &work.in_values, result, stream);
    return start_take_largest(x, n, result, begin, out_i, out_v, &work.taken, words, stream);
  }
  // All arrays have an even number of elements, so each begins at a multiple of eight bytes.
  const std::uint64_t division_words = partition_words(plan.room);
  const auto words_of_division = words + take_words(n);
  const auto sample = reinterpret_cast<T*>(words_of_division + division_words), candidates = sample + plan.parts;
  const auto positions = reinterpret_cast<Index*>(candidates + plan.room);
  start_guess(x, plan, sample, work, stream);
  start_take<T, Index, const magnitude<T>*>(nullptr, x, x, n, &work.guess.threshold, 0, positions, candidates,
                                            plan.room, &work.count, words, stream);
  const searched_values<T> values{x, n, candidates, &work.count, plan.room, &work.of_all};
  spar::detail::launch(put_back<T, Index>, digit_grid::blocks(plan.room), digit_grid::threads, 0, stream, values,
                       wanted, positions, x);
  start_search(values, wanted, &work.in_values, result, stream);
  spar::detail::clear(words_of_division, division_words * sizeof(std::uint64_t), stream);
  spar::detail::launch(divide_candidates<T, Index>, partition_tile::count(plan.room), partition_tile::threads,
                       sizeof(partition_tile::memory), stream, values, wanted, positions, result, x, begin, out_i,
                       out_v, words_of_division);
  start_take_largest(x, n, &work.of_all, begin, out_i, out_v, &work.taken, words, stream); // nothing, by an empty cut
}

} // namespace spar::inline v0_1::kernel
