// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cells: the ranges of values that owners encode separately, so that ranks can forward encoded bytes down the levels of
// a plan.
#pragma once

#include <spar/core/index_range.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/topology/flex_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::detail {

/// Divides the vector into cells at every index at which a call of the plan begins or ends. Each cell therefore has one
/// owner, which encodes the cell separately, and every message consists of whole cells.
class encoded_cells {
 public:
  template <class BytesOf>
  encoded_cells(const flex_plan& plan, pool& memory, BytesOf bytes_of) : room_(room(plan)), bounds_(memory, room_) {
    bounds_.emplace_back(bound{0, 0});
    bounds_.emplace_back(bound{plan.dimension(), 0});
    for (std::size_t level = 0; level < plan.levels(); ++level) {
      for (const auto& call : plan.calls(level)) {
        bounds_.emplace_back(bound{call.range.begin, 0});
        bounds_.emplace_back(bound{call.range.end, 0});
      }
    }
    std::sort(bounds_.begin(), bounds_.end(), [](const bound& a, const bound& b) { return a.index < b.index; });
    const auto same = [](const bound& a, const bound& b) { return a.index == b.index; };
    cells_ = static_cast<std::size_t>(std::unique(bounds_.begin(), bounds_.end(), same) - bounds_.begin()) - 1;
    for (std::size_t c = 0; c < cells_; ++c) bounds_[c + 1].byte = bounds_[c].byte + bytes_of((*this)[c].size());
  }

  [[nodiscard]] std::size_t size() const noexcept { return cells_; }
  /// The position, counted from 0, of the cell that begins at `index`, which must be a bound of a cell. At the end of
  /// the vector, the number of cells.
  [[nodiscard]] std::size_t at(std::uint64_t index) const noexcept {
    return static_cast<std::size_t>(found(index) - bounds_.begin());
  }
  [[nodiscard]] index_range operator[](std::size_t cell) const noexcept {
    return {bounds_[cell].index, bounds_[cell + 1].index};
  }
  /// The bytes of the cells in `range`, which must begin and end at bounds of cells; `all` contains the encoded bytes
  /// of all cells.
  [[nodiscard]] std::span<std::byte> bytes(std::span<std::byte> all, index_range range) const noexcept {
    const std::size_t begin = byte_of(range.begin);
    return all.subspan(begin, byte_of(range.end) - begin);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bounds_[cells_].byte; }
  /// An upper bound on the number of different messages that a rank sends on one level of the plan.
  [[nodiscard]] std::size_t room() const noexcept { return room_; }

 private:
  struct bound {
    std::uint64_t index;
    std::size_t byte;
  };
  static std::size_t room(const flex_plan& plan) {
    std::size_t calls = 0;
    for (std::size_t level = 0; level < plan.levels(); ++level) calls += plan.calls(level).size();
    return 2 * calls + 2;
  }
  [[nodiscard]] const bound* found(std::uint64_t index) const noexcept {
    return std::lower_bound(bounds_.begin(), bounds_.begin() + cells_ + 1, index,
                            [](const bound& b, std::uint64_t i) { return b.index < i; });
  }
  [[nodiscard]] std::size_t byte_of(std::uint64_t index) const noexcept { return found(index)->byte; }

  std::size_t room_;
  fixed_vector<bound> bounds_;
  std::size_t cells_ = 0;
};

} // namespace spar::inline v0_1::detail
