// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The work of a rank on streams whose entries are in device memory (see collective/local/streams.hpp).
#pragma once

#include <spar/core/memory/fixed_vector.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/search.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/pieces.hpp>
#include <spar/cuda/recycled.hpp>
#include <spar/cuda/stream.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/threshold_reuse.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/storage/wire.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::detail {

/// Puts the work of a rank on streams of entries into a stream of a device. The functions that need an answer from the
/// device, such as a number of entries, wait for it; the wait ends without the help of other ranks. The results have
/// the bits of the host's functions, except those of NaN. All functions throw `cuda_error` if CUDA fails. Entries and
/// values are in device memory; the lists of bounds, probes and counts are on the host.
class device_streams {
 public:
  /// What the owner of an object is asked and told.
  struct owner {
    void (*allocates)(void* self) noexcept = nullptr; ///< called before each allocation from CUDA
    void (*waits)(void* self) = nullptr;              ///< waits for the stream; null: the thread sleeps or spins
    void* self = nullptr;
  };

  /// `memory` is device memory, used in the order of the stream; `lists` is memory of the host, and `answers` is
  /// page-locked.
  device_streams(device_stream& order, device_pool& memory, pool& lists, pool& answers, const owner& of)
      : order_(&order), memory_(&memory), lists_(&lists), answers_(&answers), owner_(of) {}
  device_streams(const device_streams&) = delete;

  [[nodiscard]] device_pool& memory() const noexcept { return *memory_; }
  [[nodiscard]] pool& lists() const noexcept { return *lists_; }

  template <element T, index_type Index>
  void write(sparse_stream<T, Index>& to, std::size_t at, const stream_view<T, Index>& v) const {
    copy(to.values().data() + at, v.values());
    if (!v.is_dense()) copy(to.indices().data() + at, v.indices());
  }
  template <element T, index_type Index>
  [[nodiscard]] sparse_stream<T, Index> duplicate(const stream_view<T, Index>& v) const {
    auto out = v.is_dense() ? sparse_stream<T, Index>::dense(*memory_, v.dimension(), v.first(), v.count())
                            : sparse_stream<T, Index>::sparse(*memory_, v.dimension(), v.count());
    write(out, 0, v);
    return out;
  }
  /// Returns a copy of `list` in device memory.
  template <class U>
  [[nodiscard]] buffer<U> upload(std::span<const U> list) {
    buffer<U> out(*memory_, list.size());
    upload(out.data(), list);
    return out;
  }
  /// Starts to copy `list` to device memory.
  template <class U>
  void upload(U* to, std::span<const U> list) {
    if (list.empty()) return;
    pinned_memory::lease host = staging_.take(list.size_bytes(), [this] {
      if (owner_.allocates != nullptr) owner_.allocates(owner_.self);
    });
    std::memcpy(host.data(), list.data(), list.size_bytes());
    start_copy(reinterpret_cast<std::byte*>(to), static_cast<const std::byte*>(host.data()), list.size_bytes(),
               cudaMemcpyHostToDevice, stream());
    host.used_by(stream());
  }
  /// Copies values from device memory to `to`, and waits for them.
  template <class U>
  void download(std::span<U> to, const U* from) const {
    if (to.empty()) return;
    const buffer<U> host = start_download(from, to.size());
    wait();
    std::memcpy(to.data(), host.data(), to.size_bytes());
  }
  /// Returns a copy of the sparse stream `v` in `memory`, which is on the host, and waits for it.
  template <element T, index_type Index>
  [[nodiscard]] sparse_stream<T, Index> to_host(const stream_view<T, Index>& v, pool& memory) const {
    auto out = sparse_stream<T, Index>::sparse(memory, v.dimension(), v.count());
    if (v.count() == 0) return out;
    const buffer<Index> indices = start_download(v.indices().data(), v.count());
    const buffer<T> values = start_download(v.values().data(), v.count());
    wait();
    std::memcpy(out.indices().data(), indices.data(), out.indices().size_bytes());
    std::memcpy(out.values().data(), values.data(), out.values().size_bytes());
    return out;
  }

  // Sums (see storage/merge.hpp).

