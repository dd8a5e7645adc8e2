// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The reduce-scatter and the all-gather of a FlexReduce plan, in which ranks may own ranges of different sizes:
// FlexReduce_execute (FlexReduce, section III-B, figure 3a). The paper covers dense values; this file also executes
// plans on streams.
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/tree/flex_cells.hpp>
#include <spar/collective/tree/flex_level.hpp>
#include <spar/collective/wire/encoded_parts.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/concatenate.hpp>
#include <spar/topology/flex_plan.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// The base of the `Work` classes of flex_execute for dense values, which are reduced or copied in place.
template <element T>
class flex_dense : public flex_work {
 public:
  flex_dense(const flex_plan& plan, std::span<T> x) noexcept : flex_work(plan), x_(x) {}
  [[nodiscard]] ready<payload> outgoing(std::size_t part) const {
    return ready<payload>(view_message<T>(values(part)));
  }

 protected:
  [[nodiscard]] bool adds(std::size_t part) const noexcept { return plan().adds(parts_[part]); }
  [[nodiscard]] std::span<T> values(std::size_t part) const noexcept {
    return x_.subspan(range(part).begin, range(part).size());
  }

 private:
  std::span<T> x_;
};

/// The `Work` of flex_execute for a reduce-scatter of dense values: adds each received partial sum to this rank's
/// values, or stores the partial sum if this rank adds no values of its own.
template <transport Net, element T, class Op>
class flex_dense_sum : public flex_dense<T> {
  using base = flex_dense<T>;

 public:
  flex_dense_sum(channel<Net> net, const flex_plan& plan, std::span<T> x, Op op) noexcept
      : base(plan, x), net_(net), op_(op) {}
  void place(const flex_message& m, message_buffer& in) const {
    if (!base::adds(m.part)) in.place(0, base::values(m.part));
  }
  ready<std::uint64_t> take(const flex_message& m, const message_buffer& in) const {
    const auto partial = in.template piece<T>(0);
    const std::span<T> own = base::values(m.part);
    if (partial.size() != own.size()) {
      raise<corrupt_message>(
          {"a partial sum of ", partial.size(), " values arrived from rank ", m.peer, "; expected ", own.size()});
    }
    if (!base::adds(m.part)) return ready<std::uint64_t>(0);
    net_.work().reduce_left(own, partial.data(), op_);
    return ready<std::uint64_t>(own.size());
  }

 private:
  channel<Net> net_;
  Op op_;
};

/// The `Work` of flex_execute for an all-gather of dense values: receives sums directly into `x`.
template <element T>
class flex_dense_copy : public flex_dense<T> {
 public:
  using flex_dense<T>::flex_dense;
  void place(const flex_message& m, message_buffer& in) const { in.place(0, this->values(m.part)); }
};

/// Maps the ranges of a plan to ranges of indices. If `bounds` is empty, the ranges of the plan are ranges of indices.
/// Otherwise the ranges of the plan are ranges of cells, and cell c consists of the indices in [bounds[c], bounds[c +
/// 1]).
struct flex_ranges {
  const flex_plan* plan;
  std::span<const std::uint64_t> bounds;

  /// Throws `invalid_argument` unless the plan is for `ranks` ranks and for n values or, if `bounds` is not empty, for
  /// bounds.size() - 1 cells.
  void check_shape(std::uint64_t n, rank_t ranks) const {
    plan->check_shape(bounds.empty() ? n : bounds.size() - 1, ranks);
  }
  [[nodiscard]] index_range operator[](const index_range& r) const noexcept {
    return bounds.empty() ? r : index_range{bounds[r.begin], bounds[r.end]};
  }
  [[nodiscard]] index_range operator[](const flex_plan::part& part) const noexcept {
    return (*this)[(*plan)[part].range];
  }
};

/// The ranges of indices of the chains `parts`.
struct flex_chains {
  flex_ranges ranges;
  std::span<const flex_plan::part> parts;

  [[nodiscard]] index_range operator[](rank_t part) const noexcept {
    return ranges[parts[static_cast<std::size_t>(part)]];
  }
};

/// The ranges of indices of the cells from `first` on.
struct cells_from {
  flex_ranges ranges;
  const encoded_cells& cells;
  std::size_t first;

  [[nodiscard]] index_range operator[](rank_t cell) const noexcept {
    return ranges[cells[first + static_cast<std::size_t>(cell)]];
  }
};

