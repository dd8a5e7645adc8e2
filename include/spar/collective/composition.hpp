// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A collective as one type with named slots: which entries are selected, how they travel, over which network, and in
// which schedule.
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/selected_sum.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/selector/everything.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/flat.hpp>

#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

namespace detail {

template <class Storage>
concept codec_of_floats =
    storage_policy<Storage, float, std::uint32_t> || storage_policy<Storage, double, std::uint32_t>;

template <class Selector, class Storage, class Topology, class Schedule>
auto verdict() {
  if constexpr (!codec_of_floats<Storage>)
    return nothing_against(); // another sentence of composition lists what a storage needs
  else if constexpr (requires { Schedule::template accepts<Selector, Storage, Topology>(); })
    return decltype(Schedule::template accepts<Selector, Storage, Topology>())();
  else
    return because<"this schedule does not say with which parts it composes: it needs a static member template "
                   "accepts<Selector, Storage, Topology>() that returns spar::nothing_against or spar::because<...>">();
}

} // namespace detail

/// The verdict on a composition of these parts: because<"..."> with the reason why they do not compose, or
/// nothing_against.
template <class Selector, class Storage, class Topology, class Schedule>
using verdict_of = decltype(detail::verdict<Selector, Storage, Topology, Schedule>());

/// An allreduce made of four parts (see `compose`). A composition holds options only and never changes. A state, such
/// as a threshold that is reused, is a `composition::state`, which error feedback and partial collectives keep from
/// call to call; a plain call starts with a new one.
///
/// A schedule reduces dense values or streams or both. With the selector `everything`, dense values are reduced as
/// dense values, or as a dense stream if the schedule reduces only streams; if the storage has no stream codec, a
/// stream is reduced as dense values. Any other selector takes entries from dense values, which then travel as a
/// stream; the result in place is zero elsewhere.
template <part_for<slot::selector> Selector, part_for<slot::storage> Storage, part_for<slot::topology> Topology,
          part_for<slot::schedule> Schedule>
struct composition {
  static_assert(detail::codec_of_floats<Storage>,
                "this storage is not a codec: every codec has a name and a const member template options(f); a stream "
                "codec also has exact, entry_bits, delta, bound, encode and decode, a block codec encoded_bytes, "
                "encode and decode, and then<streams, blocks> has one of each");
  static_assert(composes<verdict_of<Selector, Storage, Topology, Schedule>>,
                "these parts do not compose; the reason is the sentence in spar::because<...>");

  static constexpr std::string_view name = Schedule::name;
  using selector_type = Selector;
  using storage_type = Storage;
  using topology_type = Topology;
  using schedule_type = Schedule;
  /// Whether the selector takes entries from dense values; otherwise all values take part.
  static constexpr bool selects_entries = !std::same_as<Selector, selector::everything>;

  [[no_unique_address]] Selector select{};
  [[no_unique_address]] Storage store{};
  [[no_unique_address]] Topology over{};
  [[no_unique_address]] Schedule by{};

  /// What changes from call to call.
  struct state {
    [[no_unique_address]] state_of<Selector> select{};
    [[no_unique_address]] state_of<Schedule> by{};

    template <class F>
    void shared_state(F&& f) {
      select.shared_state(f), by.shared_state(f);
    }
    template <class F>
    void own_state(F&& f) {
      select.own_state(f), by.own_state(f);
    }
  };
  /// What the last call did on this rank.
  struct report {
    std::uint64_t selected = 0; ///< number of selected entries
    double select_seconds = 0;  ///< for selecting them, and for computing their values
    [[no_unique_address]] report_of<Schedule> by{};
  };

