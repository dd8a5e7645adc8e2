// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Divides work into tiles, one per block, and computes in one pass how many outputs the tiles before a tile have
// ("decoupled look-back", Merrill and Garland 2016).
#pragma once

#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>

#include <cstdint>

namespace spar::inline v0_1::detail {

/// The number of tiles of `size` values that contain n values; one tile if there are no values, because the last tile
/// writes the number of outputs.
SPAR_HOST_DEVICE constexpr std::uint64_t tiles_of(std::uint64_t n, std::uint64_t size) {
  return n == 0 ? 1 : n / size + (n % size != 0 ? 1 : 0);
}

/// The tiles of one kernel launch, in device memory that is zero before the launch: a word for the number of blocks
/// that have begun, and a word for each tile. A tile's word contains a count and in its two lowest bits what it counts.
/// One word can be read and written without tearing, so no fence is needed.
class tiles {
 public:
  static constexpr std::uint64_t words(std::uint64_t count) { return count + 1; }

  SPAR_HOST_DEVICE explicit tiles(std::uint64_t* words) : words_(reinterpret_cast<unsigned long long*>(words)) {}

  /// What the threads of a block share.
  struct block_state {
    std::uint64_t tile;
    std::uint64_t before;
  };

  /// Returns the tile of this block. Blocks take tiles in the order in which they begin to run, so every tile before
  /// this one belongs to a block that has begun and needs no later block to end.
  __device__ std::uint64_t take(block_state& shared) const {
    if (threadIdx.x == 0) shared.tile = take();
    __syncthreads();
    return shared.tile;
  }

  /// The same for one thread of a block that has more than one tile. Tiles from their number on are none.
  __device__ std::uint64_t take() const { return atomicAdd(words_, 1ULL); }

  /// Publishes the number of outputs of this tile, and returns the number of outputs of all tiles before it.
  __device__ std::uint64_t outputs_before(std::uint64_t tile, std::uint64_t outputs, block_state& shared) const {
    if (warp_of_thread() == 0) {
      publish(tile, outputs);
      const std::uint64_t before = look_back(tile, outputs);
      if (lane_of_thread() == 0) shared.before = before;
    }
    __syncthreads();
    return shared.before;
  }

  /// The same in two steps, between which a warp may do other work. All its lanes must call both.
  __device__ void publish(std::uint64_t tile, std::uint64_t outputs) const {
    if (lane_of_thread() == 0) word(tile) = outputs << 2 | (tile == 0 ? through : own);
  }
  __device__ std::uint64_t look_back(std::uint64_t tile, std::uint64_t outputs) const {
    const unsigned lane = lane_of_thread();
    // Each lane reads the words of `words_per_lane` tiles at the same time: lane 0 that of the tile just before, lane
    // 31 that of the tile 32 before, and so on. Counts can move on only so many tiles per latency of the memory.
    std::uint64_t before = 0;
    bool complete = false;
    for (std::uint64_t end = tile, next = 0; !complete && end > 0; end = next) {
      std::uint64_t seen[words_per_lane];
      SPAR_UNROLL
      for (unsigned w = 0; w < words_per_lane; ++w) {
        const unsigned back = w * warp_size + lane;
        seen[w] = back < end ? word(end - 1 - back) : through; // beyond the first tile, nothing counts
      }
      // What has been read before a wait is old after it: then the rest is read again.
      bool has_waited = false;
      next = end;
      SPAR_UNROLL
      for (unsigned w = 0; w < words_per_lane; ++w) {
        if (complete || __ballot_sync(whole_warp, has_waited) != 0) break;
        while ((seen[w] & 3) == nothing) {
          has_waited = true;
          spin();
          seen[w] = word(end - 1 - (w * warp_size + lane));
        }
        next -= next < warp_size ? next : warp_size;
        const std::uint32_t stops = __ballot_sync(whole_warp, (seen[w] & 3) == through);
        complete = stops != 0;
        const unsigned last = complete ? static_cast<unsigned>(__ffs(static_cast<int>(stops))) - 1 : warp_size - 1;
        if (lane <= last) before += seen[w] >> 2;
      }
    }
    before = warp_sum(before);
    if (lane == 0 && tile > 0) word(tile) = (before + outputs) << 2 | through;
    return before;
  }

 private:
  static constexpr std::uint64_t nothing = 0, own = 1, through = 2; // what a word counts: the tile's own outputs, or
                                                                    // those of the tile and of all tiles before it
  static constexpr unsigned words_per_lane = 4;

  // Volatile: each read must see what another block has written by then.
  __device__ volatile unsigned long long& word(std::uint64_t tile) const { return words_[tile + 1]; }

  unsigned long long* words_;
};

} // namespace spar::inline v0_1::detail