/// The base of the `Work` classes of flex_execute for streams. On each level, a rank sends slices of its stream along
/// its chains. The rank then joins the streams that it has reduced (reduce-scatter) or received (allgather) into its
/// stream for the next level.
template <transport Net, element T, index_type Index>
class flex_streams : public flex_work {
 public:
  static constexpr bool straight = true;

  flex_streams(channel<Net> net, const flex_ranges& ranges, const stream_view<T, Index>& mine, T absent)
      : flex_work(*ranges.plan), net_(net), ranges_(ranges), have_(mine), absent_(absent) {}

  // Some functions are coroutines of the call (see task).
  [[nodiscard]] spar::scheduler& scheduler() const noexcept { return net_.scheduler(); }
  [[nodiscard]] detail::call_error& call_error() const noexcept { return net_.call_error(); }

  /// Finds the slices of this rank's stream in the ranges of the chains `parts`.
  auto begin_level(std::span<const flex_plan::part> parts) {
    parts_ = parts;
    return after(net_, net_.work().slices(have_, flex_chains{ranges_, parts}, static_cast<rank_t>(parts.size())),
                 [this](slices found) { slices_.emplace(std::move(found)); });
  }
  void end_level() {
    held_ = std::move(next_);
    have_ = std::as_const(held_).view();
    moved_ = true;
  }

  /// Returns the stream that this rank holds after the last level: if P is 1, a copy of this rank's contribution; if n
  /// is 0, an empty sparse stream.
  [[nodiscard]] sparse_stream<T, Index> result() && {
    if (have_.dimension() == 0) return sparse_stream<T, Index>::sparse(net_.work().memory(), 0, 0);
    return moved_ ? std::move(held_) : net_.work().duplicate(have_);
  }

 protected:
  /// The range of indices of the chain `part`.
  [[nodiscard]] index_range range(std::size_t part) const noexcept { return ranges_[parts_[part]]; }
  [[nodiscard]] stream_view<T, Index> slice(std::size_t part) const { return (*slices_)[static_cast<rank_t>(part)]; }

  /// Joins the streams of_part[i] of those chains i for which `is_held(i)` is true into the stream that this rank holds
  /// on the next level. These chains have adjacent ranges. The result is sparse if no joined stream is dense and the
  /// joined streams have at most `limit(range)` entries in all, where `range` is the union of the chains' ranges.
  template <class IsHeld, class Limit>
  void join(std::span<const stream_view<T, Index>> of_part, IsHeld is_held, Limit limit) {
    buffer<stream_view<T, Index>> views(net_.memory(), of_part.size());
    std::size_t count = 0;
    index_range all{0, 0};
    for (std::size_t i = 0; i < of_part.size(); ++i) {
      if (!is_held(i)) continue;
      all = {count == 0 ? range(i).begin : all.begin, range(i).end};
      views.span()[count++] = of_part[i];
    }
    next_ =
        concatenate(std::as_const(views).span().first(count), have_.dimension(), all, absent_, limit(all), net_.work());
  }

  channel<Net> net_;

 private:
  using slices = owners_slices<T, Index, flex_chains>;

  flex_ranges ranges_;
  stream_view<T, Index> have_;
  std::optional<slices> slices_; // of `have_`, one for each chain of this rank
  T absent_;
  sparse_stream<T, Index> held_;
  bool moved_ = false; // whether `have_` refers to `held_`
  sparse_stream<T, Index> next_;
};

/// The `Work` of flex_execute for a reduce-scatter of streams: the root of each chain receives the streams of the
/// chain's other ranks and reduces all streams in the order of the chain.
template <transport Net, element T, index_type Index, class Op, class Storage>
class flex_stream_sum : public flex_streams<Net, T, Index> {
  using base = flex_streams<Net, T, Index>;
  using base::net_;

 public:
  using arrival = incoming<Storage, T, Index>;

