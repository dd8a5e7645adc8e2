// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared by the fuzz targets: splits an input into numbers and messages, and checks what the library accepted.
#pragma once

#include <spar/runtime/messages/message.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

/// Each target defines this function; libFuzzer or the test that replays the corpus calls it. It throws if it finds a
/// bug.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

/// A bug that no sanitizer finds: the library accepted an invalid input.
struct failure : std::logic_error {
  using std::logic_error::logic_error;
};

inline void demand(bool holds, const char* sentence) {
  if (!holds) throw failure(sentence);
}

/// Whether the library rejected the input. Used only by the replay of the corpus, which knows the inputs to be
/// rejected.
inline bool refused = false;

/// The folder of the target's corpus. Defined where the target is compiled for the replay.
extern const char* const corpus;
#ifdef SPAR_FUZZ_CORPUS
const char* const corpus = SPAR_FUZZ_CORPUS;
#endif

/// Bytes at the end of an allocation, so that the address sanitizer detects reads beyond the last byte.
using exact_bytes = std::vector<std::byte>;

class input {
 public:
  input(const std::uint8_t* data, std::size_t size) : left_(std::as_bytes(std::span(data, size))) {}

  [[nodiscard]] std::size_t left() const { return left_.size(); }
  /// The next `size` bytes, with zeros after the end of the input.
  exact_bytes bytes(std::size_t size) {
    exact_bytes out(size);
    const std::size_t there = std::min(size, left_.size());
    if (there > 0) std::memcpy(out.data(), left_.data(), there);
    left_ = left_.subspan(there);
    return out;
  }
  template <class T>
  T take() {
    T value{};
    const std::size_t there = std::min(sizeof(T), left_.size());
    if (there > 0) std::memcpy(&value, left_.data(), there);
    left_ = left_.subspan(there);
    return value;
  }

 private:
  std::span<const std::byte> left_;
};

/// Delivers the next message of the input, with the header `agreed` except for format, count and lengths. The input has
/// one byte for the format, 64 bits for the count and three times 16 bits for the lengths before the pieces. A piece is
/// as long as the header says, as transports guarantee. Other bits of the format byte: with 0x80 the pieces may differ
/// in size from what the receive expects; with 0x20 or 0x40 the elements are not those of the call, but counters of 4
/// or 8 bytes.
inline void arrive(spar::message_buffer& in, input& from, const spar::header& agreed) {
  const auto format = from.take<std::uint8_t>();
  spar::header& h = in.arrived() = agreed;
  h.format = static_cast<spar::wire_format>(format & 0x1F);
  if ((format & 0x60) == 0x20) h.element = spar::element_code::uint32;
  if ((format & 0x60) == 0x40) h.element = spar::element_code::uint64;
  h.count = from.take<std::uint64_t>();
  auto* pieces = new std::array<exact_bytes, spar::max_pieces>;
  spar::payload_views views;
  std::array<std::uint16_t, spar::max_pieces> lengths;
  for (auto& length : lengths) length = from.take<std::uint16_t>();
  for (std::size_t i = 0; i < spar::max_pieces; ++i) {
    const bool as_due = in.kept() && format < 0x80;
    (*pieces)[i] = from.bytes(as_due ? in.expected_bytes(i) : std::min<std::size_t>(lengths[i], from.left()));
    views[i] = (*pieces)[i];
    h.lengths[i] = views[i].size();
  }
  const auto give_back = [](void* lent) noexcept { delete static_cast<std::array<exact_bytes, 3>*>(lent); };
  if (in.kept() && in.fits()) in.copy_from(views);
  if (in.kept()) return give_back(pieces);
  in.borrow(views, give_back, pieces);
}

} // namespace fuzz
