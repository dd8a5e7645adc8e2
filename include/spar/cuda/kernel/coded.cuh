// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes entries in device memory in the code of `storage::coded` with equal widths, and decodes them. The device's
// version of the kernels in storage/kernel/coded_indices.hpp and coded_values.hpp.
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/index_range.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/fours.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/coded_indices.hpp>
#include <spar/storage/kernel/coded_values.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace spar::inline v0_1::kernel {

namespace detail {

/// A tile has the numbers of a block of the code, one for each thread.
struct coded_tile {
  static constexpr unsigned threads = rice_block, warps = threads / spar::detail::warp_size;
  static constexpr unsigned at_once = 5; // blocks of a multiprocessor; without this number, ptxas spills registers

  template <class U>
  struct memory {
    U number[threads];
    std::uint64_t of_warp[warps];
    spar::detail::tiles::block_state state;
  };

  SPAR_HOST_DEVICE static constexpr std::uint64_t count(std::uint64_t n) { return spar::detail::tiles_of(n, threads); }
};

/// The largest number of the block.
template <class U>
__device__ U block_maximum(U mine, coded_tile::memory<U>& shared) {
  const U of_warp = spar::detail::warp_maximum(mine);
  if (spar::detail::lane_of_thread() == 0) shared.of_warp[spar::detail::warp_of_thread()] = of_warp;
  __syncthreads();
  U most = 0;
  for (unsigned w = 0; w < coded_tile::warps; ++w)
    most = shared.of_warp[w] > most ? static_cast<U>(shared.of_warp[w]) : most;
  return most;
}

__device__ inline std::uint64_t sum_up_to(std::uint64_t a, std::uint64_t b, std::uint64_t most) {
  return a + b < most ? a + b : most;
}

/// The sum of `mine` over the threads up to and including this one, or `most` if that is less; sets `total` to that of
/// all threads. `mine` is at most `most`, which is below 2^63.
template <class U>
__device__ std::uint64_t block_sum_up_to(std::uint64_t mine, std::uint64_t most, std::uint64_t& total,
                                         coded_tile::memory<U>& shared) {
  const unsigned lane = spar::detail::lane_of_thread();
  for (unsigned distance = 1; distance < spar::detail::warp_size; distance *= 2) {
    const std::uint64_t below = __shfl_up_sync(spar::detail::whole_warp, mine, distance);
    if (lane >= distance) mine = sum_up_to(mine, below, most);
  }
  if (lane == spar::detail::warp_size - 1) shared.of_warp[spar::detail::warp_of_thread()] = mine;
  __syncthreads();
  std::uint64_t before = 0;
  total = 0;
  for (unsigned w = 0; w < coded_tile::warps; ++w) {
    if (w < spar::detail::warp_of_thread()) before = sum_up_to(before, shared.of_warp[w], most);
    total = sum_up_to(total, shared.of_warp[w], most);
  }
  return sum_up_to(before, mine, most);
}

/// Where the bits of packed numbers of type U are, in words of 32 bits: those of a whole block in the lanes of 16-byte
/// vectors, those of a shorter block one number after another.
template <class U>
struct packed_words {
  unsigned lanes, words_of_lane; // adjacent words of a lane

  __device__ explicit packed_words(unsigned count)
      : lanes(count == rice_block ? detail::lanes<U> : 1), words_of_lane(count == rice_block ? digits<U> / 32 : 1) {}

  __device__ static unsigned count(unsigned numbers, unsigned bits) { return (numbers * bits + 31) / 32; }

  /// The word `number` of the first `count` numbers, packed with `bits` bits each.
  __device__ std::uint32_t pack(const U* x, unsigned count, unsigned bits, unsigned number) const {
    const unsigned group = number / words_of_lane, lane = group % lanes;
    const unsigned at = (group / lanes * words_of_lane + number % words_of_lane) * 32; // in the bits of the lane
    std::uint32_t word = 0;
    unsigned begin = at / bits * bits; // of a number in the bits of the lane
    for (unsigned e = at / bits * lanes + lane; begin < at + 32 && e < count; e += lanes, begin += bits)
      word |= static_cast<std::uint32_t>(begin >= at ? x[e] << (begin - at) : x[e] >> (at - begin));
    return word;
  }
  /// The number `e` of numbers that are packed with `bits` bits each, at least one.
  __device__ U unpack(const std::uint32_t* words, unsigned bits, unsigned e) const {
    const unsigned lane = e % lanes, at = e / lanes * bits;
    U x = 0;
    unsigned shift = at % 32;
    for (unsigned number = at / 32, known = 0; known < bits; ++number) {
      const std::uint32_t word =
          words[(number / words_of_lane * lanes + lane) * words_of_lane + number % words_of_lane];
      x |= static_cast<U>(word >> shift) << known;
      known += 32 - shift;
      shift = 0;
    }
    return x & low_bits<U>(bits);
  }
};

/// The gaps of indices, as numbers to encode.
template <class Index>
struct coded_gaps {
  using number = Index;
  const Index* indices;
  std::uint64_t first; // the lowest index that is possible

