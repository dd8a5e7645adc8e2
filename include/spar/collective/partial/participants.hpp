// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The participants of a round of a partial collective: which ranks' calls are included in the result.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// What a rank contributed to a round of a partial collective.
enum class presence : std::uint8_t {
  absent, ///< nothing
  stale,  ///< only calls that were too late for earlier rounds
  fresh   ///< the call of this round, and all earlier calls that the rank has not contributed yet
};

/// What each rank contributed to one round; equal on all ranks that have the result of the round.
class participants {
 public:
  participants() = default;
  /// The participants of the round `round`, of whom all are absent so far.
  participants(std::uint64_t round, rank_t ranks, pool& memory)
      : round_(round), marks_(memory, static_cast<std::size_t>(ranks)) {
    std::fill_n(marks_.data(), marks_.size(), 0);
  }

  /// The number of the round; rounds and calls are numbered from 1.
  [[nodiscard]] std::uint64_t round() const noexcept { return round_; }
  /// What `rank` contributed.
  [[nodiscard]] presence operator[](rank_t rank) const noexcept { return static_cast<presence>(mark(rank) % 4); }
  /// The number of rounds by which the oldest call that `rank` contributed was late; 0 if `rank` is absent.
  [[nodiscard]] std::uint64_t staleness(rank_t rank) const noexcept {
    return static_cast<std::uint64_t>(mark(rank)) / 4;
  }
  /// The greatest staleness of any rank.
  [[nodiscard]] std::uint64_t staleness() const noexcept {
    std::uint64_t most = 0;
    for (const std::int32_t m : marks_.span()) most = std::max(most, static_cast<std::uint64_t>(m) / 4);
    return most;
  }

  /// The number of ranks whose presence is `fresh`.
  [[nodiscard]] rank_t fresh() const noexcept { return count(presence::fresh); }
  /// The number of ranks whose presence is `stale`.
  [[nodiscard]] rank_t stale() const noexcept { return count(presence::stale); }
  /// The number of ranks whose presence is `absent`.
  [[nodiscard]] rank_t absent() const noexcept { return count(presence::absent); }

  // `set` and `marks` are for the class `partial`, which fills and exchanges the marks.
  /// Notes what `rank` contributed (`what`), and by how many rounds its oldest call was late (`late`).
  void set(rank_t rank, presence what, std::uint64_t late) noexcept {
    const auto most = std::min<std::uint64_t>(late, std::numeric_limits<std::int32_t>::max() / 4);
    marks_.data()[rank] = static_cast<std::int32_t>(4 * most) + static_cast<std::int32_t>(what);
  }
  /// The marks of all ranks, which ranks exchange.
  [[nodiscard]] std::span<std::int32_t> marks() noexcept { return marks_.span(); }

 private:
  [[nodiscard]] std::int32_t mark(rank_t rank) const noexcept { return marks_.data()[rank]; }
  [[nodiscard]] rank_t count(presence what) const noexcept {
    rank_t ranks = 0;
    for (const std::int32_t m : marks_.span()) ranks += static_cast<presence>(m % 4) == what ? 1 : 0;
    return ranks;
  }

  std::uint64_t round_ = 0;
  buffer<std::int32_t> marks_; // for each rank, 4 * staleness + presence
};

/// The result of a round of a partial allreduce of streams: the sum, and which ranks' calls it includes.
template <element T, index_type Index = std::uint32_t>
struct partial_sum {
  partial_sum() = default;
  /// The sum `all` of the calls of the participants `who`.
  partial_sum(sparse_stream<T, Index> all, participants who) noexcept : sum(std::move(all)), by(std::move(who)) {}

  sparse_stream<T, Index> sum; ///< the sum, equal on all ranks
  participants by;             ///< the ranks whose calls the sum includes
};

} // namespace spar::inline v0_1
