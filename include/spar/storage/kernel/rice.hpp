// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rice codes of blocks of unsigned numbers (Rice and Plaunt, IEEE Transactions on Communication Technology, 1971), and
// blocks of numbers of equal width. The numbers of a block lie side by side in the lanes of 16-byte vectors (Lemire and
// Boytsov, Software: Practice and Experience, 2015), so that packing needs only shifts and works on every processor.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/bits.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace spar::inline v0_1::kernel {

/// The number of numbers in a block; the last block of an array may be shorter.
inline constexpr std::size_t rice_block = 256;

/// Memory for the numbers of one block.
template <class U>
struct alignas(16) rice_numbers : std::array<U, rice_block> {};

/// How small a block becomes.
enum class coding : std::uint8_t {
  smallest, ///< Rice code or equal width, whichever is smaller
  fastest   ///< equal width, which takes a third of the time of the Rice code; all widths in front (`number_writer`)
};

/// An upper bound on the bytes of `count` encoded numbers of type U, all blocks together. A block takes at most one
/// byte more than its numbers take in memory; the encoder may also write to the next 16 bytes.
template <class U>
constexpr std::size_t rice_bound(std::size_t count) noexcept {
  return count * sizeof(U) + (count + rice_block - 1) / rice_block + 16;
}

namespace detail {

/// A block of elements: those of the user, or a copy of a short block, whose rest repeats the first element.
template <class T>
class whole_block {
 public:
  whole_block(const T* from, std::size_t count) : data_(from) {
    if (count == rice_block) return;
    std::memcpy(static_cast<void*>(copy_.data()), from, count * sizeof(T));
    for (std::size_t e = count; e < rice_block; ++e) copy_[e] = from[0];
    data_ = copy_.data();
  }
  whole_block(const whole_block&) = delete;
  [[nodiscard]] const T* data() const noexcept { return data_; }