  flex_stream_sum(channel<Net> net, const flex_ranges& ranges, const stream_view<T, Index>& mine, Op op,
                  const Storage& store, residual_view<T> residual)
      : base(net, ranges, mine, op.template neutral<T>()), op_(op), store_(store), residual_(residual) {}
  auto begin_level(std::span<const flex_plan::part> parts) {
    out_.emplace(net_.memory(), parts.size());
    ++level_;
    std::size_t views = 0;
    first_.emplace(net_.memory(), parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      first_->span()[i] = views;
      if (base::plan().is_root(parts[i])) views += parts[i].place + 1;
    }
    views_.emplace(net_.memory(), views);
    return base::begin_level(parts);
  }
  [[nodiscard]] auto outgoing(std::size_t part) {
    return out_->add(net_, store_, base::slice(part), base::range(part), step_of(level_, net_.rank()), residual_);
  }
  auto take(const flex_message& m, arrival& in) {
    stream_view<T, Index>* const view = views_->data() + first_->span()[m.part] + m.place;
    return after(net_, in.view(net_, store_, base::range(m.part), index_check::later),
                 [view](const stream_view<T, Index>& arrived) {
                   *view = arrived;
                   return std::uint64_t{0};
                 });
  }
  task<std::uint64_t> all_taken() {
    const std::size_t parts = base::parts_.size();
    std::uint64_t work = 0;
    fixed_vector<sparse_stream<T, Index>> sums(net_.memory(), parts);
    buffer<stream_view<T, Index>> of_part(net_.memory(), parts);
    for (std::size_t i = 0; i < parts; ++i) {
      const auto& part = base::parts_[i];
      if (!base::plan().is_root(part)) continue;
      const std::size_t first = first_->span()[i];
      const bool adds = base::plan().adds(part);
      if (adds) views_->span()[first + part.place] = base::slice(i);
      const auto views = std::as_const(*views_).span().subspan(first, part.place + (adds ? 1 : 0));
      const std::uint64_t n = views[0].dimension();
      const index_range range = base::range(i);
      if (turns_dense(views, range)) {
        work += entries_of(views);
        if constexpr (workspace_of<Net>::checks_later) co_await net_.work().check_indices(views, range);
        auto sum = sparse_stream<T, Index>::dense(net_.work().memory(), n, range.begin, range.size());
        net_.work().reduce_dense(views, range, sum.values().data(), op_);
        sums.push_back(std::move(sum));
      } else {
        work += merge_work(views);
        sums.push_back(co_await net_.work().merge_many(views, n, range, op_)); // on a device, checks the indices
      }
      of_part.span()[i] = std::as_const(sums)[sums.size() - 1].view();
    }
    base::join(
        std::as_const(of_part).span(), [&](std::size_t i) { return base::plan().is_root(base::parts_[i]); },
        [this](const index_range& all) { return storage::delta<T, Index>(store_, all.size()); });
    co_return work;
  }

 private:
  [[nodiscard]] bool turns_dense(std::span<const stream_view<T, Index>> views, index_range range) const {
    const auto is_dense = [](const auto& v) { return v.is_dense() && v.count() > 0; };
    return std::any_of(views.begin(), views.end(), is_dense) ||
           entries_of(views) > storage::delta<T, Index>(store_, range.size());
  }

  Op op_;
  [[no_unique_address]] Storage store_;
  residual_view<T> residual_;
  std::uint64_t level_ = 0;
  std::optional<outgoing_list<Storage, T, Index>> out_;
  std::optional<buffer<std::size_t>> first_; // for each chain of this rank, the offset of its streams in `views_`
  // For each chain whose root is this rank, the streams of the chain's ranks in the order of the chain.
  std::optional<buffer<stream_view<T, Index>>> views_;
};

/// The `Work` of flex_execute for an all-gather of streams that are sent from their own memory: the root of each chain
/// sends its stream to all ranks of the chain.
template <transport Net, element T, index_type Index, class Storage>
class flex_stream_copy : public flex_streams<Net, T, Index> {
  using base = flex_streams<Net, T, Index>;
  using base::net_;

 public:
  using arrival = incoming<Storage, T, Index>;

  flex_stream_copy(channel<Net> net, const flex_ranges& ranges, const stream_view<T, Index>& mine, T absent,
                   const Storage& store)
      : base(net, ranges, mine, absent), store_(store) {}
  auto begin_level(std::span<const flex_plan::part> parts) {
    came_.emplace(net_.memory(), parts.size());
    return base::begin_level(parts);
  }
  [[nodiscard]] ready<payload> outgoing(std::size_t part) const {
    return ready<payload>(view_message(base::slice(part)));
  }
  auto take(const flex_message& m, const arrival& in) {
    stream_view<T, Index>* const view = came_->data() + m.part;
    return after(net_, in.view(net_, store_, base::range(m.part)), [view](const stream_view<T, Index>& arrived) {
      *view = arrived;
      return std::uint64_t{0};
    });
  }
  ready<std::uint64_t> all_taken() {
    for (std::size_t i = 0; i < came_->size(); ++i)
      if (base::plan().is_root(base::parts_[i])) came_->span()[i] = base::slice(i);
    // Joins only the streams of chains in which this rank added values on the way up: a root that added no values held
    // nothing of the chain's range on the level below. The limit is infinite, so the joined stream is dense only if one
    // of the streams is dense. All ranks get all streams in the end, but join them in different groups, so with a
    // finite limit some ranks might get a dense result and others a sparse one.
    base::join(
        std::as_const(*came_).span(), [&](std::size_t i) { return base::plan().adds(base::parts_[i]); },
        [](const index_range&) { return std::numeric_limits<std::uint64_t>::max(); });
    return ready<std::uint64_t>(0);
  }

