// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Registers partial allreduces, which run any other system as their inner system (eager-SGD).
#pragma once

#include "partial_name.hpp"
#include "systems.hpp"

#include <spar/system/partial_allreduce.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace spar::perf {

namespace detail {

// A partial allreduce takes long to compile. To keep the number of instantiations small, there is one type for all
// inner algorithms (any_allreduce) and one for solo and majority, and all participations share the code that follows
// the start of a call.

struct solo_or_majority {
  static constexpr std::string_view name = "initiated";
  bool solo = true;
  spar::majority drawn{};

  static constexpr void validate(spar::rank_t) noexcept {}
  void options(auto&& f) const { f("solo", std::uint64_t{solo}), f("drawn", drawn); }
  [[nodiscard]] bool initiates(spar::rank_t rank, std::uint64_t round, spar::rank_t ranks) const noexcept {
    return solo || drawn.initiates(rank, round, ranks);
  }
};

/// One rank's handle of a partial allreduce, of dense values or of sparse streams.
template <class Argument, class Result>
struct rounds {
  std::function<spar::pending<measured_net, Result>(const Argument&)> call, drain;
};
using dense_rounds = rounds<std::span<float>, spar::participants>;
using stream_rounds = rounds<spar::stream_view<float>, spar::partial_sum<float, std::uint32_t>>;

template <class Rounds, class Values, class Who, class Inner>
Rounds rounds_of(measured_net& net, std::uint64_t n, const Who& who, const Inner& inner, std::uint64_t tau) {
  spar::partial_options options;
  options.tau = tau;
  const auto make = [&] { return spar::partial_allreduce<Values>(net, n, who, inner, spar::sum{}, options); };
  const std::shared_ptr<decltype(make())> its(new auto(make()));
  return {[its](const auto& x) { return its->start(x); }, [its](const auto& x) { return its->start_drain(x); }};
}

template <class Rounds, class Values, class Inner>
Rounds open_rounds(measured_net& net, const options& o, const partial_name& name, const Inner& inner) {
  const auto with = [&](const auto& who) { return rounds_of<Rounds, Values>(net, o.count, who, inner, o.tau); };
  switch (name.who) {
  case partial_name::kind::everyone:
    return with(spar::everyone{});
  case partial_name::kind::quorum:
    return with(spar::quorum{name.quorum, o.seed});
  default:
    return with(solo_or_majority{name.who == partial_name::kind::solo, {o.seed}});
  }
}

/// State that one rank keeps from call to call.
struct partial_state {
  inner_system<float, std::uint32_t> inner;
  std::shared_ptr<selection<float, std::uint32_t>>
      from; // selects the stream from the dense vector; null if the input is sparse
  dense_rounds dense;
  stream_rounds streams;
};

/// Whether the rank has a progress thread; a call must then be waited for with wait(), not awaited in a coroutine.
inline bool is_served(measured_net& net) { return net.port().node().shared() != nullptr; }
template <class Call>
void note_call(call_cost& cost, double seconds, const Call& call, const spar::participants& by) {
  cost.seconds = seconds;
  cost.counted = true;
  cost.cost = call.statistics();
  cost.active = by.fresh();
  cost.stale = by.staleness();
}

// Coroutines: parameters are values, or pointers and references to objects that outlive the coroutine. With `last` they
// drain: the result is the sum of the contributions that no round included.

inline spar::task<call_cost> call_dense_rounds(measured_net& net, rank_data<float, std::uint32_t>* data,
                                               partial_state* its, bool last) {
  call_cost cost;
  const double start = net.now();
  if (!data->in_place) std::copy(data->dense_in.begin(), data->dense_in.end(), data->dense_out.begin());
  const std::span<float> x(data->dense_out);
  auto pending = last ? its->dense.drain(x) : its->dense.call(x);
  spar::participants by;
  if (is_served(net))
    by = pending.wait();
  else
    by = co_await std::move(pending);
  note_call(cost, net.now() - start, pending, by);
  data->result = spar::dense_view<std::uint32_t>(data->dense_out);
  co_return cost;
}

inline spar::task<call_cost> call_stream_rounds(measured_net& net, rank_data<float, std::uint32_t>* data,
                                                partial_state* its, bool last) {
  call_cost cost;
  const double start = net.now();
  auto mine = spar::stream_view<float>::sparse(data->n, {}, {});
  if (!last) mine = its->from ? (*its->from)(net, data->dense_in) : data->sparse();
  auto pending = last ? its->streams.drain(mine) : its->streams.call(mine);
  spar::partial_sum<float, std::uint32_t> result;
  if (is_served(net))
    result = pending.wait();
  else
    result = co_await std::move(pending);
  note_call(cost, net.now() - start, pending, result.by);
  if (its->from && !last) cost.select_seconds = its->from->seconds;
  data->sum = std::move(result.sum);
  data->result = data->sum.view();
  co_return cost;
}

inline rank_system<float, std::uint32_t> partial_on_rank(const options& o, const partial_name& name,
                                                         const inner_system<float, std::uint32_t>& inner,
                                                         std::uint64_t k) {
  using data_type = rank_data<float, std::uint32_t>;
  const auto its = std::make_shared<partial_state>();
  its->inner = inner;
  if (!inner.dense && o.dense_input) its->from = std::make_shared<selection<float, std::uint32_t>>(k);
  const auto begin = [its](measured_net& net, data_type& data, bool last) {
    return its->inner.dense ? call_dense_rounds(net, &data, its.get(), last)
                            : call_stream_rounds(net, &data, its.get(), last);
  };
  rank_system<float, std::uint32_t> system;
  system.open = [its, o, name](measured_net& net) {
    if (its->inner.dense)
      its->dense = open_rounds<dense_rounds, float>(net, o, name, its->inner.algorithm);
    else
      its->streams = open_rounds<stream_rounds, spar::sparse_stream<float>>(net, o, name, its->inner.algorithm);
  };
  system.call = [begin](measured_net& net, data_type& data) { return begin(net, data, false); };
  system.drain = [begin](measured_net& net, data_type& data) { return begin(net, data, true); };
  system.residual = [its] { return its->from ? its->from->residual() : its->inner.residual(); };
  return system;
}

} // namespace detail

