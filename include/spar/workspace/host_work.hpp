// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The workspace of values in host memory: the work of a rank on them, by kernels of the processor, and what the
// functions of this workspace return.
#pragma once

#include <spar/core/index_range.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/op.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/runtime/tasks/scheduler.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/gathered.hpp>
#include <spar/storage/keep_largest.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/kernel/in_parts.hpp>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/moments.hpp>
#include <spar/storage/kernel/reached.hpp>
#include <spar/storage/kernel/slice.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/storage/wire.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

/// An awaitable that has its result already, so that `co_await` does not suspend.
template <class T = void>
class [[nodiscard]] ready {
 public:
  /// Holds `result`.
  explicit ready(T result) noexcept : result_(std::move(result)) {}
  /// Constructs the result in place: `make()` returns it.
  template <class Make>
  [[nodiscard]] static ready from(Make&& make) {
    return ready(0, make);
  }
  [[nodiscard]] static constexpr bool await_ready() noexcept { return true; }
  static void await_suspend(std::coroutine_handle<>) noexcept {}
  [[nodiscard]] T&& await_resume() noexcept { return std::move(result_); }
  /// The result, for functions that are no coroutines because they never run on a device.
  [[nodiscard]] T get() && noexcept { return std::move(result_); }

 private:
  template <class Make>
  ready(int, Make& make) : result_(make()) {}

  T result_;
};
/// The same without a result.
template <>
class [[nodiscard]] ready<void> {
 public:
  [[nodiscard]] static constexpr bool await_ready() noexcept { return true; }
  static void await_suspend(std::coroutine_handle<>) noexcept {}
  static void await_resume() noexcept {}
  /// Does nothing.
  static void get() noexcept {}
};

/// The slices of a stream that belong to the owners of its indices (see `host_work::slices`). `Ownership` is any type
/// whose `owner[r]` is the range of the indices of rank r.
template <element T, index_type Index, class Ownership>
class owners_slices {
 public:
  /// Slices of `whole` by the ownership `owner` that are found when they are asked for.
  owners_slices(const stream_view<T, Index>& whole, const Ownership& owner) : whole_(whole), owner_(owner) {}
  /// Slices of the sparse stream `whole` by the ownership `owner`: that of the rank r has the entries from cuts[2 r] to
  /// cuts[2 r + 1] - 1.
  owners_slices(const stream_view<T, Index>& whole, const Ownership& owner, buffer<std::uint64_t> cuts)
      : whole_(whole), owner_(owner), cuts_(std::move(cuts)) {}

  /// The slice of the rank r.
  [[nodiscard]] stream_view<T, Index> operator[](rank_t r) const noexcept {
    if (cuts_.size() == 0) return whole_.slice(owner_[r].begin, owner_[r].end);
    const auto b = static_cast<std::size_t>(r);
    return whole_.entries_from(cuts_.span()[2 * b], cuts_.span()[2 * b + 1]);
  }

 private:
  stream_view<T, Index> whole_;
  Ownership owner_;
  buffer<std::uint64_t> cuts_;
};

/// A workspace is the place of a rank's values in a call, and the work on them: this class for host memory, or one with
/// the same members for other memory, such as that of a device (see `channel::work`). The functions that return an
/// `answer` may have to wait for a number or a check there; here they return it at once. Await an answer at once,
/// because it may refer to the arguments of its function. All other functions of a device only start their work.
class host_work {
 public:
  /// What a function returns whose result is a T.
  template <class T = void>
  using answer = ready<T>;
  /// Whether the indices of messages are checked after they have been read, with the other work on them, and not as
  /// soon as they arrive. A schedule then calls `check_indices` or `check_parts` before it uses the indices.
  static constexpr bool checks_later = false;
  /// Whether ranks may read messages in each other's memory (see `lends` of a device), where short messages gain
  /// nothing.
  static constexpr bool may_lend = false;
  /// Whether the kernels that move all nonzeros work here.
  static constexpr bool moves_nonzeros = true;

  /// The workspace of the rank whose coroutines `scheduler` resumes, and from whose pool it allocates.
  explicit host_work(spar::scheduler& scheduler) noexcept : scheduler_(&scheduler) {}
  /// The scheduler of coroutines that get this workspace.
  [[nodiscard]] spar::scheduler& scheduler() const noexcept { return *scheduler_; }

  // Memory, and copies.

  /// Memory for values, entries and the payloads of messages.
  [[nodiscard]] pool& memory() const noexcept { return scheduler_->memory(); }
  /// Memory for lists, which are always on the host.
  [[nodiscard]] pool& lists() const noexcept { return memory(); }

