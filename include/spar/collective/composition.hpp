// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The type of an allreduce made of four parts: a selector (which entries are sent), a storage (how messages encode
// entries and values), a topology (how the network connects the ranks) and a schedule (which messages are sent).
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/selected_sum.hpp>
#include <spar/core/policy/optional_members.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/everything.hpp>
#include <spar/selector/nonzeros.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/flat.hpp>
#include <spar/workspace/workspace.hpp>

#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

template <class Selector, class Storage, class Topology, class Schedule>
auto verdict() {
  if constexpr (sums_in_code<Storage>) {
    if constexpr (std::same_as<Selector, selector::everything>)
      return verdict<Selector, typename Storage::codes_type, Topology, Schedule>();
    else
      return because<"this storage makes codes of dense values, but a selector sends entries: use the selector "
                     "everything">();
  } else if constexpr (!has_stream_codec<Storage> && !has_block_codec<Storage>)
    return nothing_against(); // a static_assert in `composition` explains why the storage is not a codec
  else if constexpr (encodes_whole_pieces<storage::blocks_type<Storage>> && (has_stream_codec<Storage> || !requires {
                       Schedule::whole_pieces;
                     } || !topology_with_owners<Topology>))
    return because<"this storage encodes dense values in pieces that must stay whole on all ranks: use it alone, on "
                   "the topology flat or a tree, with the schedule ring, recursive_doubling, rabenseifner, "
                   "split_allgather, chains, two_shot or one_shot">();
  else if constexpr (requires { Schedule::template accepts<Selector, Storage, Topology>(); })
    return decltype(Schedule::template accepts<Selector, Storage, Topology>())();
  else
    return because<"this schedule does not say with which parts it composes: add a static member template "
                   "accepts<Selector, Storage, Topology>() that returns spar::nothing_against or spar::because<...>">();
}

/// A schedule that chooses the entries of the result itself (see `composition::reduce`). A concept outside of
/// `composition`, because nvcc 13.0 wrongly rejects the call in a requires-expression inside a member function.
template <class Schedule, class Net, class Call, class T, class Index, class Op>
concept schedule_drops = requires(const Schedule& by, channel<Net> net, const Call& call, sparse_stream<T, Index> mine,
                                  Op op) { by.reduce(net, call, std::move(mine), op); };

/// A schedule that reduces dense values of which few are nonzero in place, as streams or as they are. Not over a
/// topology whose dense values the schedule reduces in another way.
template <class Schedule, class Net, class Topology, class Storage, class T, class Op>
concept reduces_nonzeros =
    requires(const Schedule& by, channel<Net> net, std::span<T> x, Op op, Storage store) {
      by.reduce_nonzeros(net, x, op, store);
    } && !requires(const Schedule& by, channel<Net> net, const Topology& over, std::span<T> x, Op op, Storage store,
                   residual_view<T> residual) { by(net, over, x, op, store, residual); };

} // namespace detail

/// The type `nothing_against` if these four parts can form a composition, otherwise `because<"...">` with the reason
/// why they cannot.
template <class Selector, class Storage, class Topology, class Schedule>
using verdict_of = decltype(detail::verdict<Selector, Storage, Topology, Schedule>());

/// An allreduce made of a selector, a storage, a topology and a schedule (see `compose`). A composition holds only
/// options and never changes. Values that change from call to call, such as a threshold that is reused, are in a
/// `composition::state`. Error feedback and partial collectives keep such a state from call to call; any other call
/// starts with a new state.
///
/// A schedule reduces dense values, streams, or both. With the selector `everything`, a call on dense values reduces
/// them as they are, or as a dense stream if the schedule reduces only streams. With a storage that has no stream
/// codec, a call on a stream first converts the stream to dense values.
///
/// A selector other than `everything` moves entries out of dense values, and the schedule reduces these entries as a
/// stream. A call without error feedback then overwrites the dense values with the result, which is zero at each index
/// without an entry. With the selector `nonzeros`, such a call need not select anything: the schedule `cheapest`
/// reduces the dense values as they are where this is faster.
template <part_for<slot::selector> Selector, part_for<slot::storage> Storage, part_for<slot::topology> Topology,
          part_for<slot::schedule> Schedule>
