// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages that contain entries, by a stream codec, and also index sets and values without indices, in the code of
// storage/kernel/coded_indices.hpp and coded_values.hpp.
#pragma once

#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/kernel/coded_indices.hpp>
#include <spar/storage/kernel/coded_values.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

/// A message that is composed of entries, and of numbers, index sets and values, in this order. The object must outlive
/// the send, because the message refers to its memory.
class mixed_message {
 public:
  static constexpr std::size_t most_numbers = 3; ///< the most numbers and sets of a message

  /// Sets the `entries`, whose indices lie in `range`, and makes room for `bytes` bytes of sets and values.
  template <transport Net, class Codec, element T, index_type Index>
  void begin(channel<Net> net, const Codec& codec, coo_span<T, Index> entries, index_range range, std::size_t bytes) {
    entries_ = detail::encode_entries(net, codec, entries, range, entry_room_).get();
    begin(net, bytes);
  }
  /// The same without entries.
  template <transport Net>
  void begin(channel<Net> net, std::size_t bytes) {
    if (set_room_.size() < bytes) set_room_ = buffer<std::byte>(net.memory(), bytes);
    end_ = set_room_.data();
  }
  void add(std::uint64_t number) noexcept { numbers_[numbers_added_++] = number; }
  /// Adds the size of a set of ascending indices, none below `first`, and the set, for which `begin` must have made
  /// room for `coded_indices_bound` bytes.
  template <transport Net, index_type Index>
  void add_set(channel<Net> net, std::span<const Index> indices, std::uint64_t first) {
    const double begin = net.net().now();
    const std::byte* const set = end_;
    add(indices.size());
    end_ = kernel::encode_indices(indices, first, kernel::coding::smallest, end_);
    note(net, begin, indices.size());
    net.note_coded_indices(indices.size(), static_cast<std::size_t>(end_ - set));
    plain_ += indices.size_bytes();
  }
  /// Adds values, whose number the receiver knows; `begin` must have made room for `coded_values_bound` bytes.
  template <transport Net, element T>
  void add_values(channel<Net> net, std::span<const T> values) {
    const double begin = net.net().now();
    const std::byte* const first = end_;
    end_ = kernel::encode_values<0>(values, kernel::coding::smallest, end_);
    note(net, begin, values.size());
    net.note_coded_values(values.size(), static_cast<std::size_t>(end_ - first));
    plain_ += values.size_bytes();
  }

  /// The message.
  [[nodiscard]] payload message() const noexcept {
    const auto sets = set_room_.span().first(static_cast<std::size_t>(end_ - set_room_.data()));
    const auto numbers = std::as_bytes(std::span(numbers_).first(numbers_added_));
    return {wire_format::entries_coded,
            entries_.count,
            {entries_.pieces[0], numbers, sets},
            entries_.plain_bytes + plain_ + numbers.size()};
  }

 private:
  /// Reports the time since `begin`, and that of `count` indices or values on a simulated network.
  template <transport Net>
  static void note(channel<Net> net, double begin, std::size_t count) {
    detail::compute_code<float>(net, storage::coded<>{}, (count + 1) / 2); // a half of each entry
    net.note_compression(net.net().now() - begin);
  }

  buffer<std::byte> entry_room_, set_room_;
  payload entries_{};
  std::array<std::uint64_t, most_numbers> numbers_{};
  std::size_t numbers_added_ = 0;
  std::byte* end_ = nullptr;
  std::uint64_t plain_ = 0;
};

/// Reads a `mixed_message` that has arrived, in the order in which it was composed. Every function throws
/// `corrupt_message` if the message does not contain what is read.
class mixed_reader {
 public:
  /// `in` must have `numbers` numbers and sets, and at most one entry for each index of `range`.
  mixed_reader(const message_buffer& in, std::size_t numbers, index_range range)
      : in_(&in), numbers_(in.piece<std::uint64_t>(1)) {
    if (in.head().format != wire_format::entries_coded || numbers_.size() != numbers) {
      raise<corrupt_message>({"a message of format ", static_cast<int>(in.head().format), " with ", numbers_.size(),
                              " numbers and sets arrived; expected format 5 (coded entries) with ", numbers});
    }
    detail::check_count(in.head().count, range);
    const auto sets = in.piece<std::byte>(2);
    at_ = sets.data();
    end_ = at_ + sets.size();
  }
  /// The number of entries.
  [[nodiscard]] std::size_t entries() const noexcept { return in_->head().count; }
  /// Decodes the entries, whose indices must lie in `range`, to `to`.
  template <transport Net, class Codec, element T, index_type Index>
  void read_entries(channel<Net> net, const Codec& codec, index_range range, entry_room<T, Index> to) {
    reads_entries_ = true;
    detail::decode_entries(net, codec, in_->piece<std::byte>(0), range, to).get();
  }
  /// Returns the next number, which must be at most `most`.
  [[nodiscard]] std::uint64_t read_number(std::uint64_t most) {
    const std::uint64_t number = numbers_.front();
    if (number > most)
      raise<corrupt_message>({"the number ", number, " arrived in a coded message; expected at most ", most});
    numbers_ = numbers_.subspan(1);
    return number;
  }
  /// Decodes the next set, whose size `read_number` has returned, to `to`.
  template <transport Net, index_type Index>
  void read_set(channel<Net> net, index_range range, std::span<Index> to) {
    const double begin = net.net().now();
    if (!to.empty()) advance(net, begin, kernel::decode_indices(at_, end_, range, to), "indices", to.size());
  }
  /// Decodes the next values to `to`.
  template <transport Net, element T>
  void read_values(channel<Net> net, std::span<T> to) {
    const double begin = net.net().now();
    if (!to.empty()) advance(net, begin, kernel::decode_values<0>(at_, end_, to), "values", to.size());
  }
  /// Throws unless all bytes have been read.
  void check_end() const {
    if (at_ != end_)
      raise<corrupt_message>({"a coded message has ", end_ - at_, " bytes after its last value; expected none"});
    if (const auto bytes = in_->piece<std::byte>(0).size(); bytes != 0 && !reads_entries_)
      raise<corrupt_message>({"a coded message has ", bytes, " bytes of entries; expected none"});
  }

 private:
  template <transport Net>
  void advance(channel<Net> net, double begin, const std::byte* next, const char* what, std::size_t count) {
    if (next == nullptr)
      raise<corrupt_message>({"the ", count, " ", what, " in a coded message of ", end_ - at_,
                              " bytes are malformed; expected ascending indices in their range, and values"});
    at_ = next;
    detail::compute_code<float>(net, storage::coded<>{}, (count + 1) / 2);
    net.note_decompression(net.net().now() - begin);
  }

  const message_buffer* in_;
  std::span<const std::uint64_t> numbers_;
  const std::byte* at_;
  const std::byte* end_;
  bool reads_entries_ = false;
};

} // namespace spar::inline v0_1