  __device__ const coded_gaps& load() const { return *this; }
  __device__ Index operator()(std::uint64_t e) const {
    return e == 0 ? Index{} : static_cast<Index>(indices[e] - indices[e - 1] - 1);
  }
  __device__ unsigned header_bytes() const {
    return 1 + (64 - static_cast<unsigned>(__clzll(static_cast<long long>(indices[0] - first))) + 7) / 8;
  }
  __device__ void write_header(std::byte* out) const {
    const unsigned bytes = header_bytes() - 1;
    out[0] = static_cast<std::byte>(static_cast<unsigned>(index_code::equal_widths) | bytes << 2);
    for (unsigned b = 0; b < bytes; ++b) out[1 + b] = static_cast<std::byte>((indices[0] - first) >> (8 * b) & 0xff);
  }
};

/// The smallest and the largest magnitude of values, and a sum that says which of them is closer to the mean, in device
/// memory that is zero before (see `origin`).
template <class T>
struct found_origin {
  using U = number_of<T>;
  using S = std::make_signed_t<U>;
  static constexpr std::uint64_t words = 3;
  static constexpr U half = U{1} << (digits<U> - 1); // turns signed numbers into unsigned ones in the same order

  unsigned long long least; // as the largest complement
  unsigned long long most;
  unsigned long long sum;

  __device__ origin<T> of(std::uint64_t values) const {
    return origin<T>(values, static_cast<S>(static_cast<U>(~least) ^ half), static_cast<S>(static_cast<U>(most) ^ half),
                     static_cast<std::int64_t>(sum));
  }
};

/// The magnitude of a value, of which `Dropped` bits are rounded away (see `magnitudes_of`), and its sign.
template <class T, unsigned Dropped>
__device__ number_of<T> magnitude_in_code(number_of<T> bits) {
  using U = number_of<T>;
  if constexpr (!is_floating<T>) {
    return std::is_signed_v<T> ? static_cast<U>(bits ^ (U{} - (bits >> top_bit<T>))) : bits;
  } else if constexpr (Dropped == 0) {
    return bits & low_bits<U>(top_bit<T>);
  } else {
    constexpr U infinite = low_bits<U>(top_bit<T>) >> mantissa_digits<T> << mantissa_digits<T>;
    constexpr U largest = (infinite >> Dropped) - 1;
    const U v = bits & low_bits<U>(top_bit<T>), cut = v >> Dropped;
    if (v >= infinite) return v > infinite && cut == infinite >> Dropped ? cut | 1 : cut; // NaN stays NaN
    const U up = (v + low_bits<U>(Dropped - 1) + (cut & 1)) >> Dropped;
    return up < largest ? up : largest;
  }
}
template <class T>
__device__ number_of<T> bits_in_code(T value) {
  return __builtin_bit_cast(number_of<T>, value);
}

/// The distances of values from their origin, as numbers to encode.
template <class T, unsigned Dropped>
struct coded_distances {
  using number = number_of<T>;
  const T* values;
  std::uint64_t count;
  const found_origin<T>* found;

  struct loaded {
    const T* values;
    number turn, base, turned_base;