 private:
  [[no_unique_address]] Storage store_;
  // For each chain of this rank, the received stream; if this rank is the chain's root, the slice that it sends.
  std::optional<buffer<stream_view<T, Index>>> came_;
};

/// The `Work` of flex_execute for an all-gather of encoded streams: each owner encodes each of its cells (ranges of
/// indices) once, and ranks forward whole encoded cells down the tree.
template <transport Net, element T, index_type Index, class Storage>
class flex_encoded_streams : public flex_work {
 public:
  static constexpr bool straight = true;

  flex_encoded_streams(channel<Net> net, const flex_plan& plan, const encoded_cells& cells)
      : flex_work(plan), net_(net), cells_(&cells), parts_of_all_(net, cells.size(), cells.room()) {}
  [[nodiscard]] encoded_parts<Net, Storage, T, Index>& all() noexcept { return parts_of_all_; }

  ready<> begin_level(std::span<const flex_plan::part> parts) {
    sent_.emplace(net_.memory(), parts.size());
    std::fill_n(sent_->data(), parts.size(), payload());
    sizes_.emplace(net_.memory(), parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) sizes_->emplace_back();
    return flex_work::begin_level(parts);
  }
  [[nodiscard]] ready<payload> outgoing(std::size_t part) {
    payload& message = sent_->span()[part]; // all receivers in a chain get the same message
    if (message.format == wire_format{}) message = parts_of_all_.message(first(part), count(part));
    return ready<payload>(message);
  }
  auto take(const flex_message& m, const message_buffer& in) {
    return after(net_, parts_of_all_.take(in, first(m.part), count(m.part), (*sizes_)[m.part]),
                 [] { return std::uint64_t{0}; });
  }
  void end_level() noexcept { parts_of_all_.release_messages(); }

 private:
  [[nodiscard]] std::size_t first(std::size_t part) const noexcept { return cells_->at(range(part).begin); }
  [[nodiscard]] std::size_t count(std::size_t part) const noexcept { return cells_->at(range(part).end) - first(part); }

  channel<Net> net_;
  const encoded_cells* cells_;
  encoded_parts<Net, Storage, T, Index> parts_of_all_; // part c is the encoded cell c
  std::optional<buffer<payload>> sent_; // for each chain of this rank, the message to send, set by `outgoing`
  std::optional<fixed_vector<buffer<std::uint64_t>>> sizes_; // for each chain, those in the message that has arrived
};

} // namespace detail

/// A reduce-scatter of the dense values `x`, in place, along the chains of a plan. Afterwards the range that the plan
/// assigns to this rank holds the sum, and the rest of `x` is unspecified. Throws `invalid_argument` if the plan is for
/// a different number of values or ranks.
template <transport Net, element T, reduction<T> Op>
task<void> flex_reduce_scatter(channel<Net> net, const flex_plan* plan, std::span<T> x, Op op) {
  plan->check_shape(x.size(), net.size());
  detail::flex_dense_sum<Net, T, Op> work(net, *plan, x, op);
  co_await detail::flex_execute(net, plan, true, &work);
}

/// An all-gather of the dense values `x`, in place: runs the levels of the plan from the top down. On each level the
/// values of a chain's root travel back along the chain to all ranks that contributed to these values. Throws
/// `invalid_argument` if the plan is for another number of values or of ranks.
template <transport Net, element T>
task<void> flex_allgather(channel<Net> net, const flex_plan* plan, std::span<T> x) {
  plan->check_shape(x.size(), net.size());
  detail::flex_dense_copy<T> work(*plan, x);
  co_await detail::flex_execute(net, plan, false, &work);
}

