// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems that spar_perf compares. To add a system, add a line to `register_systems`
// and the name to `system_names`.
#pragma once

#include "any_algorithm.hpp"
#include "element_types.hpp"
#include "feedback.hpp"
#include "options.hpp"
#include "partial_name.hpp"
#include "registry_base.hpp"
#include "report.hpp"
#include "system_names.hpp"

#include <spar/model/flex_cost.hpp>
#include <spar/spar.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/tree.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar::perf {

/// One rank's contribution and result. The dense vectors are empty unless a system takes dense vectors.
template <class T, class Index>
struct rank_data {
  std::uint64_t n = 0;
  std::vector<Index> indices;
  std::vector<T> values;
  std::vector<T> dense_in;
  std::vector<T> dense_out;
  bool in_place = false; ///< dense_out is both input and output

  spar::sparse_stream<T, Index> sum;
  spar::stream_view<T, Index> result;

  [[nodiscard]] auto sparse() const { return spar::sparse_view(n, indices, values); }
};

/// MPI_Allreduce of n values, from `in` to `out`; in place if `in` is null.
using mpi_allreduce = std::function<void(const void* in, void* out, std::uint64_t n)>;

/// The cost of one call on one rank.
struct call_cost {
  double seconds = 0;
  bool counted = false; ///< whether `cost` is known
  spar::statistics cost;
  std::optional<device_calls> device{};   ///< of a system on values in device memory, if they are counted
  std::optional<double> select_seconds{}; ///< part of `seconds` for selection, if the system reports it
  bool selects_inside = false; ///< whether the collective itself selects, so that a trace shows this as a computation
  int active = 0;              ///< of a partial system: number of ranks whose own call is in the result
  std::uint64_t stale = 0;     ///< of a partial system: rounds by which the oldest call in the result is late
};

/// A system on one rank, with the state of the rank.
template <class T, class Index>
struct rank_system {
  std::function<spar::task<call_cost>(measured_net&, rank_data<T, Index>&)> call;
  std::function<std::span<const T>()> residual; ///< empty for systems without a residual
  std::function<void(measured_net&, const rank_data<T, Index>&)>
      prepare{}; ///< before each call, not timed; may be empty
  /// Completes `data.result` once the calls of all ranks have ended, not timed; may be empty.
  std::function<void(measured_net&, rank_data<T, Index>&)> fetch{};
  // Only of partial systems: collective calls before the first call and after the last call, in the same order on all
  // ranks:
  std::function<void(measured_net&)> open{};
  std::function<spar::task<call_cost>(measured_net&, rank_data<T, Index>&)> drain{}; ///< sums what no round included
};

/// A system as the inner system of partial systems, on one rank.
template <class T, class Index>
struct inner_system {
  any_allreduce<T, Index> algorithm;
  bool dense = false;                ///< whether it reduces dense values, else streams
  std::shared_ptr<const void> owner; ///< of what `algorithm` and `selecting` refer to
  std::function<std::span<const T>()> residual;
  std::optional<any_selecting<T, Index>> selecting{}; ///< if the system selects: what its error feedback calls
};

/// Whether partial systems exist for these types; they take long to compile, so they are limited to float with 32-bit
/// indices.
template <class T, class Index>
inline constexpr bool has_partial = std::same_as<T, float> && std::same_as<Index, std::uint32_t>;

template <class T, class Index>
struct system_entry {
  std::string name;
  bool dense = false;        ///< takes a dense vector
  bool feedback = false;     ///< selects entries from the dense vector, and keeps a residual
  double relative_error = 0; ///< bound of |error| / the largest |sum|
  std::uint64_t k = 0;       ///< number of entries that it selects
  std::function<rank_system<T, Index>()> on_rank;
  std::optional<double> model_seconds{}; ///< expected time by the bandwidth and latency of the tree's links
  std::optional<spar::flex_plan::call_counts> plan_calls{}; ///< if the system has a plan
  bool partial = false;
  bool is_mpi = false;                              ///< MPI_Allreduce
  std::function<inner_system<T, Index>()> within{}; ///< the inner system for partial systems; may be empty
  double value_error = 0;                           ///< bound of |error| / the sum of all ranks' largest |value|
  bool same_bits = true;                            ///< whether all ranks get the same bits: false only for +p2p
  std::string_view memory = "host";                 ///< where the values are; see `device_memory`
};

