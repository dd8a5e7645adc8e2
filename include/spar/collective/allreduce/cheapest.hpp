// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule `cheapest` runs the algorithm that the network model expects to be the fastest. For streams, the choice
// is that of SparCML (sections 5.3 and 8.1); for dense values, the schedule chooses among dense algorithms with and
// without compression.
#pragma once

#include <spar/collective/allreduce/rabenseifner.hpp>
#include <spar/collective/allreduce/recursive_doubling.hpp>
#include <spar/collective/allreduce/ring.hpp>
#include <spar/collective/allreduce/split_allgather.hpp>
#include <spar/collective/allreduce/sum_if_short.hpp>
#include <spar/collective/compressed/two_shot.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/model/compressed_cost.hpp>
#include <spar/model/cost.hpp>
#include <spar/storage/kernel/nonzero.hpp>
#include <spar/storage/storage.hpp>
#include <spar/transport/threads.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// The three allreduces of streams from which SparCML chooses (section 5.3): recursive doubling, and the
/// split-allgathers with a sparse (SSAR) or a dense (DSAR) second phase.
enum class sparcml_choice { doubling, ssar, dsar };

/// Returns the algorithm that the model `net` expects to be the fastest on P ranks with at most k of n entries each;
/// `p` contains P, k and n. `second_phase_bytes` is the number of bytes of a value in DSAR's second phase.
inline sparcml_choice choose_sparcml(const network_model& net, const call_shape& p,
                                     double second_phase_bytes) noexcept {
  const double doubling = seconds_recursive_doubling(net, p, parts_of_doubling(net, p));
  const double ssar = seconds_ssar_split(net, p);
  const double dsar = seconds_dsar_split(net, p, second_phase_bytes);
  if (doubling <= ssar && doubling <= dsar) return sparcml_choice::doubling;
  return ssar <= dsar ? sparcml_choice::ssar : sparcml_choice::dsar;
}

/// The expected seconds of a call of the shape `p` by the algorithm that `choose_sparcml` returns for the model `net`,
/// the same `p` and the same `second_phase_bytes`.
inline double seconds_sparcml(const network_model& net, const call_shape& p, double second_phase_bytes) noexcept {
  const double split = std::min(seconds_ssar_split(net, p), seconds_dsar_split(net, p, second_phase_bytes));
  return std::min(seconds_recursive_doubling(net, p, parts_of_doubling(net, p)), split);
}

/// Runs the algorithm that the network model expects to be the fastest:
/// - Streams: recursive doubling of coordinates while all streams are short (see sum_if_short). If a stream is not
///   short, the ranks know the largest number of entries of any rank, and all choose the same of recursive doubling,
///   SSAR and DSAR. A block codec encodes only the blocks of DSAR's second phase.
/// - Streams with `storage::coded`, or another stream codec that states its `cost`: the same with or without the codec,
///   which is left out if the model expects coordinates to be at least as fast.
/// - Dense values: recursive doubling, Rabenseifner's algorithm or the ring. The ranks need not agree on anything
///   first, because all ranks know n.
/// - Dense values with a block codec other than `storage::dense`: the compressed ring, compressed recursive doubling,
///   `two_shot` or `one_shot`, unless the model expects an algorithm without compression to be at least as fast.
///   `compression` returns the choice and the reason.
/// - Dense values over a tree: the choice depends on the model of the tree's links (see tree_dense), not on `pin`.
///
/// All ranks must choose by the same model: `pin`, or the model of the transport (see set_network). A program that
/// measures the model anew in each run may get different algorithms, and therefore different bits of the result, in
/// different runs; set `pin` to a fixed model to prevent such differences.
struct cheapest {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "cheapest";
  /// Whether dense values may be in any memory: those of all algorithms from which this chooses may.
  template <class Storage>
  static constexpr bool values_anywhere = true;
  /// Whether streams may be in any memory: those of all algorithms from which this chooses may.
  static constexpr bool streams_anywhere = true;

  /// The network model, for example `read_network("file")`. If empty, `cheapest` uses the model of the transport.
  std::optional<network_model> pin{};

