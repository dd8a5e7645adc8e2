// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The workspace of values in device memory: the work of a rank on them, by kernels of the device.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/cuda/kernel/buckets.cuh>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/values/codecs.cuh>
#include <spar/cuda/values/coded.cuh>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/storage/wire.hpp>
#include <spar/workspace/host_work.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1::detail {

/// The values among which a selection selects, computed on the device before it selects: `sum[i] = residual[i] + x[i]`
/// for i < n, or `x[i]` if `residual` is null. A selection that reads the values once may compute them itself instead.
template <kernel::ranked T>
struct device_sum {
  const T* residual;
  const T* x;
  T* sum;
  std::uint64_t n;
  cudaStream_t stream;

  void operator()(std::size_t, std::size_t) const { kernel::start_add(residual, x, n, sum, stream); }
};

/// The workspace of values in device memory (see `host_work`): puts the work of a rank into the stream of a device. The
/// functions that need an answer from the device, such as a number of entries, are coroutines, which wait for it
/// without the help of other ranks. They put their first work into the stream before they return; await them at once,
/// because they refer to their arguments. The results have the bits of the host's functions, except those of NaN. All
/// functions throw `cuda_error` if CUDA fails. Entries and values are in device memory; the lists of bounds, probes and
/// counts are on the host.
class device_work : public device_entry_codes {
 public:
  template <class T = void>
  using answer = task<T>;
  static constexpr bool checks_later = true;
  static constexpr bool may_lend = true;
  static constexpr bool moves_nonzeros = false;

  using device_entry_codes::device_entry_codes;

  /// Waits for the work, which may still read memory of this object.
  ~device_work() { cudaStreamSynchronize(stream()); }

  /// Whether ranks read messages in each other's memory.
  [[nodiscard]] bool lends() const noexcept { return lends_; }
  void set_lends(bool on) noexcept { lends_ = on; }

  // Lists of messages: the processor reads one that is lent where it is.

  std::span<const std::uint64_t> to_message(std::span<const std::uint64_t> list, buffer<std::uint64_t>& room) {
    if (lends_) return list;
    room = upload(list);
    return std::as_const(room).span();
  }
  [[nodiscard]] task<std::span<const std::uint64_t>> read_list(std::span<const std::uint64_t> piece,
                                                               buffer<std::uint64_t>& room) const {
    if (lends_) co_return piece;
    room = buffer<std::uint64_t>(lists(), piece.size());
    co_await download(room.span(), piece.data());
    co_return std::as_const(room).span();
  }

  // Sums (see storage/merge.hpp).