namespace detail {

/// An algorithm with the name of its system.
template <class Algorithm>
struct named_algorithm {
  std::string system;
  Algorithm algorithm;
};

template <class T, class Index>
using feedback_of = spar::error_feedback<T, any_selecting<T, Index>, Index>;

/// A rank's error feedback as the inner algorithm of a partial system.
template <class Reducer>
struct feedback_within : spar::algorithm_defaults {
  static constexpr std::string_view name = "feedback";
  Reducer* reducer;

  explicit feedback_within(Reducer& its) noexcept : reducer(&its) {}
  template <class T>
  spar::task<void> operator()(channel net, std::span<T> x, spar::sum op) const& {
    return (*reducer)(net, x, op);
  }
};

// Coroutines: parameters are values, or pointers and references to objects that outlive the coroutine.

/// `from` selects the contribution from the dense vector; null if the contribution is already sparse.
template <class T, class Index>
spar::task<call_cost> call_sparse(measured_net& net, rank_data<T, Index>* data, any_allreduce<T, Index> algorithm,
                                  std::shared_ptr<selection<T, Index>> from) {
  call_cost call;
  const double start = net.now();
  const auto mine = from ? (*from)(net, data->dense_in) : data->sparse();
  auto pending = spar::start_allreduce(net, mine, algorithm);
  data->sum = co_await std::move(pending);
  call.seconds = net.now() - start;
  if (from) call.select_seconds = from->seconds;
  call.counted = true;
  call.cost = pending.statistics();
  data->result = data->sum.view();
  co_return call;
}

template <class T, class Index>
spar::task<call_cost> call_dense(measured_net& net, rank_data<T, Index>* data, any_allreduce<T, Index> algorithm) {
  call_cost call;
  const double start = net.now();
  const std::span<T> out(data->dense_out);
  auto pending = data->in_place ? spar::start_allreduce(net, out, algorithm)
                                : spar::start_allreduce(net, std::span<const T>(data->dense_in), out, algorithm);
  co_await std::move(pending);
  call.seconds = net.now() - start;
  call.counted = true;
  call.cost = pending.statistics();
  data->result = spar::dense_view<Index>(data->dense_out);
  co_return call;
}

template <class T, class Index>
spar::task<call_cost> call_feedback(measured_net& net, rank_data<T, Index>* data, feedback_of<T, Index>* reducer) {
  call_cost call;
  const double start = net.now();
  auto pending = reducer->start_reduce(net, std::span<const T>(data->dense_in));
  auto result = co_await std::move(pending);
  call.seconds = net.now() - start;
  if (reducer->algorithm().reports_seconds()) {
    call.select_seconds = reducer->report().select_seconds();
    call.selects_inside = true;
  }
  call.counted = true;
  call.cost = pending.statistics();
  data->sum = std::move(result.sum);
  data->result = data->sum.view();
  co_return call;
}

/// MPI_Allreduce as a task that never suspends, so that `measure` can call it like the other systems.
template <class T, class Index>
spar::task<call_cost> call_mpi(measured_net& net, rank_data<T, Index>* data, mpi_allreduce reduce) {
  call_cost call;
  const double begin = net.now();
  reduce(data->in_place ? nullptr : data->dense_in.data(), data->dense_out.data(), data->dense_out.size());
  call.seconds = net.now() - begin;
  data->result = spar::dense_view<Index>(data->dense_out);
  co_return call;
}

} // namespace detail