  template <element T, index_type Index, class Op>
  [[nodiscard]] sparse_stream<T, Index> merge(const stream_view<T, Index>& left, const stream_view<T, Index>& right,
                                              index_range range, std::uint64_t limit, Op op) const {
    const std::uint64_t bound = left.count() + right.count();
    if (left.is_dense() || right.is_dense() || bound > limit) {
      auto out = sparse_stream<T, Index>::dense(*memory_, left.dimension(), range.begin, range.size());
      const stream_view<T, Index> parts[] = {right.is_dense() ? right : left, right.is_dense() ? left : right};
      if (left.is_dense() && right.is_dense())
        kernel::start_combine(left.values().data(), right.values().data(), range.size(), out.values().data(), op,
                              stream());
      else
        reduce_dense(std::span<const stream_view<T, Index>>(parts), range, out.values().data(), op);
      return out;
    }
    auto out = sparse_stream<T, Index>::sparse(*memory_, left.dimension(), bound);
    counter merged(*this, kernel::merge_words<T, Index>(bound));
    kernel::start_merge(coo(left), coo(right), out.indices().data(), out.values().data(), op, merged.count(),
                        merged.words(), stream());
    out.shrink(merged.answer());
    return out;
  }
  template <element T, index_type Index, class Op>
  [[nodiscard]] sparse_stream<T, Index> merge_many(std::span<const stream_view<T, Index>> parts, std::uint64_t n,
                                                   index_range range, Op op) {
    fixed_vector<kernel::device_coo<T, Index>> entries(*lists_, parts.size());
    std::uint64_t bound = 0;
    for (const auto& part : parts) {
      if (part.count() > 0) entries.emplace_back(coo(part));
      bound += part.count();
    }
    auto out = sparse_stream<T, Index>::sparse(*memory_, n, std::min(bound, range.size()));
    if (bound == 0) return out;
    const auto list = upload(std::span<const kernel::device_coo<T, Index>>(entries.span()));
    counter merged(*this, kernel::merge_many_words<T>(entries.size(), range.size()));
    kernel::start_merge_many(list.data(), entries.size(), range.begin, range.end, out.indices().data(),
                             out.values().data(), op, merged.count(), merged.words(), stream());
    out.shrink(merged.answer());
    return out;
  }
  template <element T, index_type Index, class Op>
  void reduce_dense(std::span<const stream_view<T, Index>> parts, index_range range, T* out, Op op) const {
    const auto& first = parts[0];
    std::size_t next = 1;
    if (first.is_dense() && first.count() == range.size()) {
      copy(out, first.values());
    } else {
      kernel::start_fill(out, range.size(), op.template neutral<T>(), stream());
      if (first.is_dense())
        next = 0;
      else // assigns entries: combining with the neutral element changes nothing
        assign(first, range.begin, out);
    }
    for (; next < parts.size(); ++next) {
      const auto& part = parts[next];
      T* const at = part.is_dense() ? out + (part.first() - range.begin) : out;
      if (part.is_dense())
        kernel::start_combine(at, part.values().data(), part.count(), at, op, stream());
      else
        kernel::start_scatter(part.indices().data(), part.values().data(), part.count(), range.begin, out, op,
                              stream());
    }
  }

  // From entries to dense values and back.

  template <element T, index_type Index, class Op>
  [[nodiscard]] sparse_stream<T, Index> to_sparse(const stream_view<T, Index>& v, Op op) const {
    return divide(v, kernel::differs_from<T>{op.template neutral<T>()});
  }
  template <element T, index_type Index>
  void write_dense(const stream_view<T, Index>& v, std::span<T> out, T absent) const {
    if (!v.is_dense() || v.count() < out.size()) kernel::start_fill(out.data(), out.size(), absent, stream());
    if (v.is_dense())
      copy(out.data() + v.first(), v.values());
    else
      assign(v, 0, out.data());
  }

  // Checks and counts.