  template <element T, index_type Index, class Op>
  [[nodiscard]] task<sparse_stream<T, Index>> merge(stream_view<T, Index> left, stream_view<T, Index> right,
                                                    index_range range, std::uint64_t limit, Op op) const {
    const std::uint64_t bound = left.count() + right.count();
    if (left.is_dense() || right.is_dense() || bound > limit) {
      auto out = sparse_stream<T, Index>::dense(memory(), left.dimension(), range.begin, range.size());
      const stream_view<T, Index> parts[] = {right.is_dense() ? right : left, right.is_dense() ? left : right};
      if (left.is_dense() && right.is_dense())
        kernel::start_combine(left.values().data(), right.values().data(), range.size(), out.values().data(), op,
                              stream());
      else
        reduce_dense(std::span<const stream_view<T, Index>>(parts), range, out.values().data(), op);
      co_return out;
    }
    auto out = sparse_stream<T, Index>::sparse(memory(), left.dimension(), bound);
    counter merged(*this, kernel::merge_words<T, Index>(bound));
    kernel::start_merge(coo(left), coo(right), out.indices().data(), out.values().data(), op, merged.data(),
                        merged.words(), stream());
    co_await merged.written();
    const std::uint64_t count = merged.value();
    out.shrink(count);
    co_return out;
  }
  /// Throws `corrupt_message` unless the indices of each part ascend strictly in `range`.
  template <element T, index_type Index, class Op>
  [[nodiscard]] task<sparse_stream<T, Index>> merge_many(std::span<const stream_view<T, Index>> parts, std::uint64_t n,
                                                         index_range range, Op op) {
    fixed_vector<kernel::device_coo<T, Index>> entries(lists(), parts.size());
    std::uint64_t bound = 0;
    for (const auto& part : parts) {
      if (part.count() > 0) entries.emplace_back(coo(part));
      bound += part.count();
    }
    auto out = sparse_stream<T, Index>::sparse(memory(), n, std::min(bound, range.size()));
    if (bound == 0) co_return out;
    const auto list = upload(std::span<const kernel::device_coo<T, Index>>(entries.span()));
    counter merged(*this, kernel::merge_many_words<T>(entries.size(), range.size()));
    kernel::start_merge_many(list.data(), entries.size(), range.begin, range.end, out.indices().data(),
                             out.values().data(), op, merged.data(), merged.flag(), merged.words(), stream());
    co_await merged.written();
    if (*merged.flag() != 0) {
      for (const auto& part : parts) {
        const auto on_host = co_await copy_of(part.indices());
        spar::check_indices(on_host.span(), range); // says which index is wrong
      }
    }
    const std::uint64_t count = merged.value();
    out.shrink(count);
    co_return out;
  }
  template <element T, index_type Index, class Op>
  void reduce_dense(std::span<const stream_view<T, Index>> parts, index_range range, T* out, Op op) const {
    const auto& first = parts[0];
    std::size_t next = 1;
    if (!first.is_dense()) {
      write_entries(first, range.begin, out, range.size(), op.template neutral<T>());
    } else if (first.count() == range.size()) {
      copy(out, first.values());
    } else {
      kernel::start_fill(out, range.size(), op.template neutral<T>(), stream());
      next = 0;
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

  template <element T, index_type Index>
  void assign(const stream_view<T, Index>& v, std::uint64_t begin, T* to) const {
    kernel::start_scatter_assign(v.indices().data(), v.values().data(), v.count(), begin, to, stream());
  }
  template <element T, index_type Index>
  void gather(std::span<const T> x, std::span<const Index> indices, T* out) const {
    kernel::start_gather(x.data(), indices.data(), indices.size(), out, stream());
  }
  template <element T, index_type Index, class Op>
  [[nodiscard]] task<sparse_stream<T, Index>> to_sparse(const stream_view<T, Index>& v, Op op) const {
    auto out = sparse_stream<T, Index>::sparse(memory(), v.dimension(), v.count());
    if (v.count() == 0) co_return out;
    counter found(*this, kernel::differing_words(v.count()));
    kernel::start_copy_differing(coo(v), v.first(), op.template neutral<T>(), out.indices().data(), out.values().data(),
                                 found.data(), found.words(), stream());
    co_await found.written();
    const std::uint64_t count = found.value();
    out.shrink(count);
    co_return out;
  }
  template <element T, index_type Index, class Op>
  void write_dense(const stream_view<T, Index>& v, std::span<T> out, Op op) const {
    write_values(v, out, op.template neutral<T>());
  }
  /// The same with `absent` at every index without an entry.
  template <element T, index_type Index>
  void write_values(const stream_view<T, Index>& v, std::span<T> out, T absent) const {
    if (!v.is_dense()) return write_entries(v, 0, out.data(), out.size(), absent);
    if (v.count() < out.size()) kernel::start_fill(out.data(), out.size(), absent, stream());
    copy(out.data() + v.first(), v.values());
  }

  // Codecs.

  /// Whether the codec can encode the values.
  template <class Codec, class T>
  [[nodiscard]] task<bool> can_encode(const Codec& codec, std::span<const T> x) const {
    const auto by = [&](const auto& chosen) { return can_encode(chosen, x); };
    if constexpr (requires { device_codec<Codec>::template visit<T>(codec, by); })
      return device_codec<Codec>::template visit<T>(codec, by);
    else
      return carries_all(codec, x);
  }
  /// Encodes `x` to `out`. Returns false if the codec cannot encode the values; `out` is then unspecified.
  template <class Codec, class T>
  [[nodiscard]] task<bool> encode(const Codec& codec, std::span<const T> x, std::span<std::byte> out,
                                  block_position at) const {
    const auto by = [&](const auto& chosen) { return encode(chosen, x, out, at); };
    if constexpr (requires { device_codec<Codec>::template visit<T>(codec, by); })
      return device_codec<Codec>::template visit<T>(codec, by);
    else
      return encode_all(codec, x, out, at);
  }

  // Divisions of a stream.

  template <element T, index_type Index, class Ownership>
  [[nodiscard]] task<owners_slices<T, Index, Ownership>> slices(stream_view<T, Index> whole, Ownership owner,
                                                                rank_t ranks) {
    buffer<std::uint64_t> cuts;
    if (!whole.is_dense()) {
      buffer<std::uint64_t> bounds(lists(), 2 * static_cast<std::size_t>(ranks));
      std::uint64_t* next = bounds.data();
      for (rank_t r = 0; r < ranks; ++r) {
        const index_range range = owner[r];
        *next++ = range.begin;
        *next++ = range.end;
      }
      cuts = buffer<std::uint64_t>(lists(), bounds.size());
      co_await count_below(whole.indices(), std::as_const(bounds).span(), cuts.span());
    }
    co_return owners_slices<T, Index, Ownership>(whole, owner, std::move(cuts));
  }
  template <element T, index_type Index>
  void put_back_unlisted(const sparse_stream<T, Index>& mine, std::span<const Index> listed, residual_view<T> x) const {
    x.assign_unlisted(mine.view().entries(), listed);
  }
  /// Keeps the entries above `threshold` and the first `ties` entries at it.
  template <element T, index_type Index>
  [[nodiscard]] task<void> keep_from(sparse_stream<T, Index>& s, kernel::magnitude<T> threshold,
                                     std::uint64_t ties) const {
    const kernel::by_cut<T> keep{{.threshold = threshold, .ties = ties, .equal = s.count() + 1}};
    s = co_await divide(std::as_const(s).view(), keep);
  }
  template <element T, index_type Index>
  [[nodiscard]] task<sparse_stream<T, Index>> keep_largest(sparse_stream<T, Index>& s, std::uint64_t k,
                                                           kernel::magnitude<T>* least = nullptr) const {
    const auto all = std::as_const(s).view();
    const search<T> found(*this, all.values(), k);
    const kernel::by_cut_at<T> keep{found.cut()};
    sparse_stream<T, Index> dropped;
    s = co_await divide(all, keep, &dropped);
    if (least != nullptr) {
      const kernel::cut<T> cut = co_await number(found.cut());
      *least = cut.threshold;
    }
    co_return dropped;
  }

  // Selections. `prepare` puts its work into the stream.

  template <class Prepare>
  static void prepare_all(const Prepare& prepare, std::size_t n, int) {
    prepare(0, n);
  }
  template <index_type Index, kernel::ranked T, class Prepare>
  [[nodiscard]] task<sparse_stream<T, Index>> take_at_least(std::span<T> x, kernel::magnitude<T> threshold,
                                                            std::uint64_t room, const Prepare& prepare, int = 1,
                                                            std::uint64_t* reached = nullptr) const {
    room = std::min<std::uint64_t>(room, x.size());
    auto mine = sparse_stream<T, Index>::sparse(memory(), x.size(), room);
    counter taken(*this, kernel::take_words(x.size()));
    const device_sum<T> from = sum_before(prepare, x);
    kernel::start_take_at_least(from.residual, from.x, x.data(), x.size(), threshold, 0, mine.indices().data(),
                                mine.values().data(), room, taken.data(), taken.words(), stream());
    co_await taken.written();
    const std::uint64_t count = taken.value();
    if (reached != nullptr) *reached = count;
    mine.shrink(std::min(count, room));
    co_return mine;
  }
  template <index_type Index, kernel::ranked T>
  [[nodiscard]] task<sparse_stream<T, Index>> take_largest(std::span<T> x, std::uint64_t k, int = 1,
                                                           kernel::magnitude<T>* least = nullptr,
                                                           std::uint64_t room = 0) const {
    kernel::cut<T> cut;
    auto mine =
        sparse_stream<T, Index>::sparse(memory(), x.size(), std::min<std::uint64_t>(std::max(k, room), x.size()));
    if (k > 0 && mine.count() > 0) {
      buffer<kernel::cut<T>> found(memory(), 1);
      buffer<std::byte> work(memory(), kernel::topk_bytes<T, Index>(x.size(), k));
      kernel::start_topk(x.data(), x.size(), k, 0, mine.indices().data(), mine.values().data(), found.data(),
                         work.data(), stream());
      cut = co_await number(std::as_const(found).data());
    }
    mine.shrink(cut.count);
    if (least != nullptr) *least = cut.threshold;
    co_return mine;
  }
  /// Moves the `k` largest values of each `bucket` consecutive ones to a stream, which has at most `room` entries.
  template <index_type Index, kernel::ranked T>
  [[nodiscard]] task<sparse_stream<T, Index>> take_from_buckets(std::span<T> x, std::uint64_t bucket, std::uint64_t k,
                                                                std::uint64_t room) const {
    auto mine = sparse_stream<T, Index>::sparse(memory(), x.size(), room);
    counter taken(*this, kernel::bucket_words(x.size(), bucket));
    kernel::start_take_from_buckets(x.data(), x.size(), bucket, k, mine.indices().data(), mine.values().data(),
                                    taken.data(), taken.words(), stream());
    co_await taken.written();
    const std::uint64_t count = taken.value();
    mine.shrink(count);
    co_return mine;
  }
  template <kernel::ranked T>
  [[nodiscard]] task<kernel::magnitude<T>> kth_largest(std::span<const T> values, std::uint64_t k) const {
    const search<T> found(*this, values, k);
    const kernel::cut<T> cut = co_await number(found.cut());
    co_return cut.threshold;
  }
  template <element T, index_type Index>
  static void validate(const stream_view<T, Index>&) noexcept {}

  /// A view through which a collective changes the values that a selection has left in `x`.
  template <element T>
  [[nodiscard]] residual_view<T> residual(std::span<T> x) noexcept {
    return {[](void* self, std::span<T> values, const residual_change<T>& what) {
              static_cast<const device_work*>(self)->change(values.data(), what);
            },
            this, x};
  }
  /// Starts a kernel that applies the change `what`, whose arrays are in device memory, to the values at `x`.
  template <element T>
  void change(T* x, const residual_change<T>& what) const {
    if (what.index_bytes == sizeof(std::uint64_t))
      change<std::uint64_t>(x, what);
    else
      change<std::uint32_t>(x, what);
  }

 private:
  /// A number of entries that a kernel finds, and a flag, on the host, and the words that the kernel needs, in device
  /// memory. The number is 0 if no kernel starts, because there are no entries.
  class counter : public host_answer<std::uint64_t> {
   public:
    counter(const device_work& at, std::uint64_t words) : host_answer(at, 2), words_(at.memory(), words) {}
    [[nodiscard]] std::uint64_t* words() noexcept { return words_.data(); }
    [[nodiscard]] std::uint64_t value() noexcept { return *data(); }
    [[nodiscard]] std::uint64_t* flag() noexcept { return data() + 1; }

   private:
    buffer<std::uint64_t> words_;
  };

  template <class T, class Index>
  static kernel::device_coo<T, Index> coo(const stream_view<T, Index>& v) noexcept {
    return {v.indices().data(), v.values().data(), v.count()};
  }
  /// Writes all `count` values at `to`, of which the first has the index `begin`: the entries, and `absent` elsewhere.
  template <class T, class Index>
  void write_entries(const stream_view<T, Index>& entries, std::uint64_t begin, T* to, std::uint64_t count,
                     T absent) const {
    kernel::start_write_entries(entries.indices().data(), entries.values().data(), entries.count(), begin, to, count,
                                absent, stream());
  }

  template <class T>
  static device_sum<T> sum_before(const device_sum<T>& prepare, std::span<T>) noexcept {
    return prepare;
  }
  template <class T, class Prepare>
  device_sum<T> sum_before(const Prepare& prepare, std::span<T> x) const {
    prepare(0, x.size());
    return {nullptr, x.data(), x.data(), x.size(), stream()};
  }

  template <class Codec, class T>
  [[nodiscard]] task<bool> carries_all(Codec codec, std::span<const T> x) const {
    if constexpr (requires { typename device_codec<Codec>::refuses; }) {
      if (x.empty()) co_return true;
      host_answer<std::uint32_t> refused(*this, 1);
      kernel::start_find_any(x.data(), x.size(), refused.data(), typename device_codec<Codec>::refuses{}, stream());
      co_await refused.written();
      if (refused.data()[0] == 0) co_return true;
      device_codec<Codec>::refuse(codec, x.size());
      co_return false;
    } else {
      co_return true;
    }
  }
  template <class Codec, class T>
  [[nodiscard]] task<bool> encode_all(Codec codec, std::span<const T> x, std::span<std::byte> out,
                                      block_position at) const {
    if constexpr (encodes_or_refuses<Codec, T>) {
      if (x.empty()) co_return true;
      host_answer<std::uint32_t> refused(*this, 1);
      device_codec<Codec>::encode(codec, x, out.data(), at, stream(), refused.data());
      co_await refused.written();
      if (refused.data()[0] == 0) co_return true;
      device_codec<Codec>::refuse(codec, x.size());
      co_return false;
    } else {
      const bool carried = co_await carries_all(codec, x);
      if (carried) device_codec<Codec>::encode(codec, x, out.data(), at, stream());
      co_return carried;
    }
  }

  /// Returns the entries of `v` that `keep` describes, and sets `*others` to all others unless it is null.
  template <class T, class Index, class Keep>
  [[nodiscard]] task<sparse_stream<T, Index>>
  divide(stream_view<T, Index> v, Keep keep, std::type_identity_t<sparse_stream<T, Index>>* others = nullptr) const {
    auto kept = sparse_stream<T, Index>::sparse(memory(), v.dimension(), v.count());
    if (others != nullptr) *others = sparse_stream<T, Index>::sparse(memory(), v.dimension(), v.count());
    if (v.count() == 0) co_return kept;
    counter found(*this, kernel::partition_words(v.count()));
    kernel::start_partition(coo(v), v.first(), keep, kept.indices().data(), kept.values().data(),
                            others == nullptr ? nullptr : others->indices().data(),
                            others == nullptr ? nullptr : others->values().data(), found.data(), found.words(),
                            stream());
    co_await found.written();
    const std::uint64_t count = found.value();
    kept.shrink(count);
    if (others != nullptr) others->shrink(v.count() - count);
    co_return kept;
  }
  /// The cut of the `k` largest values, in device memory.
  template <class T>
  class search {
   public:
    search(const device_work& at, std::span<const T> x, std::uint64_t k)
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
    } else if (what.what == kind::assign_unlisted) {
      kernel::start_assign_unlisted(indices, what.values, what.count, static_cast<const Index*>(what.listed),
                                    what.listed_count, x, stream());
    } else if (what.what == kind::add) {
      kernel::start_scatter(indices, what.values, what.count, 0, x, sum{}, stream());
    } else if constexpr (std::floating_point<T>) {
      kernel::start_scatter_difference(indices, what.values, what.decoded, what.count, x + what.begin, stream());
    } else {
      spar::ensure(false, "a schedule adds rounding errors to a residual of integers on the device");
    }
  }

  bool lends_ = false;
};

} // namespace spar::inline v0_1::detail