    __device__ number operator()(std::uint64_t e) const {
      const number bits = bits_in_code(values[e]);
      number x = magnitude_in_code<T, Dropped>(bits);
      if constexpr (has_sign<T>) x = x << 1 | bits >> top_bit<T>;
      return (x ^ turn) - turned_base;
    }
    __device__ static unsigned header_bytes() { return 1 + sizeof(T); }
    __device__ void write_header(std::byte* out) const {
      out[0] = static_cast<std::byte>(equal_widths_bit | (turn != 0 ? from_most_bit : 0U));
      spar::detail::store_word(out + 1, base);
    }
  };
  __device__ loaded load() const {
    const origin<T> from = found->of(count);
    constexpr unsigned sign_bits = has_sign<T> ? 1 : 0;
    const number base = magnitude_in_code<T, Dropped>(from.base);
    const number turn = (from.counts_from_most ? ~number{} : number{}) << sign_bits;
    return {values, turn, base, static_cast<number>(base << sign_bits ^ turn)};
  }
};

/// The blocks of numbers that `find_origin` reads in each block of threads.
inline constexpr unsigned origin_rows = 16;

template <class T, class Found>
__global__ void __launch_bounds__(coded_tile::threads) find_origin(const T* values, std::uint64_t n, Found* found) {
  using U = number_of<T>;
  using S = std::make_signed_t<U>;
  const unsigned thread = threadIdx.x;
  unsigned long long least = 0, most = 0;
  std::int64_t sum = 0;
  for (unsigned row = 0; row < origin_rows; ++row) {
    const std::uint64_t first = (std::uint64_t{blockIdx.x} * origin_rows + row) * coded_tile::threads;
    if (first >= n) break;
    const std::uint64_t at = first + thread < n ? first + thread : first; // a short block repeats its first value
    const U v = magnitude_in_code<T, 0>(bits_in_code(values[at]));
    const U key = v ^ Found::half;
    if (key > most) most = key;
    if (static_cast<U>(~key) > least) least = static_cast<U>(~key);
    if (is_in_sum<U>(thread)) sum += static_cast<S>(v) >> left_out_of_sums<U>;
  }
  least = spar::detail::warp_maximum(least);
  most = spar::detail::warp_maximum(most);
  sum = spar::detail::warp_sum(sum);
  if (spar::detail::lane_of_thread() != 0) return;
  atomicMax(&found->least, least);
  atomicMax(&found->most, most);
  atomicAdd(&found->sum, static_cast<unsigned long long>(sum));
}

/// Each block encodes a block of `count` numbers. The code begins at `out` + *begin, or at `out` if `begin` is null.
/// Sets `*size` to the bytes of the code and, unless `end` is null, `*end` to where it ends.
template <class Numbers>
__global__ void __launch_bounds__(coded_tile::threads, coded_tile::at_once)
    encode_coded(Numbers from, std::uint64_t count, std::byte* out, const std::uint64_t* begin, std::uint64_t* end,
                 std::uint64_t* size, std::uint64_t* words) {
  using U = typename Numbers::number;
  auto& shared = spar::detail::block_memory<coded_tile::memory<U>>();
  const spar::detail::tiles all(words);
  const std::uint64_t tile = all.take(shared.state), blocks = coded_tile::count(count);
  const std::uint64_t first = tile * coded_tile::threads;
  const unsigned thread = threadIdx.x;
  const auto own = static_cast<unsigned>(count - first < coded_tile::threads ? count - first : coded_tile::threads);
  if (begin != nullptr) out += *begin;

  const auto numbers = from.load();
  const U x = thread < own ? numbers(first + thread) : U{};
  shared.number[thread] = x;
  const auto bits = 64 - static_cast<unsigned>(__clzll(static_cast<long long>(block_maximum(x, shared)))); // a barrier
  const unsigned packed = packed_words<U>::count(own, bits);
  const std::uint64_t widths = numbers.header_bytes();
  const std::uint64_t at =
      packed_position(widths + blocks) + all.outputs_before(tile, packed * sizeof(std::uint32_t), shared.state);
  auto* const to = reinterpret_cast<std::uint32_t*>(out + at);
  const packed_words<U> layout(own);
  for (unsigned w = thread; w < packed; w += coded_tile::threads) to[w] = layout.pack(shared.number, own, bits, w);
  if (thread != 0) return;
  out[widths + tile] = static_cast<std::byte>(bits);
  if (tile == 0) {
    numbers.write_header(out);
    for (std::uint64_t b = widths + blocks; b < packed_position(widths + blocks); ++b) out[b] = std::byte{0};
  }
  if (tile + 1 == blocks) {
    *size = at + packed * sizeof(std::uint32_t);
    if (end != nullptr) *end = at + packed * sizeof(std::uint32_t);
  }
}

/// Where decoded gaps go: to indices of a range.
template <class Index>
struct decoded_gaps {
  using number = Index;
  Index* indices;
  std::uint64_t begin, range; // the lowest index that is possible, and the number of indices
  std::uint64_t* words;       // of the tiles' sums of gaps

  struct loaded {
    Index* indices;
    std::uint64_t begin, range;
    std::uint64_t* words;
    std::uint64_t distance; // of the lowest index
    unsigned header;        // bytes, or 0 if the code is another or malformed

