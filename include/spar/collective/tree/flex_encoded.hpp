// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The all-gather of a FlexReduce plan for streams that a codec encodes.
#pragma once

#include <spar/collective/tree/flex_cells.hpp>
#include <spar/collective/tree/flex_level.hpp>
#include <spar/collective/wire/encoded_parts.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/topology/flex_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace spar::detail {

/// The `Work` of flex_execute for an all-gather of encoded streams: each owner encodes each of its cells (ranges of
/// indices) once, and ranks forward whole encoded cells down the tree.
template <element T, index_type Index, class Storage>
class flex_encoded_streams : public flex_work {
 public:
  static constexpr bool straight = true;

  flex_encoded_streams(const flex_plan& plan, const encoded_cells& cells, pool& memory)
      : flex_work(plan), cells_(&cells), memory_(&memory), parts_of_all_(memory, cells.size(), cells.room()) {}
  [[nodiscard]] encoded_parts<Storage, T, Index>& all() noexcept { return parts_of_all_; }

  void begin_level(std::span<const flex_plan::part> parts) {
    flex_work::begin_level(parts);
    sent_.emplace(*memory_, parts.size());
    std::fill_n(sent_->data(), parts.size(), payload());
  }
  [[nodiscard]] ready<payload> outgoing(std::size_t part) {
    payload& message = sent_->span()[part]; // all receivers in a chain get the same message
    if (message.format == wire_format{}) message = parts_of_all_.message(first(part), count(part));
    return ready<payload>(message);
  }
  std::uint64_t take(const flex_message& m, const message_buffer& in) {
    parts_of_all_.take(in, first(m.part), count(m.part));
    return 0;
  }
  void end_level() noexcept { parts_of_all_.release_messages(); }

 private:
  [[nodiscard]] std::size_t first(std::size_t part) const noexcept { return cells_->at(range(part).begin); }
  [[nodiscard]] std::size_t count(std::size_t part) const noexcept { return cells_->at(range(part).end) - first(part); }

  const encoded_cells* cells_;
  pool* memory_;
  encoded_parts<Storage, T, Index> parts_of_all_; // part c is the encoded cell c
  std::optional<buffer<payload>> sent_;           // for each chain of this rank, the message to send, set by `outgoing`
};

} // namespace spar::detail