  /// Copies `from`, for example the values of a message, to `to`.
  static void copy(std::byte* to, std::span<const std::byte> from) {
    kernel::detail::copy(to, from.data(), from.size());
  }
  /// Copies values of `from`.
  template <element T>
  static void copy(T* to, std::span<const T> from) {
    copy(reinterpret_cast<std::byte*>(to), std::as_bytes(from));
  }
  /// Sets all values of `x` to `value`.
  template <element T>
  static void fill(std::span<T> x, T value) {
    kernel::detail::fill(x.data(), x.size(), value);
  }
  /// Returns a copy of `v`.
  template <element T, index_type Index>
  [[nodiscard]] sparse_stream<T, Index> duplicate(const stream_view<T, Index>& v) const {
    return sparse_stream<T, Index>::copy(memory(), v);
  }
  /// Overwrites the entries `at`, `at` + 1, and so on of `to` with the entries of `v`.
  template <element T, index_type Index>
  static void write(sparse_stream<T, Index>& to, std::size_t at, const stream_view<T, Index>& v) noexcept {
    to.write(at, v);
  }
  /// Overwrites the entries of `to` with those of the sparse streams `from`, one after the other.
  template <element T, index_type Index>
  static void write_pieces(sparse_stream<T, Index>& to, std::span<const stream_view<T, Index>> from) noexcept {
    std::size_t at = 0;
    for (const auto& v : from) {
      to.write(at, v);
      at += v.count();
    }
  }
  /// Returns `list` as a piece of a message, whose other pieces are entries. May make the piece in `room`, which must
  /// then outlive the message.
  static std::span<const std::uint64_t> to_message(std::span<const std::uint64_t> list,
                                                   buffer<std::uint64_t>&) noexcept {
    return list;
  }
  /// Returns the list that `piece` of a received message contains. May copy the list to `room`.
  static answer<std::span<const std::uint64_t>> read_list(std::span<const std::uint64_t> piece,
                                                          buffer<std::uint64_t>&) noexcept {
    return ready<std::span<const std::uint64_t>>(piece);
  }

  // Dense values.

  /// Computes `inout[e] = op(inout[e], right[e])` for all e.
  template <element T, reduction<T> Op>
  static void reduce(std::span<T> inout, const T* right, Op op) {
    kernel::reduce(inout.data(), right, inout.size(), op);
  }
  /// Computes `inout[e] = op(left[e], inout[e])` for all e.
  template <element T, reduction<T> Op>
  static void reduce_left(std::span<T> inout, const T* left, Op op) {
    kernel::reduce_left(inout.data(), left, inout.size(), op);
  }
  /// Replaces each value of `x` by `op.finalize(value, ranks)`.
  template <element T, class Op>
  static void finalize(std::span<T> x, Op op, rank_t ranks) {
    for (T& value : x) value = op.finalize(value, ranks);
  }

  // Sums of streams (see storage/merge.hpp).

  /// Returns `op` applied to the streams `left` and `right`, whose indices lie in `range`. The result turns dense if it
  /// has more than `limit` entries.
  template <element T, index_type Index, reduction<T> Op>
  [[nodiscard]] answer<sparse_stream<T, Index>> merge(const stream_view<T, Index>& left,
                                                      const stream_view<T, Index>& right, index_range range,
                                                      std::uint64_t limit, Op op) const {
    return ready<sparse_stream<T, Index>>::from([&] { return spar::merge(left, right, range, limit, op, memory()); });
  }
  /// Reduces sparse `parts` from left to right. If this workspace `checks_later`, throws `corrupt_message` unless the
  /// indices of each part ascend strictly in `range`; otherwise, they must.
  template <element T, index_type Index, reduction<T> Op>
  [[nodiscard]] answer<sparse_stream<T, Index>> merge_many(std::span<const stream_view<T, Index>> parts,
                                                           std::uint64_t n, index_range range, Op op) const {
    return ready<sparse_stream<T, Index>>::from([&] { return spar::merge_many(parts, n, range, op, memory()); });
  }
  /// Reduces `parts` from left to right, and writes the dense values of `range` to `values`.
  template <element T, index_type Index, reduction<T> Op>
  static void reduce_dense(std::span<const stream_view<T, Index>> parts, index_range range, T* values, Op op) {
    spar::reduce_dense(parts, range, values, op);
  }

  // From entries to dense values and back.