    /// Writes the index with the gap `x`, if the thread has one. Returns whether the index is in the range.
    __device__ bool write(std::uint64_t tile, bool has, std::uint64_t e, Index x,
                          coded_tile::memory<Index>& shared) const {
      const std::uint64_t most = range + 1;
      const std::uint64_t step = !has ? 0 : x < range ? x + std::uint64_t{1} : most;
      std::uint64_t total = 0;
      const std::uint64_t through = block_sum_up_to(step, most, total, shared);
      const std::uint64_t before = spar::detail::tiles(words).outputs_before(tile, total, shared.state);
      const std::uint64_t place = distance + before + through - 1;
      if (!has) return true;
      if (place < range) indices[e] = static_cast<Index>(begin + place);
      return place < range;
    }
  };
  __device__ loaded load(const std::byte* in, std::uint64_t left) const {
    const unsigned head = left > 0 ? static_cast<unsigned>(in[0]) : 0, bytes = head >> 2;
    if ((head & 3) != static_cast<unsigned>(index_code::equal_widths) || bytes > sizeof(Index) || 1 + bytes > left)
      return {indices, begin, range, words, 0, 0};
    std::uint64_t distance = 0;
    for (unsigned b = 0; b < bytes; ++b) distance |= std::uint64_t{static_cast<std::uint8_t>(in[1 + b])} << (8 * b);
    return {indices, begin, range, words, distance, distance < range ? 1 + bytes : 0};
  }
};

/// Where decoded distances go: to values.
template <class T, unsigned Dropped>
struct decoded_distances {
  using number = number_of<T>;
  T* values;

  struct loaded {
    T* values;
    number turn, turned_base;
    unsigned header; // bytes, or 0 if the code is another or malformed

    __device__ bool write(std::uint64_t, bool has, std::uint64_t e, number x, coded_tile::memory<number>&) const {
      const number distance = has_sign<T> ? x >> 1 : x;
      if (has) values[e] = join<T, Dropped>((distance + turned_base) ^ turn, x & 1);
      return true;
    }
  };
  __device__ loaded load(const std::byte* in, std::uint64_t left) const {
    constexpr unsigned header = 1 + sizeof(T);
    const unsigned head = left >= header ? static_cast<unsigned>(in[0]) : 0;
    if ((head | from_most_bit) != (from_most_bit | equal_widths_bit)) return {values, 0, 0, 0};
    const number turn = number{} - number{head & from_most_bit};
    return {values, turn, static_cast<number>(spar::detail::load_word<number>(in + 1) ^ turn), header};
  }
};

/// Each block decodes a block of `count` numbers, whose code begins at `in` + *begin, or at `in` if `begin` is null, in
/// a message of `bytes` bytes; a *begin of 0 says that there is none. Sets `*end` to where the code ends or, if `end`
/// is null, checks that it ends with the message. Sets `*wrong` to 1 if the bytes are no such code.
template <class Numbers>
__global__ void __launch_bounds__(coded_tile::threads, coded_tile::at_once)
    decode_coded(Numbers given, std::uint64_t count, const std::byte* in, std::uint64_t bytes,
                 const std::uint64_t* begin, std::uint64_t* end, std::uint64_t* wrong, std::uint64_t* words) {
  using U = typename Numbers::number;
  auto& shared = spar::detail::block_memory<coded_tile::memory<U>>();
  const spar::detail::tiles all(words);
  const std::uint64_t tile = all.take(shared.state), blocks = coded_tile::count(count);
  const std::uint64_t first = tile * coded_tile::threads, start = begin == nullptr ? 0 : *begin;
  if (begin != nullptr && start == 0) return;
  const unsigned thread = threadIdx.x;
  const auto own = static_cast<unsigned>(count - first < coded_tile::threads ? count - first : coded_tile::threads);
  const std::uint64_t left = start < bytes ? bytes - start : 0;
  const auto to = given.load(in + (bytes - left), left);
  const std::uint64_t packed = packed_position(to.header + blocks); // in all blocks alike
  if (to.header == 0 || packed > left) {
    *wrong = 1; // all threads write the same value
    return;
  }
  const unsigned given_bits = static_cast<std::uint8_t>(in[start + to.header + tile]);
  const unsigned bits = given_bits <= digits<U> ? given_bits : 0;
  const std::uint64_t size = packed_words<U>::count(own, bits) * sizeof(std::uint32_t);
  const std::uint64_t at = packed + all.outputs_before(tile, size, shared.state);
  const bool fits = bits == given_bits && at + size <= left;
  U x{};
  if (fits && bits > 0 && thread < own)
    x = packed_words<U>(own).unpack(reinterpret_cast<const std::uint32_t*>(in + start + at), bits, thread);
  if (!to.write(tile, thread < own, first + thread, x, shared) || !fits) *wrong = 1;
  if (tile + 1 < blocks || thread != 0) return;
  if (end != nullptr)
    *end = start + at + size;
  else if (at + size != left)
    *wrong = 1;
}

} // namespace detail