  template <class Selector, class Storage, class Topology>
  static nothing_against accepts();
  /// Throws `invalid_argument` if a parameter of the model `pin` is negative, infinite or NaN.
  void validate(std::uint64_t) const {
    if (pin) detail::check_network(*pin, "the network model `pin` of cheapest");
  }
  void options(auto&& f) const {
    if (!pin) return;
    f("alpha", pin->alpha), f("beta", pin->beta);
    f("gamma_sparse", pin->gamma_sparse), f("gamma_dense", pin->gamma_dense), f("gamma_coded", pin->gamma_coded),
        f("alpha_shared", pin->alpha_shared);
  }

  /// The largest number of successive encodings of a rank's values on their way to the result, for each algorithm from
  /// which this chooses.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept {
    return std::max(std::max(ring::encodings(ranks), recursive_doubling::encodings(ranks)),
                    ssar_split::encodings(ranks));
  }
  /// The largest number of additions that a rank's values pass on their way to the result.
  [[nodiscard]] static constexpr std::int64_t additions(rank_t ranks) noexcept { return ring::additions(ranks); }

  /// Allreduce of streams. Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                           residual_view<T> residual = {}) const&;

  /// Allreduce of dense values in place. Adds the rounding errors of this rank's encodings to `residual`, unless
  /// `residual` is empty.
  template <transport Net, element T, reduction<T> Op, class Storage = storage::coo>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op, Storage store = {},
                        residual_view<T> residual = {}) const& {
    if constexpr (storage::plain_blocks<Storage>)
      return plain(net, x, op);
    else
      return compressed(net, x, op, storage::blocks_of(store), residual);
  }

  /// Allreduce in place of dense values `x` of which few are nonzero: the ranks move their nonzeros to streams and
  /// reduce these. If a rank has more nonzeros than `most_nonzeros`, all ranks reduce the dense values instead. A
  /// result that is zero has the sign + unless the dense values of all ranks were reduced.
  template <transport Net, element T, reduction<T> Op, class Storage>
    requires(storage::plain_blocks<Storage> && workspace_of<Net>::moves_nonzeros)
  task<void> reduce_nonzeros(channel<Net> net, std::span<T> x, Op op, Storage store) const& {
    if (net.size() == 1) co_return; // `x` is the result
    using stream = sparse_stream<T, std::uint32_t>;
    const std::uint64_t most = most_nonzeros<T>(store, model_of(net), net.size(), x.size());
    auto own = stream::sparse(net.memory(), x.size(), most);
    bool dense = kernel::seems_fuller(x.data(), x.size(), most);
    const auto put_back = [x, &own] { kernel::scatter_assign(std::as_const(own).view().entries(), 0, x.data()); };
    if (!dense) {
      const auto taken = kernel::take_nonzero<kernel::negative_zeros::clear>(
          x.data(), x.size(), 0, own.indices().data(), own.values().data(), most);
      own.shrink(taken.count);
      dense = taken.seen < x.size();
      if (dense) put_back();
    }
    net.compute(0); // separates the selection from the next computation in a trace; the cost model ignores it
    const auto mine = dense ? dense_view<std::uint32_t>(std::span<const T>(x)) : std::as_const(own).view();
    const auto otherwise = [&, this, among = stream_algorithms()](std::uint64_t k) mutable {
      if (k <= most) return start_fastest(among, net, mine, op, store, residual_view<T>(), k);
      if (!dense) put_back();
      return values_of_nonzeros(net.with_algorithm("plain"), x, op);
    };
    auto running = sum_if_short(net, mine, op, otherwise);
    const stream sum = co_await std::move(running);
    if (sum.is_dense())
      kernel::detail::copy(x.data(), sum.values().data(), x.size());
    else
      kernel::scatter_assign(sum.view().entries(), 0, x.data()); // all other values are zeros, or the result already
  }

  /// Allreduce of dense values in place, over a topology that chooses the algorithm itself in a function
  /// `cheapest_over`, as `on_tree` does.
  template <transport Net, class Topology, element T, reduction<T> Op, class Storage>
    requires requires(channel<Net> net, const Topology& over, std::span<T> x, Op op, Storage store) {
      cheapest_over(net, over, x, op, store, residual_view<T>());
    }
  task<void> operator()(channel<Net> net, const Topology& over, std::span<T> x, Op op, Storage store,
                        residual_view<T> residual) const& {
    return cheapest_over(net, over, x, op, store, residual);
  }

  /// Returns the allreduce of n dense values of T on `ranks` ranks that `model` expects to be the fastest, with or
  /// without compression by `codec`, and the expected seconds of the compared allreduces.
  template <element T, class Codec>
  [[nodiscard]] static compression_choice compression(const Codec& codec, const network_model& model, rank_t ranks,
                                                      std::size_t n) {
    static_assert(block_codec<Codec, T>,
                  "cheapest::compression takes a block codec for values of T, such as storage::qsgd<8>, and no "
                  "composition; instead of storage::bound, pass the codec of its sums, which are integers: "
                  "compression<std::int32_t>(storage::packed{.bits = b}, model, ranks, n)");
    if constexpr (block_codec<Codec, T>)
      return {model, dense_shape<T>(ranks, n), spar::model_of<T>(codec, model)};
    else
      return {model, {}, {}};
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  template <transport Net>
  [[nodiscard]] network_model model_of(const channel<Net>& net) const {
    return pin ? *pin : net.net().node().network();
  }
  /// The number of bytes of a value in a dense block. If the storage encodes dense blocks, this is the mean over a
  /// block of 65536 values.
  template <element T, class Storage>
  static double block_bytes(const Storage& store) {
    if constexpr (storage::plain_blocks<Storage>)
      return sizeof(T);
    else
      return static_cast<double>(storage::blocks_of(store).template encoded_bytes<T>(65536)) / 65536;
  }

  /// The algorithms for streams that are not short. The object must outlive the task of `start_fastest`.
  struct stream_algorithms {
    recursive_doubling doubling;
    ssar_split ssar;
    dsar_split dsar;
  };
  /// What the model expects of streams with at most k entries on each rank.
  struct stream_plan {
    call_shape call;
    bool codes = true; // whether the stream codec encodes the entries
    double second_phase_bytes = 0;
    [[nodiscard]] double seconds(const network_model& model) const noexcept {
      return seconds_sparcml(model, call, second_phase_bytes);
    }
  };
  template <element T, index_type Index, class Storage>
  static stream_plan plan_streams(const Storage& store, const network_model& model, rank_t ranks, std::uint64_t n,
                                  std::uint64_t k) {
    const auto codec = storage::streams_of(store);
    stream_plan plan{shape_of<T, Index>(codec, model, ranks, n, k), true, block_bytes<T>(store)};
    if constexpr (detail::states_cost<storage::streams_type<Storage>, T>) {
      stream_plan plain = plan;
      plain.call = shape_of<T, Index>(storage::coo{}, model, ranks, n, k);
      plain.codes = false;
      if (plain.seconds(model) <= plan.seconds(model)) return plain;
    }
    return plan;
  }
  /// The most nonzeros of n values with which the model expects streams to be faster than the dense values, in steps of
  /// a 256th of delta.
  template <element T, class Storage>
  static std::uint64_t most_nonzeros(const Storage& store, const network_model& model, rank_t ranks, std::uint64_t n) {
    const double values = seconds_dense(model, dense_shape<T>(ranks, n));
    const std::uint64_t delta = dense_threshold<T, std::uint32_t>(n);
    const auto pays = [&](std::uint64_t k) {
      const stream_plan plan = plan_streams<T, std::uint32_t>(store, model, ranks, n, k);
      const double result = plan.call.expected_union(ranks);
      return plan.seconds(model) + plan.call.in_place_seconds(model, result) < values;
    };
    std::uint64_t most = 0;
    for (std::uint64_t step = 128; step > 0; step /= 2) {
      if (pays(delta / 256 * (most + step))) most += step;
    }
    return delta / 256 * most;
  }

  /// Starts the algorithm of `among` that the model expects to be the fastest for streams with at most k entries on
  /// each rank. Sets the options of this algorithm.
  template <transport Net, element T, index_type Index, class Op, class Storage>
  task<sparse_stream<T, Index>> start_fastest(stream_algorithms& among, channel<Net> net, stream_view<T, Index> mine,
                                              Op op, const Storage& store, residual_view<T> residual,
                                              std::uint64_t k) const& {
    const network_model model = model_of(net);
    const stream_plan plan = plan_streams<T, Index>(store, model, net.size(), mine.dimension(), k);
    among.doubling.dense_from = plan.call.dense_fraction(model);
    among.doubling.parts = parts_of_doubling(model, plan.call);
    const auto chosen = choose_sparcml(model, plan.call, plan.second_phase_bytes);
    const auto start = [&](const auto& used) {
      switch (chosen) {
      case sparcml_choice::doubling:
        return among.doubling(net.with_algorithm(among.doubling.name), mine, op, storage::streams_of(used), residual);
      case sparcml_choice::ssar:
        return among.ssar(net.with_algorithm("ssar"), mine, op, storage::streams_of(used), residual);
      default:
        return among.dsar(net.with_algorithm("dsar"), mine, op, used, residual);
      }
    };
    if constexpr (detail::states_cost<storage::streams_type<Storage>, T>) {
      if (!plan.codes) return start(storage::with_coordinates(store));
    }
    return start(store);
  }

  template <element T>
  static call_shape dense_shape(rank_t ranks, std::uint64_t n) noexcept {
    return {ranks, static_cast<double>(n), static_cast<double>(n), sizeof(T), 4};
  }
  template <transport Net, element T, class Op>
  task<void> plain(channel<Net> net, std::span<T> x, Op op) const&;

  /// Reduces the dense values `x` for `reduce_nonzeros`. Returns an empty stream: `x` has all of the result.
  template <transport Net, element T, class Op>
  task<sparse_stream<T, std::uint32_t>> values_of_nonzeros(channel<Net> net, std::span<T> x, Op op) const& {
    auto running = plain(net, x, op);
    co_await std::move(running);
    co_return sparse_stream<T, std::uint32_t>();
  }

  template <transport Net, element T, class Op, class Codec>
  task<void> compressed(channel<Net> net, std::span<T> x, Op op, Codec codec, residual_view<T> residual) const& {
    const auto chosen = compression<T>(codec, model_of(net), net.size(), x.size()).chosen;
    const ring around;
    const recursive_doubling doubling;
    const two_shot in_two;
    const one_shot in_one;
    const auto start = [&] {
      switch (chosen) {
      case compression_choice::algorithm::compressed_ring:
        return around(net.with_algorithm("compressed_ring"), x, op, codec, residual);
      case compression_choice::algorithm::compressed_doubling:
        return doubling(net.with_algorithm("compressed_recursive_doubling"), x, op, codec, residual);
      case compression_choice::algorithm::two_shot:
        return in_two(net.with_algorithm(in_two.name), x, op, codec, residual);
      case compression_choice::algorithm::one_shot:
        return in_one(net.with_algorithm(in_one.name), x, op, codec, residual);
      default:
        return plain(net.with_algorithm("plain"), x, op);
      }
    };
    auto running = start();
    co_await std::move(running);
  }
};