struct composition {
  static_assert(has_stream_codec<Storage> || has_block_codec<Storage> || sums_in_code<Storage>,
                "this storage is not a codec: every codec has a name and a const member template options(f); a stream "
                "codec also has exact, entry_bits, delta, bound, encode and decode; a block codec also has "
                "encoded_bytes, encode and decode; storage::then<streams, blocks> combines a stream codec with a block "
                "codec");
  static_assert(composes<verdict_of<Selector, Storage, Topology, Schedule>>,
                "these parts do not compose; the reason is the text of spar::because<...> in this error message");

  static constexpr std::string_view name = Schedule::name;
  using selector_type = Selector; ///< the part that selects entries
  using storage_type = Storage;   ///< the part that encodes messages
  using topology_type = Topology; ///< the part that describes the network
  using schedule_type = Schedule; ///< the part that is the algorithm
  /// Whether the selector moves entries out of dense values; false for the selector `everything`, with which all values
  /// are reduced.
  static constexpr bool selects_entries = !std::same_as<Selector, selector::everything>;

  [[no_unique_address]] Selector select{}; ///< the selector
  [[no_unique_address]] Storage store{};   ///< the storage
  [[no_unique_address]] Topology over{};   ///< the topology
  [[no_unique_address]] Schedule by{};     ///< the schedule

  /// Whether the storage takes values of T and indices of type Index.
  template <class T, class Index>
  static constexpr bool stores = storage_policy<Storage, T, Index> || (sums_in_code<Storage> && std::floating_point<T>);

  /// The values that the selector and the schedule keep from call to call, such as a threshold.
  struct state {
    [[no_unique_address]] state_of<Selector> select{}; ///< the state of the selector
    [[no_unique_address]] state_of<Schedule> by{};     ///< the state of the schedule

    void shared_state(auto&& f) { select.shared_state(f), by.shared_state(f); }
    void own_state(auto&& f) { select.own_state(f), by.own_state(f); }
  };
  /// Statistics of the last call on this rank.
  struct report {
    std::uint64_t selected = 0; ///< number of entries that the selector selected
    double select_seconds = 0;  ///< seconds for preparing the dense values and selecting entries; over a device,
                                ///< including those in which the rank worked on other calls
    [[no_unique_address]] report_of<Schedule> by{}; ///< what the schedule reports
  };