/// Adds the partial systems that `--systems` names; all possible inner systems must be registered before. Throws
/// `missing` for types for which spar_perf has no partial systems, and `usage_error` for a quorum out of range or an
/// invalid inner system.
template <class T, class Index>
void register_partial(registry<T, Index>& all) {
  const options& o = all.given();
  for (const std::string& system : o.systems) {
    const std::optional<partial_name> name = parse_partial(system);
    if (!name) continue;
    if constexpr (has_partial<T, Index>) {
      const int ranks = static_cast<int>(all.topology().ranks());
      if (name->who == partial_name::kind::quorum && (name->quorum < 1 || name->quorum > ranks)) {
        throw usage_error(system + ": a quorum must be from 1 to " + std::to_string(ranks) + ", the number of ranks");
      }
      const auto& entries = all.entries();
      const auto inner = std::find_if(entries.begin(), entries.end(),
                                      [&](const auto& e) { return e.within && e.name == name->inner; });
      if (inner == entries.end()) {
        std::string known;
        for (const auto& e : entries) known += e.within ? " " + e.name : "";
        throw usage_error(system + ": there is no inner system '" + name->inner + "'; there are:" + known);
      }
      auto partial = *inner;
      partial.name = system;
      partial.partial = true;
      partial.within = nullptr;
      partial.model_seconds.reset();
      partial.plan_calls.reset();
      partial.on_rank = [o, name = *name, make = inner->within, k = all.k()] {
        return detail::partial_on_rank(o, name, make(), k);
      };
      all.add(std::move(partial));
    } else {
      throw missing("spar_perf supports partial systems for float with 32-bit indices, not for " + system + " of " +
                    o.type + " with " + std::to_string(o.index_bits) + "-bit indices");
    }
  }
}

} // namespace spar::perf