  /// Stores the entries of the sparse stream `v` in the dense values at `to`, of which the first has the index `begin`.
  template <element T, index_type Index>
  static void assign(const stream_view<T, Index>& v, std::uint64_t begin, T* to) {
    kernel::scatter_assign(v.entries(), begin, to);
  }
  /// Copies the values of `x` at `indices`, one after the other, to `out`.
  template <element T, index_type Index>
  static void gather(std::span<const T> x, std::span<const Index> indices, T* out) {
    kernel::gather(x.data(), indices.data(), indices.size(), out);
  }
  /// Returns the entries of `v` that differ from the neutral element of `op`, as a sparse stream.
  template <element T, index_type Index, reduction<T> Op>
  [[nodiscard]] answer<sparse_stream<T, Index>> to_sparse(const stream_view<T, Index>& v, Op op) const {
    return ready<sparse_stream<T, Index>>::from([&] { return spar::to_sparse(v, op, memory()); });
  }
  /// Writes all values of `v` to `out`, which has room for them, with the neutral element of `op` at every index
  /// without an entry.
  template <element T, index_type Index, reduction<T> Op>
  static void write_dense(const stream_view<T, Index>& v, std::span<T> out, Op op) {
    v.to_dense(out, op);
  }

  // Divisions of a stream.

  /// Returns the slices of `whole` that belong to the owners of its indices by `owner`; the last argument is the number
  /// of owners.
  template <element T, index_type Index, class Ownership>
  static answer<owners_slices<T, Index, Ownership>> slices(const stream_view<T, Index>& whole, const Ownership& owner,
                                                           rank_t) {
    return ready(owners_slices<T, Index, Ownership>(whole, owner));
  }
  /// Keeps the `k` entries of largest magnitude in `s`, and returns all other entries (see `spar::keep_largest`).
  /// Writes the smallest magnitude that is kept to `least` unless it is null.
  template <kernel::ranked T, index_type Index>
  [[nodiscard]] answer<sparse_stream<T, Index>> keep_largest(sparse_stream<T, Index>& s, std::uint64_t k,
                                                             kernel::magnitude<T>* least = nullptr) const {
    return ready<sparse_stream<T, Index>>::from([&] { return spar::keep_largest(s, k, memory(), least); });
  }
  /// Keeps only the entries above the magnitude `threshold` and the first `ties` entries at it, in their old order.
  template <element T, index_type Index>
  static answer<> keep_from(sparse_stream<T, Index>& s, kernel::magnitude<T> threshold, std::uint64_t ties) {
    s.shrink(kernel::keep_from(s.indices().data(), s.values(), threshold, ties));
    return {};
  }
  /// Moves the entries of `mine` whose indices are not in `listed`, which ascend, back to the residual `x`. The others
  /// stay in `mine`; on a device all stay, because their number would be needed on the host.
  template <element T, index_type Index>
  void put_back_unlisted(sparse_stream<T, Index>& mine, std::span<const Index> listed, residual_view<T> x) const {
    auto dropped = sparse_stream<T, Index>::sparse(memory(), mine.dimension(), mine.count());
    Index* const indices = mine.indices().data();
    T* const values = mine.values().data();
    Index* const lost_indices = dropped.indices().data();
    T* const lost_values = dropped.values().data();
    const std::size_t count = mine.count();
    std::size_t kept = 0;
    std::size_t lost = 0;
    std::size_t w = 0;
    std::size_t e = 0;
    while (e < count &&
           w < listed.size()) { // each step advances by one index in `mine`, in `listed` or in both, without branches
      const Index own = indices[e];
      const T value = values[e];
      const Index winner = listed[w];
      lost_indices[lost] = own;
      lost_values[lost] = value;
      lost += static_cast<std::size_t>(own < winner);
      indices[kept] = own;
      values[kept] = value;
      kept += static_cast<std::size_t>(own == winner);
      e += static_cast<std::size_t>(own <= winner);
      w += static_cast<std::size_t>(winner <= own);
    }
    const coo_span<T, Index> behind{{indices + e, count - e}, {values + e, count - e}};
    x.assign(coo_span<T, Index>{{lost_indices, lost}, {lost_values, lost}});
    x.assign(behind);
    mine.shrink(kept);
  }

  // Checks and counts.