  void options(auto&& f) const { f("select", select), f("store", store), f("over", over), f("by", by); }
  /// Throws `invalid_argument` if an option of one of the four parts is invalid for n values on `ranks` ranks. Error
  /// feedback calls this function and not `validate`, because error feedback checks the operation and the index range
  /// itself.
  template <element T>
  void validate_parts(std::uint64_t n, rank_t ranks) const {
    static_assert((!detail::names_bounds<Selector> || selector_with_bounds<Selector>) &&
                      (!detail::names_period<Selector> ||
                       requires(const Selector& selecting) {
                         { selecting.period } -> std::convertible_to<std::uint64_t>;
                       }),
                  "this selector has a member bounds or period of a form that spar never reads: expected the const "
                  "member bounds(n), which returns a spar::selector::topk_bounds, and a std::uint64_t period");
    select.validate(n);
    if constexpr (sums_in_code<Storage>)
      store.template validate<T>(ranks);
    else
      storage::validate<T>(store, n);
    over.validate(n, ranks);
    by.validate(n);
  }
  /// Throws `invalid_argument` if `validate_parts` does. With a selector other than `everything`, also throws if n does
  /// not fit into the 32-bit indices of the selected entries, or if the neutral element of `op` is not zero, because
  /// selectors omit zeros.
  template <element T, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
    if constexpr (selects_entries) {
      if (op.template neutral<T>() != T{}) {
        raise<invalid_argument>({"the neutral element of the operation ", Op::name,
                                 " is not zero, but selectors omit zeros: use an operation whose neutral element is "
                                 "zero, such as sum, or the "
                                 "selector everything"});
      }
      if (n > std::numeric_limits<std::uint32_t>::max()) {
        raise<invalid_argument>(
            {"the vector has ", n,
             " values, but this call sends selected entries with 32-bit indices; expected at most 4294967295 values"});
      }
    }
    validate_parts<T>(n, ranks);
  }
  /// Throws `invalid_argument` if `validate` does. With the selector `everything` and a schedule that reduces only
  /// streams, also throws if n is too large for the 32-bit indices of the stream that carries the dense values.
  template <transport Net, element T, class Op>
  void validate_values(std::uint64_t n, rank_t ranks, const Op& op) const {
    validate<T>(n, ranks, op);
    if constexpr (sums_in_code<Storage>) {
      of_codes().template validate_values<Net, std::int64_t>(n, ranks, op);
    } else if constexpr (!selects_entries && !reduces<Net, std::span<T>, Op, Storage, T>) {
      if (n > std::numeric_limits<std::uint32_t>::max()) {
        raise<invalid_argument>(
            {"the vector has ", n, " values, but the schedule ", name,
             " sends dense values as a stream with 32-bit indices; expected at most 4294967295 values"});
      }
    }
  }

  /// Reduces the streams of all ranks and returns the result. Requires the selector `everything`, because every other
  /// selector takes dense values.
  template <transport Net, element T, index_type Index, reduction<T> Op>
    requires(!selects_entries && stores<T, Index>)
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op) const& {
    return reduce_stream(net, mine, op, residual_view<T>());
  }

  /// Reduces the dense values of all ranks in place: the result replaces `x`.
  template <transport Net, element T, reduction<T> Op>
    requires(stores<T, std::uint32_t> && (!selects_entries || selects<Selector, T, std::uint32_t, workspace_of<Net>>))
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    constexpr bool all_nonzeros = std::same_as<Selector, selector::nonzeros>;
    if constexpr (all_nonzeros && detail::reduces_nonzeros<Schedule, Net, Topology, Storage, T, Op>)
      return by.reduce_nonzeros(net.in_order(over.order()), x, op, store);
    else if constexpr (selects_entries)
      return replace(net, x, op);
    else
      return reduce_values<std::uint32_t>(net, x, op, residual_view<T>());
  }

  /// Moves the selected entries out of `x`, reduces the entries of all ranks, and returns the result. Values that are
  /// not selected stay in `x`, and the rounding errors of this rank's encodings are added to `x`. `prepare` computes
  /// the values of `x` before the selector reads them (see `selects`). `now` is the state and changes; `last` becomes
  /// the report. Throws `invalid_argument` if the selector returns a malformed stream.
  template <index_type Index, transport Net, element T, reduction<T> Op, class Prepare>
    requires(stores<T, Index> && (!selects_entries || selects<Selector, T, Index, workspace_of<Net>>))
  task<selected_sum<T, Index>> reduce(channel<Net> net, state* now, report* last, std::span<T> x, Op op,
                                      Prepare prepare) const& {
    if constexpr (selects_entries)
      return select_and_reduce<Index>(net, now, last, x, net.work().residual(x), op, prepare);
    else
      return reduce_selected(net, now, last, take_all<Index>(net, last, x, prepare), net.work().residual(x), op);
  }
  /// Reduces the entries `mine`, which a rank has moved out of its dense values: all of them as a dense stream with the
  /// selector `everything`, otherwise a sparse stream. `residual` refers to the values that were not selected: this
  /// function adds the rounding errors of this rank's encodings to them, and moves back the entries that the schedule
  /// does not keep. `now` is the state and changes; `last` becomes the report.
  template <transport Net, element T, index_type Index, reduction<T> Op>
    requires stores<T, Index>
  task<selected_sum<T, Index>> reduce_selected(channel<Net> net, state* now, report* last, sparse_stream<T, Index> mine,
                                               residual_view<T> residual, Op op) const& {
    using call_type = selected_call<Topology, Storage, T, state_of<Schedule>, report_of<Schedule>>;
    if constexpr (detail::schedule_drops<Schedule, Net, call_type, T, Index, Op>) {
      const call_type call{over, store, bounds(mine.dimension()), period(), now->by, last->by, residual};
      return by.reduce(net, call, std::move(mine), op);
    } else {
      return keep_sum(net, std::move(mine), residual, op);
    }
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  /// The composition that sums the codes.
  [[nodiscard]] auto of_codes() const {
    using codes = typename Storage::codes_type;
    return composition<Selector, codes, Topology, Schedule>{select, codes{}, over, by};
  }

  // Whether the schedule can reduce an X (dense values or a stream). The schedule's overload may take the topology. An
  // overload without the topology runs on ranks that are numbered in the topology's order.
  template <transport Net, class X, class Op, class Store, class T>
  static constexpr bool reduces = requires(const Schedule& s, const Topology& t, channel<Net> net, X x, Op op, Store st,
                                           residual_view<T> residual) { s(net, t, x, op, st, residual); } ||
                                  requires(const Schedule& s, channel<Net> net, X x, Op op, Store st,
                                           residual_view<T> residual) { s(net, x, op, st, residual); };

  [[nodiscard]] selector::topk_bounds bounds(std::uint64_t n) const {
    if constexpr (selector_with_bounds<Selector>)
      return select.bounds(n);
    else
      return {0, n, n};
  }
  /// A selector without `period` computes its threshold, if it has one, in every call.
  [[nodiscard]] std::uint64_t period() const noexcept {
    if constexpr (requires { select.period; })
      return select.period;
    else
      return 1;
  }

  template <transport Net, class X, class Op, class Store, class T>
  auto call(channel<Net> net, X x, Op op, Store storing, residual_view<T> residual) const& {
    if constexpr (requires { by(net, over, x, op, storing, residual); })
      return by(net, over, x, op, storing, residual);
    else
      return by(net.in_order(over.order()), x, op, storing, residual);
  }

  template <transport Net, element T, index_type Index, class Op>
  task<sparse_stream<T, Index>> reduce_stream(channel<Net> net, stream_view<T, Index> mine, Op op,
                                              residual_view<T> residual) const& {
    if constexpr (has_stream_codec<Storage>)
      return call(net, mine, op, store, residual);
    else if constexpr (sums_in_code<Storage> || reduces<Net, std::span<T>, Op, Storage, T>)
      return as_values(net, mine, op, residual);
    else
      return as_dense_stream(net, mine, op, residual);
  }
  /// Reduces dense values in place. If the schedule reduces only streams, the values are sent as a stream with indices
  /// of type `Index`.
  template <index_type Index, transport Net, element T, class Op>
  task<void> reduce_values(channel<Net> net, std::span<T> x, Op op, residual_view<T> residual) const& {
    if constexpr (sums_in_code<Storage>)
      return sum_in_code(net, x, op, store, of_codes(), residual);
    else if constexpr (reduces<Net, std::span<T>, Op, Storage, T>)
      return call(net, x, op, store, residual);
    else
      return as_stream<Index>(net, x, op, residual);
  }

  template <transport Net, element T, index_type Index, class Op>
  task<sparse_stream<T, Index>> as_values(channel<Net> net, stream_view<T, Index> mine, Op op,
                                          residual_view<T> residual) const& {
    sparse_stream<T, Index> sum = to_dense(net, mine, op);
    auto running = reduce_values<Index>(net, sum.values(), op, residual);
    co_await std::move(running);
    co_return sum;
  }
  template <transport Net, element T, index_type Index, class Op>
  task<sparse_stream<T, Index>> as_dense_stream(channel<Net> net, stream_view<T, Index> mine, Op op,
                                                residual_view<T> residual) const& {
    const sparse_stream<T, Index> all = to_dense(net, mine, op);
    auto running = call(net, all.view(), op, store, residual);
    co_return co_await std::move(running);
  }
  template <index_type Index, transport Net, element T, class Op>
  task<void> as_stream(channel<Net> net, std::span<T> x, Op op, residual_view<T> residual) const& {
    auto running = call(net, dense_view<Index>(std::span<const T>(x)), op, store, residual);
    const sparse_stream<T, Index> sum = co_await std::move(running);
    net.work().write_dense(sum.view(), x, op);
  }

  /// Replaces `x` by the sum of the selected entries.
  template <transport Net, element T, class Op>
  task<void> replace(channel<Net> net, std::span<T> x, Op op) const& {
    state now{};
    report last{};
    const selector::nothing_to_prepare prepare;
    const residual_view<T> nothing; // as the result overwrites what a residual would be
    auto running = select_and_reduce<std::uint32_t>(net, &now, &last, x, nothing, op, prepare);
    const selected_sum<T, std::uint32_t> result = co_await std::move(running);
    net.work().write_dense(result.sum.view(), x, op);
  }
  template <transport Net, element T, index_type Index, class Op>
  task<selected_sum<T, Index>> keep_sum(channel<Net> net, sparse_stream<T, Index> mine, residual_view<T> residual,
                                        Op op) const& {
    if constexpr (selects_entries) {
      auto running = reduce_stream(net, mine.view(), op, residual);
      sparse_stream<T, Index> sum = co_await std::move(running);
      co_return selected_sum<T, Index>(std::move(sum), std::move(mine));
    } else {
      auto sum = net.work().duplicate(mine.view());
      auto running = reduce_values<Index>(net, sum.values(), op, residual);
      co_await std::move(running);
      co_return selected_sum<T, Index>(std::move(sum), std::move(mine));
    }
  }
  template <index_type Index, transport Net, element T, class Op, class Prepare>
  task<selected_sum<T, Index>> select_and_reduce(channel<Net> net, state* now, report* last, std::span<T> x,
                                                 residual_view<T> residual, Op op, Prepare prepare) const& {
    const double begin = net.net().now();
    decltype(auto) work = net.work();
    sparse_stream<T, Index> mine = co_await select.template operator()<Index>(work, x, now->select, prepare);
    work.validate(mine.view());
    *last = {.selected = mine.count(), .select_seconds = net.net().now() - begin};
    net.compute(0); // separates the selection from the next computation in a trace; costs nothing
    auto running = reduce_selected(net, now, last, std::move(mine), residual, op);
    co_return co_await std::move(running);
  }
  /// Moves all values of `x` to a dense stream.
  template <index_type Index, transport Net, element T, class Prepare>
  static sparse_stream<T, Index> take_all(channel<Net> net, report* last, std::span<T> x, Prepare prepare) {
    prepare(0, x.size());
    *last = {.selected = x.size()};
    auto mine = sparse_stream<T, Index>::dense(net.work().memory(), x.size(), 0, x.size());
    net.work().copy(mine.values().data(), std::span<const T>(x));
    net.work().fill(x, T{});
    return mine;
  }
};