template <class T, class Index>
class registry : public registry_base<T, Index> {
  using base = registry_base<T, Index>;

 public:
  using entry = system_entry<T, Index>;
  using on_rank = rank_system<T, Index>;
  using base::base, base::density, base::k, base::keep, base::planned, base::topology;

  /// Adds an algorithm that spar::allreduce accepts (a composition or a part of one) if it can be called with the
  /// types. An algorithm for both sparse streams and dense vectors gets the sparse stream at densities below 1, and the
  /// dense vector at density 1. With --input dense, the sparse stream is selected from a dense vector, with error
  /// feedback. `relative_error` bounds |error| / the largest |sum| of a lossy algorithm.
  template <class Given>
  void add(std::string name, Given given, double relative_error = 0) {
    const auto algorithm = spar::detail::as_algorithm(std::move(given));
    constexpr bool streams = takes_streams<decltype(algorithm)>, values = takes_values<decltype(algorithm)>;
    check_takes<streams || values>();
    if constexpr (streams && values) {
      if (density() == 1)
        register_values(std::move(name), algorithm, relative_error);
      else
        register_streams(std::move(name), algorithm, relative_error);
    } else if constexpr (streams) {
      register_streams(std::move(name), algorithm, relative_error);
    } else if constexpr (values) {
      register_values(std::move(name), algorithm, relative_error);
    }
  }
  /// Like `add`, but passes the sparse stream at every density.
  template <class Given>
  void add_streams(std::string name, Given given, double relative_error = 0) {
    const auto algorithm = spar::detail::as_algorithm(std::move(given));
    constexpr bool streams = takes_streams<decltype(algorithm)>;
    check_takes<streams>();
    if constexpr (streams) register_streams(std::move(name), algorithm, relative_error);
  }
  /// Like `add`, but passes the dense vector at every density.
  template <class Given>
  void add_values(std::string name, Given given, double relative_error = 0) {
    const auto algorithm = spar::detail::as_algorithm(std::move(given));
    constexpr bool values = takes_values<decltype(algorithm)>;
    check_takes<values>();
    if constexpr (values) register_values(std::move(name), algorithm, relative_error);
  }

  /// Declares that the last system added is lossy. `value_error` bounds |error| / the sum of all ranks' largest
  /// |value|; the error depends on the contributions because their sum may be smaller. `same_bits`: whether all ranks
  /// get the same bits.
  void is_lossy(double value_error, bool same_bits) {
    entries_.back().value_error = value_error;
    entries_.back().same_bits = same_bits;
  }

  /// Adds an algorithm that spar::error_feedback accepts, such as a composition with a selector. Each rank keeps a
  /// residual.
  template <class Algorithm>
  [[gnu::cold]] void add_feedback(std::string name, Algorithm algorithm) {
    const auto owned = own(name, std::move(algorithm));
    const auto make = [owned] {
      return std::make_shared<detail::feedback_of<T, Index>>(any_selecting<T, Index>(owned->system, owned->algorithm));
    };
    entries_.push_back({std::move(name), true, true, 0, k(), [owned, make] {
                          const auto reducer = make();
                          return on_rank{[reducer, owned](measured_net& net, rank_data<T, Index>& data) {
                                           return detail::call_feedback(net, &data, reducer.get());
                                         },
                                         [reducer] { return reducer->residual(); }};
                        }});
    if constexpr (has_partial<T, Index>) {
      entries_.back().within = [owned, make] {
        const auto reducer = make();
        using within = detail::feedback_within<detail::feedback_of<T, Index>>;
        const auto inner = std::make_shared<const within>(*reducer);
        const auto owner = std::make_shared<std::array<std::shared_ptr<const void>, 3>>();
        *owner = {owned, reducer, inner};
        return inner_system<T, Index>{
            {owned->system, *inner}, true, owner, [reducer] { return reducer->residual(); }, reducer->algorithm()};
      };
    }
  }