  /// Throws `corrupt_message` unless the `indices` of a received stream ascend strictly inside `range`.
  template <index_type Index>
  static answer<> check_indices(std::span<const Index> indices, index_range range) {
    spar::check_indices(indices, range);
    return {};
  }
  /// The same for the `indices` of the streams of one message, which have the `ends` and lie in the ranges `range_of`
  /// (see `spar::check_parts`).
  template <index_type Index, class RangeOf>
  static answer<> check_parts(std::span<const Index> indices, std::span<const std::uint64_t> ends,
                              const RangeOf& range_of) {
    spar::check_parts(indices, ends, range_of);
    return {};
  }
  /// Sets `below[b]` to the number of the ascending `indices` that are less than `bounds[b]`, for all b.
  template <index_type Index>
  static answer<> count_below(std::span<const Index> indices, std::span<const std::uint64_t> bounds,
                              std::span<std::uint64_t> below) {
    for (std::size_t b = 0; b < bounds.size(); ++b) below[b] = kernel::lower_bound(indices, bounds[b]);
    return {};
  }
  /// Returns in element j > 0 the number of values that reach exactly j of the ascending `probes`, of which there are
  /// 1, 2 or 31.
  template <element T>
  static answer<kernel::reached_counts> count_reached(std::span<const T> values,
                                                      std::span<const kernel::magnitude<T>> probes) {
    return ready(kernel::count_reached(values, probes));
  }

  /// Returns the number of nonzero values whose magnitude is at least `threshold`.
  template <kernel::ranked T>
  static answer<std::uint64_t> count_at_least(std::span<const T> values, kernel::magnitude<T> threshold) {
    return ready<std::uint64_t>(kernel::count_at_least(values.data(), values.size(), threshold));
  }
  /// Returns the `k`-th largest magnitude of the values, or the smallest of the nonzeros if there are fewer.
  template <kernel::ranked T>
  [[nodiscard]] answer<kernel::magnitude<T>> kth_largest(std::span<const T> values, std::uint64_t k) const {
    return ready<kernel::magnitude<T>>(kernel::largest<T>(values, k, memory()).threshold);
  }
  /// Returns the number, the sum and the sum of the squares of the finite values.
  template <kernel::ranked T>
  static answer<kernel::moments> moments_of(std::span<const T> values) {
    return ready(kernel::moments_of(values));
  }

  // Codecs of streams.

  /// Encodes `entries`, whose indices lie in `range`, by `codec` to `out`, which has room for the `bound` of the codec.
  /// Returns the number of bytes.
  template <class Codec, element T, index_type Index>
  static auto encode_entries(const Codec& codec, coo_span<T, Index> entries, index_range range,
                             std::span<std::byte> out) {
    return ready(codec.encode(entries, range, out));
  }
  /// Decodes the entries in the bytes `in`, whose indices must lie in `range`, by `codec` to `to`. Throws
  /// `corrupt_message` as the codec does.
  template <class Codec, element T, index_type Index>
  static answer<> decode_entries(const Codec& codec, std::span<const std::byte> in, index_range range,
                                 entry_room<T, Index> to) {
    codec.decode(in, range, to);
    return {};
  }

  // Codecs of blocks of dense values.

  /// Returns whether `codec` can encode `x`.
  template <class Codec, element T>
  static answer<bool> can_encode(const Codec& codec, std::span<const T> x) {
    return ready(spar::detail::can_encode(codec, x));
  }
  /// Encodes `x` to `out`. Returns false if the codec cannot encode the values; `out` is then unspecified.
  template <class Codec, element T>
  static answer<bool> encode(const Codec& codec, std::span<const T> x, std::span<std::byte> out, block_position at) {
    if (!spar::detail::can_encode(codec, x)) return ready(false);
    codec.encode(x, out, at);
    return ready(true);
  }
  /// Decodes `in` by `codec` to `out`.
  template <class Codec, element T>
  static void decode(const Codec& codec, std::span<const std::byte> in, std::span<T> out) {
    codec.decode(in, out);
  }

  /// Replaces each value of `inout` by op(decoded, value), where `in` is decoded by `codec`, in one pass. Returns
  /// false, and does nothing, if there is no such pass.
  template <class Codec, element T, reduction<T> Op>
  static constexpr bool reduce_left(const Codec& codec, std::span<const std::byte> in, std::span<T> inout, Op) {
    const auto by = [&](const auto& chosen) {
      constexpr bool one_pass = spar::detail::adds<Op> && requires { chosen.decode_and_add(in, inout); };
      if constexpr (one_pass) chosen.decode_and_add(in, inout);
      return one_pass;
    };
    if constexpr (requires { codec.template visit<T>(by); })
      return codec.template visit<T>(by);
    else
      return by(codec);
  }

  // Selections (see selector/selector.hpp), which up to `threads` threads of the processor share.