/// The alignment in device memory of the messages of `start_encode_coded` and `start_decode_coded`.
inline constexpr std::size_t coded_alignment = packed_alignment;
/// The most indices of a range for `start_decode_coded`.
inline constexpr std::uint64_t most_coded_indices = std::uint64_t{1} << 60;

/// The number of words of device memory that `start_encode_coded` and `start_decode_coded` need for n entries.
inline std::uint64_t coded_words(std::uint64_t n) {
  return detail::found_origin<float>::words + 1 + 3 * spar::detail::tiles::words(detail::coded_tile::count(n));
}

/// Starts kernels that encode `entries`, at least one, whose indices ascend from `first` on, like `encode_indices`
/// without runs and `encode_values<Dropped>`, with equal widths and the same bytes. Sets sizes[0] to the bytes of the
/// indices, and sizes[1] to those of the values. `out` needs the room of the host's functions. All pointers point to
/// memory that the device can access.
template <unsigned Dropped, element T, index_type Index>
  requires detail::has_magnitude<T>
void start_encode_coded(coo_span<T, Index> entries, std::uint64_t first, std::byte* out, std::uint64_t* sizes,
                        std::uint64_t* words, cudaStream_t stream) {
  using tile = detail::coded_tile;
  using found = detail::found_origin<T>;
  using gaps = detail::coded_gaps<Index>;
  using distances = detail::coded_distances<T, Dropped>;
  const std::uint64_t n = entries.size(), blocks = tile::count(n);
  auto* const origin = reinterpret_cast<found*>(words);
  std::uint64_t *const end = words + found::words, *const gap_tiles = end + 1;
  std::uint64_t* const distance_tiles = gap_tiles + spar::detail::tiles::words(blocks);
  spar::detail::clear(words, coded_words(n) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::find_origin<T, found>, spar::detail::tiles_of(blocks, detail::origin_rows),
                       tile::threads, 0, stream, entries.values.data(), n, origin);
  spar::detail::launch(detail::encode_coded<gaps>, blocks, tile::threads, sizeof(tile::memory<Index>), stream,
                       gaps{entries.indices.data(), first}, n, out, nullptr, end, sizes, gap_tiles);
  spar::detail::launch(detail::encode_coded<distances>, blocks, tile::threads,
                       sizeof(tile::memory<typename distances::number>), stream,
                       distances{entries.values.data(), n, origin}, n, out, end, nullptr, sizes + 1, distance_tiles);
}

/// Starts kernels that decode entries, at least one, from the bytes `in`, whose indices must ascend within `range`. If
/// the bytes are no such code with gaps of equal widths, sets `*wrong` to 1, and the entries written are of no use;
/// otherwise leaves `*wrong` as it is. `in` must have the `coded_alignment`, and `range` at most `most_coded_indices`.
template <unsigned Dropped, element T, index_type Index>
  requires detail::has_magnitude<T>
void start_decode_coded(std::span<const std::byte> in, index_range range, std::span<Index> indices, T* values,
                        std::uint64_t* wrong, std::uint64_t* words, cudaStream_t stream) {
  using tile = detail::coded_tile;
  using gaps = detail::decoded_gaps<Index>;
  using distances = detail::decoded_distances<T, Dropped>;
  const std::uint64_t n = indices.size(), blocks = tile::count(n), of_tiles = spar::detail::tiles::words(blocks);
  std::uint64_t *const end = words, *const tiles = end + 1;
  spar::detail::clear(words, coded_words(n) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::decode_coded<gaps>, blocks, tile::threads, sizeof(tile::memory<Index>), stream,
                       gaps{indices.data(), range.begin, range.size(), tiles}, n, in.data(), in.size(), nullptr, end,
                       wrong, tiles + of_tiles);
  spar::detail::launch(detail::decode_coded<distances>, blocks, tile::threads,
                       sizeof(tile::memory<typename distances::number>), stream, distances{values}, n, in.data(),
                       in.size(), end, nullptr, wrong, tiles + 2 * of_tiles);
}

} // namespace spar::inline v0_1::kernel
