// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks of indices in device memory, and counts of indices and values there.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/cuda/kernel/moments.cuh>
#include <spar/cuda/kernel/search.cuh>
#include <spar/cuda/values/copies.cuh>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/kernel/reached.hpp>
#include <spar/storage/wire.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar::inline v0_1::detail {

/// Checks and counts for `device_work`, whose description holds for them, too.
class device_counts : public device_copies {
 public:
  using device_copies::device_copies;

  template <index_type Index>
  [[nodiscard]] task<void> check_indices(std::span<const Index> indices, index_range range) const {
    const std::uint64_t end = indices.size();
    const auto range_of = [&](std::size_t) { return range; };
    auto checking = check_parts(indices, std::span(&end, 1), range_of);
    co_await std::move(checking);
  }
  /// The same for the sparse ones of `streams`. Waits once.
  template <element T, index_type Index>
  [[nodiscard]] task<void> check_indices(std::span<const stream_view<T, Index>> streams, index_range range) const {
    const auto is_dense = [](const auto& s) { return s.indices().empty(); };
    if (std::all_of(streams.begin(), streams.end(), is_dense)) co_return;
    host_answer<std::uint32_t> bad(*this, 1);
    for (const auto& s : streams)
      kernel::start_check_indices(s.indices().data(), s.indices().size(), range.begin, range.end, bad.data(), stream());
    co_await bad.written();
    if (bad.data()[0] == 0) co_return;
    for (const auto& s : streams) co_await check_indices(s.indices(), range); // says which index is wrong
  }
  /// The same for the parts of a message: part i ends before entry `ends[i]`, and its indices must lie in
  /// `range_of(i)`. Waits once.
  template <index_type Index, class RangeOf>
  [[nodiscard]] task<void> check_parts(std::span<const Index> indices, std::span<const std::uint64_t> ends,
                                       RangeOf range_of) const {
    auto checking = wrong_indices(indices, ends, range_of);
    const buffer<Index> wrong = co_await std::move(checking);
    if (wrong.size() > 0) spar::check_parts(wrong.span(), ends, range_of); // says which index is wrong
  }
  /// Returns an empty buffer if the indices are as `check_parts` expects them, otherwise a copy of them on the host.
  template <index_type Index, class RangeOf>
  [[nodiscard]] task<buffer<Index>> wrong_indices(std::span<const Index> indices, std::span<const std::uint64_t> ends,
                                                  RangeOf range_of) const {
    if (indices.empty()) co_return buffer<Index>();
    host_answer<std::uint32_t> bad(*this, 1);
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); begin = ends[i++]) {
      const index_range range = range_of(i);
      kernel::start_check_indices(indices.data() + begin, ends[i] - begin, range.begin, range.end, bad.data(),
                                  stream());
    }
    co_await bad.written();
    if (bad.data()[0] == 0) co_return buffer<Index>();
    co_return co_await copy_of(indices);
  }
  template <index_type Index>
  [[nodiscard]] task<void> count_below(std::span<const Index> indices, std::span<const std::uint64_t> bounds,
                                       std::span<std::uint64_t> below) {
    host_answer<std::uint64_t> room(*this, 2 * bounds.size()); // the kernel reads each bound once
    std::uint64_t* const positions = std::copy(bounds.begin(), bounds.end(), room.data());
    kernel::start_find_bounds(indices.data(), indices.size(), room.data(), bounds.size(), positions, stream());
    co_await room.written();
    std::copy_n(positions, below.size(), below.data());
  }
  template <kernel::ranked T>
  [[nodiscard]] task<kernel::reached_counts> count_reached(std::span<const T> values,
                                                           std::span<const kernel::magnitude<T>> probes) {
    kernel::magnitude_probes<T> given{.probe = {}, .count = static_cast<unsigned>(probes.size())};
    std::copy(probes.begin(), probes.end(), given.probe);
    if (zeros_.size() == 0) {
      buffer<std::uint64_t> zeros(memory(), kernel::count_words);
      clear(zeros.data(), kernel::count_words * sizeof(std::uint64_t), stream());
      zeros_ = std::move(zeros);
    }
    host_answer<kernel::reached_counts> counts(*this, 1);
    kernel::start_count_reached(values.data(), values.size(), given, counts.data()->data(), zeros_.data(), stream());
    co_await counts.written();
    co_return *counts.data();
  }

  template <kernel::ranked T>
  [[nodiscard]] task<std::uint64_t> count_at_least(std::span<const T> values, kernel::magnitude<T> threshold) {
    const kernel::magnitude<T> probe = std::max<kernel::magnitude<T>>(threshold, 1); // zeros never count
    auto counting = count_reached(values, std::span<const kernel::magnitude<T>>(&probe, 1));
    const kernel::reached_counts reached = co_await std::move(counting);
    co_return reached[1];
  }
  template <kernel::ranked T>
  [[nodiscard]] task<kernel::moments> moments_of(std::span<const T> values) const {
    if (values.empty()) co_return kernel::moments{};
    buffer<kernel::moments> room(memory(), kernel::moments_room(values.size()));
    const auto* const at = kernel::start_moments(values.data(), values.size(), room.data(), stream());
    const kernel::moments of_all = co_await number(at);
    co_return of_all;
  }

 protected:
  /// Returns a copy of `indices` on the host.
  template <class Index>
  [[nodiscard]] task<buffer<Index>> copy_of(std::span<const Index> indices) const {
    buffer<Index> copy(lists(), indices.size());
    co_await download(copy.span(), indices.data());
    co_return copy;
  }

 private:
  buffer<std::uint64_t> zeros_; // the words of `count_reached`, between its kernels
};

} // namespace spar::inline v0_1::detail