namespace detail {

/// Whether `Algorithm` is a composition whose selector takes entries from dense values; false for every other
/// algorithm.
template <class Algorithm>
inline constexpr bool selects_entries = false;
template <class Selector, class Storage, class Topology, class Schedule>
inline constexpr bool selects_entries<composition<Selector, Storage, Topology, Schedule>> =
    composition<Selector, Storage, Topology, Schedule>::selects_entries;

template <class Algorithm, class T, class Index>
inline constexpr bool stores_values = true;
template <class Selector, class Storage, class Topology, class Schedule, class T, class Index>
inline constexpr bool stores_values<composition<Selector, Storage, Topology, Schedule>, T, Index> =
    composition<Selector, Storage, Topology, Schedule>::template stores<T, Index>;

/// Stops the compilation with a sentence if `Algorithm` is a composition whose selector selects no values of T over
/// `Net`, or whose storage does not encode them. Returns whether not, so that no other error follows.
template <class Algorithm, class Net, class T, class Index = std::uint32_t>
constexpr bool expect_parts_for() {
  static_assert(
      stores_values<Algorithm, T, Index>,
      "the storage does not encode values of this type: a storage that rounds takes floating-point values "
      "only, of which zfp, zfp_field and bound take float and double; for values of 16 bits, use qsgd, mx, as_half or "
      "as_bfloat16, or copy the values to float; packed takes integers of 32 and 64 bits");
  if constexpr (!stores_values<Algorithm, T, Index>)
    return false;
  else if constexpr (selects_entries<Algorithm>)
    return expect_selector<typename Algorithm::selector_type, T, Index, workspace_of<Net>>();
  else
    return true;
}

} // namespace detail

} // namespace spar::inline v0_1