  /// Adds FlexReduce with the plan that `make` computes for the tree.
  [[gnu::cold]] void add_planned(std::string name, spar::flex_plan (*make)(const spar::tree&, std::uint64_t)) {
    const auto plan = keep(make(topology(), planned(name)));
    add(std::move(name), spar::flexreduce(*plan));
    if (plan->dimension() == 0) return;
    entries_.back().plan_calls = plan->counts();
    add_model([&] { return spar::seconds_of_plan(topology(), *plan, sizeof(T)); });
  }
  /// Sets the expected time of the last system added, if the density is 1 and a tree was given.
  template <class Model>
  void add_model(Model seconds) {
    if (this->given().topology != "auto" && density() == 1) entries_.back().model_seconds = seconds();
  }
  /// Adds MPI_Allreduce.
  void add_mpi(const mpi_allreduce& reduce) {
    const auto call = [reduce](measured_net& net, rank_data<T, Index>& data) {
      return detail::call_mpi(net, &data, reduce);
    };
    entries_.push_back({"mpi", true, false, 0, k(), [=] { return on_rank{call, no_residual}; }});
    entries_.back().is_mpi = true;
  }

  /// Adds ncclAllReduce, which only `device_memory` can call.
  void add_nccl() {
    entries_.push_back({std::string(nccl_system), true, false, 0, k(), [] { return on_rank{}; }});
  }

  void add(entry system) { entries_.push_back(std::move(system)); }

  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return entries_; }

 private:
  static std::span<const T> no_residual() { return {}; }

  // In parentheses, because nvcc 13.0 takes the commas for those between variables.
  template <class Algorithm>
  static constexpr bool takes_streams =
      (spar::stream_allreduce<std::remove_cv_t<Algorithm>, measured_net, T, Index, spar::sum>);
  template <class Algorithm>
  static constexpr bool takes_values = (spar::dense_allreduce<std::remove_cv_t<Algorithm>, measured_net, T, spar::sum>);
  template <bool Takes>
  static constexpr void check_takes() {
    static_assert(Takes || !has_partial<T, Index>,
                  "this algorithm does not accept the input of the system: sparse streams or dense values");
  }

  template <class Algorithm>
  static auto own(const std::string& name, Algorithm algorithm) {
    return std::make_shared<const detail::named_algorithm<Algorithm>>(name, std::move(algorithm));
  }

  template <class Algorithm>
  [[gnu::cold]] void register_values(std::string name, const Algorithm& algorithm, double relative_error) {
    const auto owned = own(name, algorithm);
    add_dense(std::move(name), relative_error, {owned->system, owned->algorithm}, owned);
  }
  template <class Algorithm>
  [[gnu::cold]] void register_streams(std::string name, const Algorithm& algorithm, double relative_error) {
    const auto owned = own(name, algorithm);
    add_sparse(std::move(name), relative_error, {owned->system, owned->algorithm}, owned);
  }

  using allreduce = any_allreduce<T, Index>;

  [[gnu::cold]] void add_dense(std::string name, double relative_error, const allreduce& algorithm,
                               const std::shared_ptr<const void>& owner) {
    const auto call = [algorithm, owner](measured_net& net, rank_data<T, Index>& data) {
      return detail::call_dense(net, &data, algorithm);
    };
    entries_.push_back({std::move(name), true, false, relative_error, k(), [=] { return on_rank{call, no_residual}; }});
    add_within(algorithm, true, owner);
  }
  [[gnu::cold]] void add_sparse(std::string name, double relative_error, const allreduce& algorithm,
                                const std::shared_ptr<const void>& owner) {
    const bool selects = this->given().dense_input;
    entries_.push_back({std::move(name), selects, selects, relative_error, k(), [=, k = k()] {
                          std::shared_ptr<selection<T, Index>> from;
                          if (selects) from = std::make_shared<selection<T, Index>>(k);
                          return on_rank{[=](measured_net& net, rank_data<T, Index>& data) {
                                           return detail::call_sparse(net, &data, algorithm, from);
                                         },
                                         [=, kept = owner] { return from ? from->residual() : no_residual(); }};
                        }});
    add_within(algorithm, false, owner);
  }
  /// Makes the last system added available to partial systems.
  void add_within(const allreduce& algorithm, bool dense, const std::shared_ptr<const void>& owner) {
    if constexpr (has_partial<T, Index>)
      entries_.back().within = [=] { return inner_system<T, Index>{algorithm, dense, owner, no_residual}; };
  }

  std::vector<entry> entries_;
};