 private:
  std::array<T, rice_block> copy_;
  const T* data_;
};

template <class U>
struct vector_of {
  typedef U type __attribute__((vector_size(16))); // NOLINT(modernize-use-using): g++ rejects the attribute in `using`
};
template <class U>
using vector = typename vector_of<U>::type;

template <class U>
inline constexpr unsigned lanes = 16 / sizeof(U);
template <class U>
inline constexpr unsigned digits = std::numeric_limits<U>::digits;

template <class V>
[[gnu::always_inline]] inline V load(const void* from) {
  V value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class V>
[[gnu::always_inline]] inline void store(void* to, V value) {
  std::memcpy(to, &value, sizeof value);
}
template <class U>
SPAR_HOST_DEVICE constexpr U low_bits(unsigned bits) {
  return bits == digits<U> ? ~U{} : static_cast<U>((U{1} << bits) - 1);
}

/// Packs the low `bits` bits of each number of a whole block. Writes 32 * bits bytes. If `Whole`, the numbers have no
/// other bits.
template <bool Whole, class U>
std::byte* pack_block(const U* __restrict x, unsigned bits, std::byte* __restrict out) {
  if (bits == 0) return out;
  if (bits == digits<U>) {
    std::memcpy(out, x, rice_block * sizeof(U));
    return out + rice_block * sizeof(U);
  }
  const U mask = Whole ? ~U{} : low_bits<U>(bits);
  vector<U> word{};
  unsigned fill = 0;
  const auto add = [&](const U* from) __attribute__((always_inline)) {
    const vector<U> v = load<vector<U>>(from) & mask;
    word |= v << fill;
    fill += bits;
    if (fill >= digits<U>) {
      store(out, word);
      out += 16;
      fill -= digits<U>;
      word = v >> (bits - fill); // 0 if no bits are left
    }
  };
  // Four vectors at a time: one at a time takes 1.2 to 1.4 times as long.
  for (std::size_t e = 0; e < rice_block; e += 4 * lanes<U>) {
    add(x + e);
    add(x + e + lanes<U>);
    add(x + e + 2 * lanes<U>);
    add(x + e + 3 * lanes<U>);
  }
  return out;
}

/// Reverses `pack_block`. Reads the 32 * bits bytes, and up to 16 bytes beyond them.
template <class U>
void unpack_block(const std::byte* __restrict in, unsigned bits, U* __restrict x) {
  if (bits == 0) {
    std::memset(x, 0, rice_block * sizeof(U));
    return;
  }
  const U mask = low_bits<U>(bits);
  unsigned at = 0; // the bit of each lane at which the next number begins
  for (std::size_t e = 0; e < rice_block; e += lanes<U>, at += bits) {
    const std::byte* const from = in + at / digits<U> * 16;
    const unsigned shift = at % digits<U>;
    const vector<U> low = load<vector<U>>(from) >> shift;
    const vector<U> high = load<vector<U>>(from + 16) << 1 << (digits<U> - 1 - shift); // no shift by `digits`
    store(x + e, (low | high) & mask);
  }
}

/// Packs the low `bits` bits of `count` numbers one after another. Writes `packed_bytes(count, bits)` bytes, and up to
/// 16 bytes beyond them.
template <class U>
std::byte* pack_rest(const U* __restrict x, std::size_t count, unsigned bits, std::byte* __restrict out) {
  std::memset(out, 0, (count * bits + 7) / 8 + 16);
  for (std::size_t e = 0, at = 0; e < count; ++e, at += bits) {
    const std::uint64_t number = x[e] & low_bits<U>(bits);
    std::byte* const to = out + at / 8;
    const unsigned shift = at % 8;
    store(to, load<std::uint64_t>(to) | number << shift);
    if (bits + shift > 64) to[8] = static_cast<std::byte>(number >> (64 - shift));
  }
  return out + (count * bits + 7) / 8;
}

/// Reverses `pack_rest`. Reads up to 16 bytes beyond the packed numbers.
template <class U>
void unpack_rest(const std::byte* __restrict in, std::size_t count, unsigned bits, U* __restrict x) {
  for (std::size_t e = 0, at = 0; e < count; ++e, at += bits) {
    const std::byte* const from = in + at / 8;
    const unsigned shift = at % 8;
    std::uint64_t number = load<std::uint64_t>(from) >> shift;
    if (bits + shift > 64) number |= static_cast<std::uint64_t>(from[8]) << (64 - shift);
    x[e] = static_cast<U>(number) & low_bits<U>(bits);
  }
}

/// The most words of a block's unary part. The quotients of a block add up to at most 2.1 times its numbers.
inline constexpr std::size_t unary_words = 16;

/// Writes each number, shifted right by `bits`, in unary: as many zeros, and a one. Writes whole words of 64 bits;
/// returns the end of the last byte with a one.
template <class U>
std::byte* write_unary(const U* __restrict x, std::size_t count, unsigned bits, std::byte* __restrict out) {
  std::uint64_t word = 0, at = 0;
  for (std::size_t e = 0; e < count; ++e) {
    at += x[e] >> bits;
    if (at >= 64) [[unlikely]] { // a loop alone takes 0.25 ns longer for each number
      for (; at >= 64; at -= 64, word = 0, out += 8) store(out, word);
    }
    word |= std::uint64_t{1} << at;
    ++at;
  }
  store(out, word);
  return out + (at + 7) / 8;
}

/// Reads `count` unary numbers, at least one, from the bytes between `in` and `end`, and adds each, shifted left by
/// `bits`, to the number in x. Returns the end of the last byte with a one, or nullptr if the bytes end before.
template <class U>
const std::byte* add_unary(const std::byte* in, const std::byte* end, std::size_t count, unsigned bits,
                           U* __restrict x) {
  std::array<std::uint64_t, unary_words> words;
  std::size_t filled = 0, ones = 0;
  do {
    const std::byte* const at = in + 8 * filled;
    if (at >= end || filled == unary_words) return nullptr;
    std::uint64_t word = 0;
    if (end - at >= 8)
      word = load<std::uint64_t>(at);
    else
      std::memcpy(&word, at, static_cast<std::size_t>(end - at));
    words[filled++] = word;
    ones += popcount(word);
  } while (ones < count);
  std::array<std::uint16_t, 8 + position_room> room;
  std::uint16_t* const position = room.data() + 8;
  std::uint16_t* const before = position - 1; // the position of the one before
  before[0] = std::uint16_t(-1);
  (void)bit_positions(words.data(), filled, position);
  const auto add = [&](std::size_t numbers) __attribute__((always_inline)) {
    for (std::size_t e = 0; e < numbers; ++e) {
      const auto quotient = static_cast<std::uint16_t>(position[e] - before[e] - 1);
      x[e] = static_cast<U>(x[e] + (static_cast<U>(quotient) << bits));
    }
  };
  count == rice_block ? add(rice_block) : add(count); // a loop of a known length is vectorised at -O2
  return in + position[count - 1] / 8 + 1;
}

/// Unions or other combinations of the vectors 0, 4, 8, ... of a block, of 1, 5, 9, ..., and so on. A single one would
/// be a chain of operations that wait for each other.
template <class U>
using four_vectors = std::array<vector<U>, 4>;

/// The union of the bits of all lanes.
template <class U>
U union_of(const four_vectors<U>& any) {
  const vector<U> all = (any[0] | any[1]) | (any[2] | any[3]);
  U bits = all[0];
  for (unsigned e = 1; e < lanes<U>; ++e) bits |= all[e];
  return bits;
}
/// Stores the vectors number(0), number(lanes), number(2 * lanes), ... as the numbers of a block. Returns the union of
/// their bits.
template <class U, class F>
[[gnu::always_inline]] inline U fill_block(rice_numbers<U>& x, F number) {
  four_vectors<U> any{};
  for (std::size_t e = 0; e < rice_block; e += 4 * lanes<U>) {
    for (unsigned i = 0; i < 4; ++i) {
      const vector<U> v = number(e + i * lanes<U>);
      store(x.data() + e + i * lanes<U>, v);
      any[i] |= v;
    }
  }
  return union_of<U>(any);
}
/// The union of the bits of the numbers of a block.
template <class U>
U union_of(const rice_numbers<U>& x) {
  four_vectors<U> any{};
  for (std::size_t e = 0; e < rice_block; e += 4 * lanes<U>)
    for (unsigned i = 0; i < 4; ++i) any[i] |= load<vector<U>>(x.data() + e + i * lanes<U>);
  return union_of<U>(any);
}
/// The sum of the numbers of a block, each shifted right by `bits`, which must fit into a number.
template <class U>
std::uint64_t sum_of_quotients(const U* x, unsigned bits) {
  vector<U> sum{};
  for (std::size_t e = 0; e < rice_block; e += lanes<U>) sum += load<vector<U>>(x + e) >> bits;
  std::uint64_t total = 0;
  for (unsigned e = 0; e < lanes<U>; ++e) total += sum[e];
  return total;
}

inline constexpr unsigned is_rice = 0x80; // in the first byte of a block, whose other bits are the number of low bits

} // namespace detail

namespace detail {

/// The first byte of a block: of its first `count` numbers, whose bits have the union `any`; the others must be 0.
template <class U>
std::byte head_of_block(const rice_numbers<U>& x, U any, std::size_t count, coding how) {
  const auto width = static_cast<unsigned>(std::bit_width(any));
  if (how == coding::smallest) {
    constexpr unsigned most_added = digits<U> - std::bit_width(rice_block - 1);
    const unsigned left_out = width > most_added ? width - most_added : 0; // so that the sum fits into a number
    const auto sum = static_cast<double>(sum_of_quotients(x.data(), left_out));
    // The best l for numbers with a geometric distribution of this mean.
    const double mean = sum * static_cast<double>(U{1} << left_out) / static_cast<double>(count);
    const auto low = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(0.4812 * (mean + 0.5))));
    if (low < width) {
      const auto ones = static_cast<std::size_t>(sum_of_quotients(x.data(), low)) + count;
      if ((count * low + 7) / 8 + (ones + 7) / 8 < (count * width + 7) / 8)
        return static_cast<std::byte>(low | is_rice);
    }
  }
  return static_cast<std::byte>(width);
}