  template <class F>
  void options(F&& f) const {
    f("select", select), f("store", store), f("over", over), f("by", by);
  }
  /// Throws `invalid_argument` for options that are invalid for n values on `ranks` ranks. Called by error feedback.
  template <element T>
  void validate_parts(std::uint64_t n, rank_t ranks) const {
    select.validate(n);
    storage::validate<T>(store);
    over.validate(n, ranks);
    by.validate(n);
  }
  /// Like validate_parts, for a plain call, which writes selected entries back in place.
  template <element T, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
    if constexpr (selects_entries) {
      if (op.template neutral<T>() != T{}) {
        raise<invalid_argument>({"a selector omits zeros, so a collective of selected entries needs an operation whose "
                                 "neutral element is zero"});
      }
      if (n > std::numeric_limits<std::uint32_t>::max()) {
        raise<invalid_argument>(
            {"a collective of selected entries has 32-bit indices, which are too few for ", n, " values"});
      }
    }
    validate_parts<T>(n, ranks);
  }
  /// Like `validate`, for a plain call of n dense values: also checks n against the indices of a schedule that reduces
  /// only streams.
  template <transport Net, element T, class Op>
  void validate_values(std::uint64_t n, rank_t ranks, const Op& op) const {
    validate<T>(n, ranks, op);
    if constexpr (!selects_entries && !reduces<Net, std::span<T>, Op, Storage, T>) {
      if (n > std::numeric_limits<std::uint32_t>::max()) {
        raise<invalid_argument>(
            {"this schedule reduces dense values as a stream with 32-bit indices, which are too few for ", n,
             " values"});
      }
    }
  }

  /// Reduces streams; requires the selector `everything`.
  template <transport Net, element T, index_type Index, reduction<T> Op>
    requires(!selects_entries && storage_policy<Storage, T, Index>)
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op) const& {
    return reduce_stream(net, mine, op, std::span<T>());
  }

  /// Reduces dense values in place.
  template <transport Net, element T, reduction<T> Op>
    requires(storage_policy<Storage, T, std::uint32_t> && (!selects_entries || selects<Selector, T, std::uint32_t>))
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    if constexpr (selects_entries)
      return reduce_selected(net, x, op);
    else
      return reduce_values<std::uint32_t>(net, x, op, std::span<T>());
  }

  /// Reduces the entries that the selector takes from `x`. What is not selected stays in `x`, and the rounding errors
  /// of this rank's encodings are added to `x`. `prepare` computes the values (see select_from).
  template <index_type Index, transport Net, element T, reduction<T> Op, class Prepare>
    requires(storage_policy<Storage, T, Index> && (!selects_entries || selects<Selector, T, Index>))
  task<selected_sum<T, Index>> selected(channel<Net> net, state* now, report* last, std::span<T> x, Op op,
                                        Prepare prepare) const& {
    if constexpr (requires { by.template selected<Index>(net, this, now, last, x, op, prepare); })
      return by.template selected<Index>(net, this, now, last, x, op, prepare);
    else if constexpr (selects_entries)
      return select_and_reduce<Index>(net, now, last, x, op, prepare);
    else
      return take_all<Index>(net, last, x, op, prepare);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  // The overloads of a schedule: for values or streams, and either with the topology or on ranks in the topology's
  // order.

  template <transport Net, class X, class Op, class Store, class T>
  static constexpr bool reduces =
      requires(const Schedule& s, const Topology& t, channel<Net> net, X x, Op op, Store st, std::span<T> residual) {
        s(net, t, x, op, st, residual);
      } || requires(const Schedule& s, channel<Net> net, X x, Op op, Store st, std::span<T> residual) {
        s(net, x, op, st, residual);
      };

  template <transport Net, class X, class Op, class Store, class T>
  auto call(channel<Net> net, X x, Op op, Store storing, std::span<T> residual) const& {
    if constexpr (requires { by(net, over, x, op, storing, residual); })
      return by(net, over, x, op, storing, residual);
    else
      return by(net.in_order(over.order()), x, op, storing, residual);
  }

  template <transport Net, element T, index_type Index, class Op>
  task<sparse_stream<T, Index>> reduce_stream(channel<Net> net, stream_view<T, Index> mine, Op op,
                                              std::span<T> residual) const& {
    if constexpr (has_stream_codec<Storage>)
      return call(net, mine, op, store, residual);
    else if constexpr (reduces<Net, std::span<T>, Op, Storage, T>)
      return as_values(net, mine, op, residual);
    else
      return as_dense_stream(net, mine, op, residual);
  }
  /// `Index` is the index type of the stream as which values travel if the schedule reduces only streams.
  template <index_type Index, transport Net, element T, class Op>
  task<void> reduce_values(channel<Net> net, std::span<T> x, Op op, std::span<T> residual) const& {
    if constexpr (reduces<Net, std::span<T>, Op, Storage, T>)
      return call(net, x, op, store, residual);
    else
      return as_stream<Index>(net, x, op, residual);
  }

  template <transport Net, element T, index_type Index, class Op>
  task<sparse_stream<T, Index>> as_values(channel<Net> net, stream_view<T, Index> mine, Op op,
                                          std::span<T> residual) const& {
    sparse_stream<T, Index> sum = to_dense(mine, op, net.memory());
    auto running = call(net, sum.values(), op, store, residual);
    co_await std::move(running);
    co_return sum;
  }
  template <transport Net, element T, index_type Index, class Op>
  task<sparse_stream<T, Index>> as_dense_stream(channel<Net> net, stream_view<T, Index> mine, Op op,
                                                std::span<T> residual) const& {
    const sparse_stream<T, Index> all = to_dense(mine, op, net.memory());
    auto running = call(net, all.view(), op, store, residual);
    co_return co_await std::move(running);
  }
  template <index_type Index, transport Net, element T, class Op>
  task<void> as_stream(channel<Net> net, std::span<T> x, Op op, std::span<T> residual) const& {
    auto running = call(net, dense_view<Index>(std::span<const T>(x)), op, store, residual);
    const sparse_stream<T, Index> sum = co_await std::move(running);
    sum.to_dense(x, op.template neutral<T>());
  }

  template <transport Net, element T, class Op>
  task<void> reduce_selected(channel<Net> net, std::span<T> x, Op op) const& {
    state now{};
    report last{};
    const selector::nothing_to_prepare prepare;
    auto running = selected<std::uint32_t>(net, &now, &last, x, op, prepare);
    const selected_sum<T, std::uint32_t> result = co_await std::move(running);
    result.sum.to_dense(x, op.template neutral<T>());
  }
  template <index_type Index, transport Net, element T, class Op, class Prepare>
  task<selected_sum<T, Index>> select_and_reduce(channel<Net> net, state* now, report* last, std::span<T> x, Op op,
                                                 Prepare prepare) const& {
    sparse_stream<T, Index> mine = select_for<Index>(net, *this, now, last, x, prepare);
    auto running = reduce_stream(net, mine.view(), op, x);
    sparse_stream<T, Index> sum = co_await std::move(running);
    co_return selected_sum<T, Index>(std::move(sum), std::move(mine));
  }
  template <index_type Index, transport Net, element T, class Op, class Prepare>
  task<selected_sum<T, Index>> take_all(channel<Net> net, report* last, std::span<T> x, Op op, Prepare prepare) const& {
    prepare(0, x.size());
    *last = {.selected = x.size()};
    auto sum = sparse_stream<T, Index>::dense(net.memory(), x.size(), 0, x.size());
    std::copy(x.begin(), x.end(), sum.values().begin());
    auto own = sparse_stream<T, Index>::copy(net.memory(), std::as_const(sum).view());
    std::fill(x.begin(), x.end(), T{});
    auto running = reduce_values<Index>(net, sum.values(), op, x);
    co_await std::move(running);
    co_return selected_sum<T, Index>(std::move(sum), std::move(own));
  }
};

} // namespace spar