/// \cond
template <transport Net, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> cheapest::operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store,
                                                   residual_view<T> residual) const& {
  return sum_if_short(net, mine, op,
                      [this, net, mine, op, store, residual, among = stream_algorithms()](std::uint64_t k) mutable {
                        return start_fastest(among, net, mine, op, store, residual, k);
                      });
}

template <transport Net, element T, class Op>
task<void> cheapest::plain(channel<Net> net, std::span<T> x, Op op) const& {
  const call_shape call = dense_shape<T>(net.size(), x.size());
  const network_model model = model_of(net);
  const double by_doubling = seconds_dense_recursive_doubling(model, call);
  const double by_halving = seconds_rabenseifner(model, call);
  // The factor 0.99 prefers the ring if the model expects nearly equal times. On real networks, the ring's messages,
  // which go one way on each connection, are faster than pairwise exchanges, but the model does not show that.
  const double by_ring = 0.99 * seconds_ring(model, call);
  static constexpr recursive_doubling doubling; // the tasks refer to these objects
  static constexpr rabenseifner halving;
  static constexpr ring around;
  if (by_doubling <= by_halving && by_doubling <= by_ring) return doubling(net, x, op);
  return by_halving <= by_ring ? halving(net, x, op) : around(net, x, op);
}

#ifdef SPAR_COMPILED // the library has these functions (src/schedules), so programs need not compile them
extern template task<void> cheapest::plain(channel<threads_port>, std::span<float>, sum) const&;
extern template task<void> cheapest::plain(channel<threads_port>, std::span<double>, sum) const&;
extern template task<sparse_stream<float, std::uint32_t>> cheapest::operator()(channel<threads_port>,
                                                                               stream_view<float, std::uint32_t>, sum,
                                                                               storage::coo,
                                                                               residual_view<float>) const&;
extern template task<sparse_stream<double, std::uint32_t>> cheapest::operator()(channel<threads_port>,
                                                                                stream_view<double, std::uint32_t>, sum,
                                                                                storage::coo,
                                                                                residual_view<double>) const&;
#endif
/// \endcond

} // namespace spar::inline v0_1