/// Encodes the first `count` numbers of a block as its first byte `head` says. Returns the end of the encoded bytes.
template <class U>
std::byte* encode_block(const rice_numbers<U>& x, std::byte head, std::size_t count, std::byte* out) {
  const unsigned bits = static_cast<unsigned>(head) & ~is_rice;
  const bool unary = (static_cast<unsigned>(head) & is_rice) != 0;
  if (count < rice_block) {
    out = pack_rest(x.data(), count, bits, out);
    return unary ? write_unary(x.data(), count, bits, out) : out;
  }
  if (!unary) return pack_block<true>(x.data(), bits, out);
  return write_unary(x.data(), count, bits, pack_block<false>(x.data(), bits, out));
}

/// Decodes the first `count` numbers of a block with the first byte `head`, and writes anything to the others. Returns
/// the end of their encoding, which begins at `in`, or nullptr if the bytes from `in` to `end` are no such block.
template <class U>
const std::byte* decode_block(std::byte head, const std::byte* in, const std::byte* end, std::size_t count,
                              rice_numbers<U>& x) {
  const unsigned bits = static_cast<unsigned>(head) & ~is_rice;
  const std::size_t bytes = (count * bits + 7) / 8, left = static_cast<std::size_t>(end - in);
  if (bits > digits<U> || bytes > left) return nullptr;
  const std::byte* low = in;
  std::array<std::byte, rice_block * sizeof(U) + 16> copy;
  if (left < bytes + 16) { // unpacking reads beyond the packed numbers
    std::memcpy(copy.data(), in, bytes);
    low = copy.data();
  }
  count == rice_block ? unpack_block(low, bits, x.data()) : unpack_rest(low, count, bits, x.data());
  if ((static_cast<unsigned>(head) & is_rice) == 0) return in + bytes;
  return bits == digits<U> ? nullptr : add_unary(in + bytes, end, count, bits, x.data());
}

} // namespace detail