  template <index_type Index>
  void check_indices(std::span<const Index> indices, index_range range) const {
    const std::uint64_t end = indices.size();
    check_parts(indices, std::span(&end, 1), [&](std::size_t) { return range; });
  }
  /// The same for the parts of a message: part i ends before entry `ends[i]`, and its indices must lie in
  /// `range_of(i)`. Waits once.
  template <index_type Index, class RangeOf>
  void check_parts(std::span<const Index> indices, std::span<const std::uint64_t> ends, const RangeOf& range_of) const {
    const buffer<Index> wrong = wrong_indices(indices, ends, range_of);
    if (wrong.size() > 0) spar::check_parts(wrong.span(), ends, range_of); // says which index is wrong
  }
  /// Returns an empty buffer if the indices are as `check_parts` expects them, otherwise a copy of them on the host.
  template <index_type Index, class RangeOf>
  [[nodiscard]] buffer<Index> wrong_indices(std::span<const Index> indices, std::span<const std::uint64_t> ends,
                                            const RangeOf& range_of) const {
    if (indices.empty()) return {};
    buffer<std::uint32_t> bad(*memory_, 1);
    clear(bad.data(), sizeof(std::uint32_t), stream());
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); begin = ends[i++]) {
      const index_range range = range_of(i);
      kernel::start_check_indices(indices.data() + begin, ends[i] - begin, range.begin, range.end, bad.data(),
                                  stream());
    }
    std::uint32_t found = 0;
    download(std::span(&found, 1), bad.data());
    buffer<Index> wrong(*lists_, found == 0 ? 0 : indices.size());
    download(wrong.span(), indices.data());
    return wrong;
  }
  template <index_type Index>
  void count_below(std::span<const Index> indices, std::span<const std::uint64_t> bounds,
                   std::span<std::uint64_t> below) {
    const auto list = upload(bounds);
    buffer<std::uint64_t> positions(*memory_, bounds.size());
    kernel::start_find_bounds(indices.data(), indices.size(), list.data(), bounds.size(), positions.data(), stream());
    download(below, std::as_const(positions).data());
  }
  /// Sets reached[j] to the number of values that reach exactly j of the ascending `probes`, of which there are at most
  /// 31.
  template <kernel::ranked T>
  void count_reached(std::span<const T> values, std::span<const kernel::magnitude<T>> probes,
                     std::span<std::uint64_t> reached) const {
    kernel::magnitude_probes<T> given{.probe = {}, .count = static_cast<unsigned>(probes.size())};
    std::copy(probes.begin(), probes.end(), given.probe);
    buffer<std::uint64_t> counts(*memory_, 32);
    kernel::start_count_reached(values.data(), values.size(), given, counts.data(), stream());
    download(reached, std::as_const(counts).data());
  }

  // Divisions of a stream.

  /// Keeps the entries above `threshold` and the first `ties` entries at it.
  template <element T, index_type Index>
  void keep_from(sparse_stream<T, Index>& s, kernel::magnitude<T> threshold, std::uint64_t ties) const {
    const kernel::by_cut<T> keep{{.threshold = threshold, .ties = ties, .equal = s.count() + 1}};
    s = divide(std::as_const(s).view(), keep);
  }
  /// Keeps the `k` entries of largest magnitude, and returns the others (see `selector::keep_largest`).
  template <element T, index_type Index>
  [[nodiscard]] sparse_stream<T, Index> keep_largest(sparse_stream<T, Index>& s, std::uint64_t k) const {
    return keep_largest(s, k, nullptr);
  }
  /// Keeps the entries of `s` whose indices are in `listed`, and returns the others.
  template <element T, index_type Index>
  [[nodiscard]] sparse_stream<T, Index> drop_unlisted(sparse_stream<T, Index>& s, std::span<const Index> listed) const {
    sparse_stream<T, Index> dropped;
    s = divide(std::as_const(s).view(), kernel::listed<Index>{listed.data(), listed.size()}, &dropped);
    return dropped;
  }

  // Selections (see selector/selector.hpp). `prepare` puts its work into the stream.

  template <index_type Index, kernel::ranked T, class Prepare>
  [[nodiscard]] sparse_stream<T, Index> select(const selector::exact_topk& by, std::span<T> x, no_state&,
                                               const Prepare& prepare) const {
    prepare(0, x.size());
    kernel::cut<T> where;
    return take_largest<Index>(x, by.bounds(x.size()).k, where);
  }
  template <index_type Index, kernel::ranked T, class Prepare>
  [[nodiscard]] sparse_stream<T, Index> select(const selector::threshold_reuse& by, std::span<T> x,
                                               selector::threshold_reuse::state& now, const Prepare& prepare) {
    prepare(0, x.size());
    const selector::topk_bounds bounds = by.bounds(x.size());
    if (by.reuses(now)) {
      const std::uint64_t room = std::min<std::uint64_t>(bounds.k + bounds.most, x.size());
      auto mine = sparse_stream<T, Index>::sparse(*memory_, x.size(), room);
      counter taken(*this, kernel::take_words(x.size()));
      T* const nothing_added = nullptr;
      kernel::start_take_at_least(nothing_added, x.data(), x.size(), static_cast<kernel::magnitude<T>>(now.threshold),
                                  0, mine.indices().data(), mine.values().data(), room, taken.count(), taken.words(),
                                  stream());
      const std::uint64_t count = taken.answer();
      mine.shrink(std::min(count, room));
      if (by.suits(now.threshold, count, bounds)) {
        ++now.calls;
        if (count > bounds.most) {
          kernel::cut<T> where;
          const auto dropped = keep_largest(mine, bounds.k, &where);
          assign(dropped.view(), 0, x.data());
          now = {where.threshold, 1};
        }
        return mine;
      }
      assign(std::as_const(mine).view(), 0, x.data());
    }
    kernel::cut<T> where;
    auto mine = take_largest<Index>(x, bounds.k, where);
    now = {where.threshold, 1};
    return mine;
  }

  /// A view through which a collective changes the values that a selection has left in `x`.
  template <element T>
  [[nodiscard]] residual_view<T> residual(std::span<T> x) noexcept {
    return {[](void* self, std::span<T> values, const residual_change<T>& what) {
              static_cast<const device_streams*>(self)->change(values.data(), what);
            },
            this, x};
  }
  /// Changes the values at `x`; the arrays of `what` are in device memory.
  template <element T>
  void change(T* x, const residual_change<T>& what) const {
    if (what.index_bytes == sizeof(std::uint64_t))
      change<std::uint64_t>(x, what);
    else
      change<std::uint32_t>(x, what);
  }

 private:
  /// A number of entries that a kernel finds, and the words that the kernel needs, in device memory.
  class counter {
   public:
    counter(const device_streams& at, std::uint64_t words) : at_(&at), memory_(at.memory(), words + 1) {
      clear(count(), sizeof(std::uint64_t), at.stream()); // no kernel starts without entries
    }
    [[nodiscard]] std::uint64_t* count() noexcept { return memory_.data(); }
    [[nodiscard]] std::uint64_t* words() noexcept { return memory_.data() + 1; }
    /// Waits for the number.
    [[nodiscard]] std::uint64_t answer() const {
      std::uint64_t number = 0;
      at_->download(std::span(&number, 1), memory_.data());
      return number;
    }

   private:
    const device_streams* at_;
    buffer<std::uint64_t> memory_;
  };

  [[nodiscard]] cudaStream_t stream() const noexcept { return order_->get(); }

  /// Starts to copy `count` values to page-locked memory, which must not be given back before a `wait`.
  template <class U>
  [[nodiscard]] buffer<U> start_download(const U* from, std::size_t count) const {
    buffer<U> host(*answers_, count);
    start_copy(reinterpret_cast<std::byte*>(host.data()), reinterpret_cast<const std::byte*>(from), count * sizeof(U),
               cudaMemcpyDeviceToHost, stream());
    return host;
  }
  void wait() const {
    if (owner_.waits != nullptr)
      owner_.waits(owner_.self);
    else
      check_cuda(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  }

  template <class T, class Index>
  static kernel::device_coo<T, Index> coo(const stream_view<T, Index>& v) noexcept {
    return {v.indices().data(), v.values().data(), v.count()};
  }
  template <class U>
  void copy(U* to, std::span<const U> from) const {
    start_copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from.data()), from.size_bytes(),
               cudaMemcpyDeviceToDevice, stream());
  }
  template <class T, class Index>
  void assign(const stream_view<T, Index>& entries, std::uint64_t begin, T* to) const {
    kernel::start_scatter_assign(entries.indices().data(), entries.values().data(), entries.count(), begin, to,
                                 stream());
  }

  /// Returns the entries of `v` that `keep` describes, and sets `*others` to all others unless it is null.
  template <class T, class Index, class Keep>
  [[nodiscard]] sparse_stream<T, Index> divide(const stream_view<T, Index>& v, Keep keep,
                                               std::type_identity_t<sparse_stream<T, Index>>* others = nullptr) const {
    auto kept = sparse_stream<T, Index>::sparse(*memory_, v.dimension(), v.count());
    if (others != nullptr) *others = sparse_stream<T, Index>::sparse(*memory_, v.dimension(), v.count());
    if (v.count() == 0) return kept;
    counter number(*this, kernel::partition_words(v.count()));
    kernel::start_partition(coo(v), v.first(), keep, kept.indices().data(), kept.values().data(),
                            others == nullptr ? nullptr : others->indices().data(),
                            others == nullptr ? nullptr : others->values().data(), number.count(), number.words(),
                            stream());
    kept.shrink(number.answer());
    if (others != nullptr) others->shrink(v.count() - kept.count());
    return kept;
  }
  /// Also copies the cut to `*where` unless it is null.
  template <class T, class Index>
  [[nodiscard]] sparse_stream<T, Index> keep_largest(sparse_stream<T, Index>& s, std::uint64_t k,
                                                     std::type_identity_t<kernel::cut<T>>* where) const {
    const auto all = std::as_const(s).view();
    const search<T> found(*this, all.values(), k);
    sparse_stream<T, Index> dropped;
    s = divide(all, kernel::by_cut_at<T>{found.cut()}, &dropped);
    if (where != nullptr) download(std::span(where, 1), found.cut());
    return dropped;
  }
  template <class Index, class T>
  [[nodiscard]] sparse_stream<T, Index> take_largest(std::span<T> x, std::uint64_t k, kernel::cut<T>& where) const {
    auto mine = sparse_stream<T, Index>::sparse(*memory_, x.size(), std::min<std::uint64_t>(k, x.size()));
    if (mine.count() == 0) return mine;
    const search<T> found(*this, x, k);
    counter taken(*this, kernel::take_words(x.size()));
    kernel::start_take_largest(x.data(), x.size(), found.cut(), 0, mine.indices().data(), mine.values().data(),
                               taken.count(), taken.words(), stream());
    download(std::span(&where, 1), found.cut());
    mine.shrink(where.count);
    return mine;
  }
  /// The cut of the `k` largest values, in device memory.
  template <class T>
  class search {
   public:
    search(const device_streams& at, std::span<const T> x, std::uint64_t k)
        : cut_(at.memory(), 1), memory_(at.memory(), kernel::largest_bytes<T>(x.size(), k)) {
      kernel::start_largest(x.data(), x.size(), k, cut_.data(), memory_.data(), at.stream());
    }
    [[nodiscard]] const kernel::cut<T>* cut() const noexcept { return cut_.data(); }

   private:
    buffer<kernel::cut<T>> cut_;
    buffer<std::byte> memory_;
  };

  template <class Index, class T>
  void change(T* x, const residual_change<T>& what) const {
    using kind = typename residual_change<T>::kind;
    const auto* const indices = static_cast<const Index*>(what.indices);
    if (what.what == kind::assign) {
      kernel::start_scatter_assign(indices, what.values, what.count, 0, x, stream());
    } else if (what.what == kind::add) {
      kernel::start_scatter(indices, what.values, what.count, 0, x, sum{}, stream());
    } else if constexpr (std::same_as<T, float>) {
      kernel::start_scatter_difference(indices, what.values, what.decoded, what.count, x + what.begin, stream());
    }
  }

  device_stream* order_;
  device_pool* memory_;
  pool* lists_;
  pool* answers_;
  owner owner_;
  pinned_memory staging_;
};

} // namespace spar::detail