/// Registers all systems under the names that `--systems` accepts. The error of QSGD is below scale / levels, where the
/// scale is at most the largest |sum|; rounding the decoded value to T adds to the error.
template <class Registry>
[[gnu::cold]] void register_systems(Registry& systems) {
  using T = typename Registry::value_type;
  systems.add_streams("sparcml", spar::sparcml{});
  systems.add_streams("ssar_split", spar::ssar_split{});
  systems.add_streams("dsar_split", spar::dsar_split{});
  systems.add("rec_doubling", spar::recursive_doubling{});
  systems.add("ring", spar::ring{});
  const auto leaves = systems.topology().leaves(); // the model assumes a ring through the leaves from left to right
  if (std::is_sorted(leaves.begin(), leaves.end())) {
    systems.add_model([&] { return spar::seconds_ring(systems.topology(), systems.bytes()); });
  }
  systems.add("rabenseifner", spar::rabenseifner{});
  systems.add_model([&] { return spar::seconds_rabenseifner(systems.topology(), systems.bytes()); });
  systems.add_streams("allgather", spar::gather_and_merge{});
  systems.add_values("dense", spar::cheapest{});
  systems.add_values("nonzeros", spar::selector::nonzeros{});
  systems.add_planned("flexreduce", [](const spar::tree& t, std::uint64_t n) { return spar::flex_plan(t, n); });
  systems.add_planned("blueconnect", spar::blueconnect_plan);
  systems.add_planned("hierarchical", spar::flex_plan::hierarchical);
  const auto plans = systems.keep_plans();
  systems.add_values("tree_dense", spar::tree_dense(*plans));
  systems.add_streams("tree_sparcml", spar::tree_sparcml(*plans));
  constexpr double rounding = 2 / static_cast<double>(exact_limit<T>);
  using spar::storage::coo, spar::storage::named_codec, spar::storage::then;
  const auto coded = [](const char* codec) { // one type for all codecs
    return spar::compose(then<coo, named_codec>{{}, named_codec(codec)}, spar::dsar_split{});
  };
  systems.add_streams("dsar_qsgd8", coded("qsgd:8"), 1.0 / 127 + rounding);
  systems.add_streams("dsar_qsgd4", coded("qsgd:4"), 1.0 / 7 + rounding);
  systems.add_streams("dsar_qsgd2", coded("qsgd:2"), 1.0 / 1 + rounding);
  if constexpr (std::same_as<T, float> || std::same_as<T, double>) {
    const options& o = systems.given();
    const std::uint64_t k = systems.k();
    systems.add_feedback("topka", spar::topka_allreduce{.select = {.k = k}});
    systems.add_feedback("gaussiank", spar::gaussiank_allreduce{.select = {.k = k}});
    systems.add_feedback("topkdsa", spar::topkdsa_allreduce{.select = {.k = k}});
    systems.add_feedback("gtopk", spar::gtopk_allreduce{.select = {.k = k}});
    const spar::selector::threshold_reuse select{
        .k = k, .period = static_cast<std::uint64_t>(o.tau_prime), .epsilon = o.epsilon};
    const spar::balanced_owners owners{.tau = o.tau};
    systems.add_feedback("ok_topk", spar::compose(select, owners));
    systems.add_feedback("tree_ok_topk", spar::compose(select, spar::on_tree(*plans), owners));
  }
}

} // namespace spar::perf