  /// Calls `prepare` for all `n` values, on up to `threads` threads.
  template <class Prepare>
  static void prepare_all(const Prepare& prepare, std::size_t n, int threads) {
    static_assert(std::is_nothrow_invocable_v<const Prepare&, std::size_t, std::size_t>);
    const int sharing = detail::useful_threads(threads, n);
    detail::in_parallel(0, sharing, [&](int part) {
      prepare(detail::part_begin(n, part, sharing), detail::part_begin(n, part + 1, sharing));
    });
  }
  /// Moves the nonzero values of `x` whose magnitude is at least `threshold` to a stream, after `prepare` has computed
  /// them. If there are more than `room`, moves some of them. Writes the number of these values to `reached` unless it
  /// is null: a number above `room` if there are more. Uses up to `threads` threads.
  template <index_type Index, kernel::ranked T, class Prepare>
  answer<sparse_stream<T, Index>> take_at_least(std::span<T> x, kernel::magnitude<T> threshold, std::uint64_t room,
                                                const Prepare& prepare, int threads = 1,
                                                std::uint64_t* reached = nullptr) const {
    static_assert(std::is_nothrow_invocable_v<const Prepare&, std::size_t, std::size_t>);
    const std::size_t n = x.size();
    const int sharing = detail::useful_threads(threads, n);
    const std::size_t of_part = kernel::part_room(std::min<std::uint64_t>(room, n), n, sharing);
    return ready<sparse_stream<T, Index>>::from([&] {
      auto mine = sparse_stream<T, Index>::sparse(memory(), n, static_cast<std::size_t>(sharing) * of_part);
      const auto pass = [&](std::size_t begin, std::size_t end, Index* indices, T* values) {
        return take_part(x.data(), begin, end, threshold, indices, values, of_part, prepare);
      };
      const kernel::taken taken =
          kernel::in_parts(sharing, n, of_part, pass, mine.indices().data(), mine.values().data());
      if (reached != nullptr) *reached = taken.seen == n ? taken.count : room + 1;
      mine.shrink(taken.count);
      return mine;
    });
  }
  /// Moves the `k` values of `x` of largest magnitude, on up to `threads` threads, or all nonzeros if there are fewer
  /// than k, to a stream. Among equal magnitudes, moves those with the lowest indices. Writes the k-th largest
  /// magnitude to `least` unless it is null. The stream takes as much memory as one of max(k, room) entries, whatever
  /// the values are. Calls that also use `take_at_least` then take the same memory each time.
  template <index_type Index, kernel::ranked T>
  answer<sparse_stream<T, Index>> take_largest(std::span<T> x, std::uint64_t k, int threads = 1,
                                               kernel::magnitude<T>* least = nullptr, std::uint64_t room = 0) const {
    const int sharing = detail::useful_threads(threads, x.size());
    const auto most = std::min<std::uint64_t>(std::max(k, room), x.size());
    const std::size_t entries = static_cast<std::size_t>(sharing) * kernel::part_room(most, x.size(), sharing);
    return ready<sparse_stream<T, Index>>::from([&] {
      auto mine = sparse_stream<T, Index>::sparse(memory(), x.size(), entries); // takes its memory before the search
      const auto where = kernel::largest<T>(x, k, memory(), sharing);
      if (least != nullptr) *least = where.threshold;
      mine.shrink(kernel::take_largest(x, where, 0, mine.indices().data(), mine.values().data(), sharing));
      return mine;
    });
  }
  /// Throws `invalid_argument` unless the stream `v` that a selector returns is well-formed. A device, where only
  /// kernels make streams, does nothing.
  template <element T, index_type Index>
  static void validate(const stream_view<T, Index>& v) {
    spar::validate(v);
  }
  /// The values that a selection leaves in `x`, as a residual.
  template <element T>
  static residual_view<T> residual(std::span<T> x) noexcept {
    return residual_view<T>(x);
  }

 private:
  /// Calls `prepare` for all values of [begin, end), and moves the values whose magnitude is at least `threshold` to
  /// the output. Stops moving when the output, which has room for `room` entries, is full.
  template <class T, class Index, class Prepare>
  static kernel::taken take_part(T* x, std::size_t begin, std::size_t end, kernel::magnitude<T> threshold,
                                 Index* indices, T* values, std::size_t room, const Prepare& prepare) {
    // If `prepare` computes the values, processes blocks of 4 KiB, so that the computed values are still in the
    // first-level cache when the selector reads them.
    constexpr bool made = !std::is_empty_v<Prepare>;
    kernel::taken all;
    bool fits = true;
    for (std::size_t next = begin; begin < end; begin = next) {
      next = made ? begin + std::min(4096 / sizeof(T), end - begin) : end;
      prepare(begin, next);
      if (!fits) continue;
      const auto some = kernel::take_at_least(x + begin, next - begin, threshold, begin, indices + all.count,
                                              values + all.count, room - all.count);
      all.count += some.count;
      all.seen += some.seen;
      fits = some.seen == next - begin;
    }
    return all;
  }

  spar::scheduler* scheduler_;
};

} // namespace spar::inline v0_1
