// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The slices of a stream that belong to the owners of its indices.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/topology/ownership.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace spar {

/// The slices of a stream that belong to the owners of its indices (see `host_work::slices`).
template <element T, index_type Index, class Ownership>
class owners_slices {
 public:
  /// Slices of `whole` by the ownership `owner` that are found when they are asked for.
  owners_slices(const stream_view<T, Index>& whole, const Ownership& owner) : whole_(whole), owner_(owner) {}
  /// Slices of the sparse stream `whole` by the ownership `owner`: that of the rank r has the entries from cuts[r] to
  /// cuts[r + 1] - 1.
  owners_slices(const stream_view<T, Index>& whole, const Ownership& owner, buffer<std::uint64_t> cuts)
      : whole_(whole), owner_(owner), cuts_(std::move(cuts)) {}

  /// The slice of the rank r.
  [[nodiscard]] stream_view<T, Index> operator[](rank_t r) const noexcept {
    if (cuts_.size() == 0) return whole_.slice(owner_[r].begin, owner_[r].end);
    const auto b = static_cast<std::size_t>(r);
    return whole_.entries_from(cuts_.span()[b], cuts_.span()[b + 1]);
  }

 private:
  stream_view<T, Index> whole_;
  Ownership owner_;
  buffer<std::uint64_t> cuts_;
};

} // namespace spar