/// Encodes the first `count` numbers of a block; the others must be 0. `any` is the union of their bits. Returns the
/// end of the encoded bytes; see `rice_bound` for the room that the encoder needs.
///
/// Layout: a byte with the number l of low bits and, in its highest bit, whether a unary part follows; the low bits of
/// the numbers, 32 l bytes in lanes for a whole block, ceil(count l / 8) bytes one after another for a shorter one; the
/// unary part in whole bytes, which contains, for each number, as many zeros as its other bits say, and a one.
template <class U>
std::byte* encode_numbers(const rice_numbers<U>& x, U any, std::size_t count, coding how, std::byte* out) {
  *out = detail::head_of_block(x, any, count, how);
  return detail::encode_block(x, *out, count, out + 1);
}

/// Decodes the first `count` numbers of a block, and writes anything to the others. Returns the end of their encoding,
/// which begins at `in`, or nullptr if the bytes from `in` to `end` are no such block.
template <class U>
const std::byte* decode_numbers(const std::byte* in, const std::byte* end, std::size_t count, rice_numbers<U>& x) {
  return in == end ? nullptr : detail::decode_block(*in, in + 1, end, count, x);
}

/// Where packed numbers of equal widths begin, in bytes from the start of their message, and where they end.
inline constexpr std::size_t packed_alignment = 4;

/// The next multiple of `packed_alignment`.
SPAR_HOST_DEVICE constexpr std::uint64_t packed_position(std::uint64_t position) noexcept {
  return (position + packed_alignment - 1) / packed_alignment * packed_alignment;
}

/// Encodes an array of numbers, block by block. Layout of `smallest`: the blocks of `encode_numbers`. Layout of
/// `fastest`, whose blocks can be decoded in parallel: a byte for each block with its width; zeros up to a
/// `packed_position`; the packed numbers of the blocks, as in `encode_numbers`; zeros up to a `packed_position`.
template <class U>
class number_writer {
 public:
  /// Writes `count` numbers from `out` on, in a message whose positions count from `origin`.
  number_writer(coding how, std::size_t count, std::byte* origin, std::byte* out)
      : origin_(origin), width_(out), out_(out), how_(how) {
    if (how == coding::smallest) return;
    out_ += (count + rice_block - 1) / rice_block;
    pad();
  }
  /// Writes the first `count` numbers of a block, whose bits have the union `any`; the others must be 0. Inlined, so
  /// that the pointers stay in registers: otherwise indices take 1.04 times as long.
  [[gnu::always_inline]] void add(const rice_numbers<U>& x, U any, std::size_t count) {
    const std::byte head = detail::head_of_block(x, any, count, how_);
    *(how_ == coding::smallest ? out_++ : width_++) = head;
    out_ = detail::encode_block(x, head, count, out_);
  }
  /// Returns the end of the encoded bytes.
  [[nodiscard]] std::byte* end() {
    if (how_ == coding::fastest) pad();
    return out_;
  }

 private:
  void pad() {
    std::byte* const to = origin_ + packed_position(static_cast<std::uint64_t>(out_ - origin_));
    while (out_ != to) *out_++ = std::byte{0};
  }

  std::byte *origin_, *width_, *out_;
  coding how_;
};

/// Reverses `number_writer`.
template <class U>
class number_reader {
 public:
  /// Reads `count` numbers from the bytes between `in` and `end`, in a message whose positions count from `origin`.
  number_reader(coding how, std::size_t count, const std::byte* origin, const std::byte* in, const std::byte* end)
      : origin_(origin), width_(in), in_(in), end_(end), how_(how) {
    const std::size_t blocks = (count + rice_block - 1) / rice_block;
    if (how == coding::smallest) return;
    if (static_cast<std::size_t>(end - in) < blocks)
      in_ = nullptr;
    else
      skip_to_position(in + blocks);
  }
  /// Reads the next `count` numbers, those of a block, and writes anything to its others. Returns false if the bytes
  /// are no such block.
  [[nodiscard]] bool next(std::size_t count, rice_numbers<U>& x) {
    if (in_ == nullptr) return false;
    if (how_ == coding::smallest)
      in_ = decode_numbers(in_, end_, count, x);
    else if (static_cast<unsigned>(*width_) > detail::digits<U>)
      in_ = nullptr;
    else
      in_ = detail::decode_block(*width_++, in_, end_, count, x);
    return in_ != nullptr;
  }
  /// Returns the end of the numbers, or nullptr if the bytes end before.
  [[nodiscard]] const std::byte* rest() {
    if (in_ != nullptr && how_ == coding::fastest) skip_to_position(in_);
    return in_;
  }

 private:
  void skip_to_position(const std::byte* in) {
    const auto at = packed_position(static_cast<std::uint64_t>(in - origin_));
    in_ = at > static_cast<std::uint64_t>(end_ - origin_) ? nullptr : origin_ + at;
  }

  const std::byte *origin_, *width_, *in_, *end_;
  coding how_;
};

} // namespace spar::inline v0_1::kernel