/// A reduce-scatter of streams: on each level, all ranks of a chain send directly to the chain's root. Returns the sum
/// of all ranks' entries in the range that the plan assigns to this rank. If `bounds` is not empty, the plan's ranges
/// are ranges of cells, and cell c consists of the indices in [bounds[c], bounds[c + 1]). Adds the rounding errors of
/// this rank's encodings to `residual`, unless `residual` is empty. Throws `invalid_argument` if the plan is for
/// another number of values, cells or ranks.
template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
  requires storage_policy<Storage, T, Index>
task<sparse_stream<T, Index>> flex_reduce_scatter(channel<Net> net, const flex_plan* plan, stream_view<T, Index> mine,
                                                  Op op, std::span<const std::uint64_t> bounds = {}, Storage store = {},
                                                  residual_view<T> residual = {}) {
  const detail::flex_ranges ranges{plan, bounds};
  ranges.check_shape(mine.dimension(), net.size());
  detail::flex_stream_sum<Net, T, Index, Op, Storage> work(net, ranges, mine, op, store, residual);
  co_await detail::flex_execute(net, plan, true, &work);
  co_return std::move(work).result();
}

/// An all-gather of streams that are sent from their own memory. Returns, on every rank, the entries of all ranks;
/// `mine` contains this rank's entries, in the range that the plan assigns to this rank. If any rank's stream is dense,
/// the result is dense, with `absent` at indices without an entry. If `bounds` is not empty, the plan's ranges are
/// ranges of cells, and cell c consists of the indices in [bounds[c], bounds[c + 1]). Ignores the residual, because
/// nothing is rounded. Throws `invalid_argument` if the plan is for another number of values, cells or ranks.
template <transport Net, element T, index_type Index, class Storage = storage::coo>
  requires storage::copies_nothing<Storage, T, Index>
task<sparse_stream<T, Index>> flex_allgather(channel<Net> net, const flex_plan* plan, stream_view<T, Index> mine,
                                             T absent, std::span<const std::uint64_t> bounds = {}, Storage store = {},
                                             residual_view<T> = {}) {
  const detail::flex_ranges ranges{plan, bounds};
  ranges.check_shape(mine.dimension(), net.size());
  detail::flex_stream_copy<Net, T, Index, Storage> work(net, ranges, mine, absent, store);
  co_await detail::flex_execute(net, plan, false, &work);
  co_return std::move(work).result();
}
/// An all-gather of streams that a codec encodes: each owner encodes its cells once, and all ranks decode the same
/// bytes. The arguments and errors are those of the overload for streams that are sent from their own memory. Adds the
/// rounding errors of this rank's encodings to `residual`, unless `residual` is empty.
template <transport Net, element T, index_type Index, class Storage>
  requires storage_policy<Storage, T, Index> && (!storage::copies_nothing<Storage, T, Index>)
task<sparse_stream<T, Index>> flex_allgather(channel<Net> net, const flex_plan* plan, stream_view<T, Index> mine,
                                             T absent, std::span<const std::uint64_t> bounds, Storage store,
                                             residual_view<T> residual = {}) {
  const detail::flex_ranges ranges{plan, bounds};
  ranges.check_shape(mine.dimension(), net.size());
  const std::uint64_t n = mine.dimension();
  if (n == 0) co_return sparse_stream<T, Index>::sparse(net.work().memory(), 0, 0);
  if (net.size() == 1) co_return net.work().duplicate(mine);
  const detail::encoded_cells cells(*plan, net.memory(), [](std::uint64_t) { return std::size_t{0}; });
  const auto range_of = [&](std::size_t cell) { return ranges[cells[cell]]; };
  const index_range own = (*plan)[net.rank()];
  const std::size_t first = cells.at(own.begin), end = cells.at(own.end);
  const detail::cells_from owned{ranges, cells, first};
  const auto slice = co_await net.work().slices(mine, owned, static_cast<rank_t>(end - first));
  detail::flex_encoded_streams<Net, T, Index, Storage> work(net, *plan, cells);
  for (std::size_t c = first; c < end; ++c) {
    const auto cell = static_cast<rank_t>(c - first);
    co_await work.all().encode(store, c, slice[cell], owned[cell], residual);
  }
  co_await detail::flex_execute(net, plan, false, &work);
  constexpr auto never_dense = std::numeric_limits<std::uint64_t>::max();
  co_return co_await work.all().joined(store, n, range_of, absent, never_dense);
}

} // namespace spar::inline v0_1
