// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The part of the measurement that all transports share: contributions, choice of systems, records of calls.
#pragma once

#include "exact.hpp"
#include "report.hpp"
#include "root_links.hpp"
#include "systems.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spar::perf {

/// The number of calls of each system after the warm-up: `iterations` that are timed, then those that are traced.
inline int calls_of(const options& o) { return o.iterations + (o.traces() ? traced_calls : 0); }

/// The less of what two algorithms without compression must send: one sends each value with its index, the other dense
/// values. In bytes of payload, the mean over all ranks. With indices, an entry that c ranks contribute needs at least
/// c - 1 messages until one rank has the sum, and each other rank needs a further one. So P ranks with k entries each,
/// whose sum has K entries, send at least k + K (P - 2) / P entries each; dense vectors give the known 2 n (P - 1) / P.
/// If ranks keep only the largest entries of the sum, contributions may be dropped, and K (P - 1) / P entries are left
/// (Ok-Topk, theorem 3.1). An algorithm that first sends entries and then dense values can send less than both.
template <class T, class Index>
double least_bytes(const workload& w, const system_entry<T, Index>& system, const record& r) {
  const double ranks = w.ranks, n = static_cast<double>(w.n), k = static_cast<double>(w.k);
  const double sum =
      static_cast<double>(r.total_nnz_out) / static_cast<double>(std::max<std::size_t>(1, r.seconds.size()));
  const double dense = 2 * n * (ranks - 1) / ranks * sizeof(T);
  if (system.dense && !system.feedback) return dense;
  const double entries = system.feedback ? sum * (ranks - 1) / ranks : k + sum * (ranks - 2) / ranks;
  return std::min(dense, entries * (sizeof(T) + sizeof(Index)));
}

/// The systems that `--systems` names, in the same order, under the names that they have in the output. Throws
/// `usage_error` for a name that is not registered for the type, and `missing` for "mpi" in a build without MPI, and
/// for "nccl" on values in host memory.
template <class T, class Index>
[[gnu::cold]] std::vector<system_entry<T, Index>> choose(const registry<T, Index>& all, const options& o) {
  std::vector<system_entry<T, Index>> chosen;
  for (std::size_t s = 0; s < o.systems.size(); ++s) {
    const std::string& name = o.systems[s];
    const auto& entries = all.entries();
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == name; });
    if (found == entries.end()) {
      std::string known;
      for (const auto& e : entries) known += " " + e.name;
      if (name == "mpi")
        throw missing("system mpi is MPI_Allreduce: use --transport mpi in a spar_perf built with MPI");
      if (name == nccl_system) throw missing("system nccl is ncclAllReduce: use --memory device");
      throw usage_error("there is no system '" + name + "' for " + o.type + "; there are:" + known);
    }
    chosen.push_back(*found);
    if (s < o.names.size()) chosen.back().name = o.names[s];
  }
  return chosen;
}

/// A rank's contribution as a sparse stream, and if `dense` is set also as a dense vector.
template <class T, class Index>
rank_data<T, Index> contribution(const workload& w, int rank, bool dense, bool in_place) {
  rank_data<T, Index> data;
  data.n = w.n;
  data.in_place = in_place;
  if (dense) {
    data.dense_in.resize(w.n);
    data.dense_out.resize(w.n);
  }
  const std::vector<std::uint64_t> at = positions(w, rank);
  data.indices.reserve(at.size());
  data.values.reserve(at.size());
  for (const std::uint64_t i : at) {
    const auto value = static_cast<T>(value_at(w, rank, i));
    data.indices.push_back(static_cast<Index>(i));
    data.values.push_back(value);
    if (dense) data.dense_in[i] = value;
  }
  return data;
}

/// Generates a rank's dense vector for the next step; only patterns of dense vectors change from step to step.
template <class T, class Index>
void next_step(rank_data<T, Index>& data, const workload& w, int rank, int step) {
  if (!is_gradient(w.pattern)) return;
  std::vector<double> values(std::min<std::uint64_t>(w.n, 4096));
  for (std::uint64_t first = 0; first < w.n; first += values.size()) {
    values.resize(std::min<std::uint64_t>(w.n - first, values.size()));
    gradient(w, rank, step, first, values);
    for (std::size_t i = 0; i < values.size(); ++i) data.dense_in[first + i] = static_cast<T>(values[i]);
  }
}

/// Whether the check of results includes the residuals: contributions minus results, summed over all calls, must equal
/// the residuals. Other systems are checked call by call against the exact sum. A partial system is checked once, after
/// its last call, together with the result of `drain`.
template <class T, class Index>
bool is_balanced(const system_entry<T, Index>& system, const workload& w) {
  return system.feedback || system.partial || is_gradient(w.pattern);
}

/// The largest magnitude of |residual[i]| + |x[i]|; an empty residual counts as 0.
template <class T>
double largest_of(std::span<const T> residual, std::span<const T> x) {
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = residual.empty() ? 0 : std::abs(static_cast<double>(residual[i]));
    largest = std::max(largest, kept + std::abs(static_cast<double>(x[i])));
  }
  return largest;
}

/// The largest magnitude that a rank may contribute to a call. A round of a partial system may include the rank's
/// previous contribution as well, but no older one, because the barrier before each iteration waits for every rank's
/// call.
template <class T, class Index>
double largest_brought(const system_entry<T, Index>& system, const rank_system<T, Index>& own,
                       const rank_data<T, Index>& data) {
  const std::span<const T> x(system.dense ? data.dense_in : data.values);
  return largest_of<T>(own.residual(), x) * (system.partial ? 2 : 1);
}

/// The largest allowed error of a call, if no sum of contributions and residuals exceeds `largest` in magnitude: each
/// rank rounds when it adds to its residual, and sums are rounded when two ranks' values are added or when an inner
/// node keeps the values that it drops.
template <class T>
double allowed_error(const workload& w, double relative_error, double largest) {
  const double roundings = spar::is_floating<T> ? 2.0 * w.ranks / static_cast<double>(exact_limit<T>) : 0;
  return (roundings + relative_error) * largest;
}

/// Restores the input before a call, because the previous in-place call has overwritten the input.
template <class T, class Index>
void restore(rank_data<T, Index>& data, bool dense) {
  if (dense && data.in_place) std::copy(data.dense_in.begin(), data.dense_in.end(), data.dense_out.begin());
}

/// Adds the cost of a call on one rank.
inline void note_cost(record& r, const call_cost& call) {
  r.counted = call.counted;
  for (const auto count : counts) r.largest.*count = std::max(r.largest.*count, call.cost.*count);
  r.total += call.cost;
  if (call.device) (r.device ? *r.device : r.device.emplace()) += *call.device;
}
/// Adds where the time of a traced call went on one rank. The computations in the trace include a selection inside the
/// call.
inline void note_phases(record& r, const call_cost& call, spar::traced_seconds traced) {
  const double selecting = call.select_seconds.value_or(0);
  if (call.selects_inside) traced.compute -= selecting;
  if (!r.phases) r.phases.emplace();
  r.phases->add(call.seconds, selecting, call.cost, traced);
}
/// Records how many ranks' calls the result includes (the same on all ranks): all of them unless the system is partial.
inline void note_active(record& r, const call_cost& call, bool partial, int ranks) {
  const int active = partial ? call.active : ranks;
  r.total_active += active;
  r.least_active = std::min(r.least_active, active);
  r.most_stale = std::max(r.most_stale, call.stale);
}
/// Adds the errors of a result with n values.
inline void note_errors(record& r, const errors& found, std::uint64_t n) {
  r.max_error = std::max(r.max_error, found.largest);
  r.mean_error = std::max(r.mean_error, std::abs(found.sum / static_cast<double>(n)));
  r.rms_error = std::max(r.rms_error, std::sqrt(found.squares / static_cast<double>(n)));
}
inline void note_entries(record& r, std::uint64_t nnz) {
  r.nnz_out = std::max(r.nnz_out, nnz);
  r.total_nnz_out += nnz;
}

template <class T, class Index>
std::uint64_t nonzeros(const spar::stream_view<T, Index>& result) {
  std::uint64_t count = 0;
  for (const T x : result.values()) count += x != T{} ? 1U : 0U;
  return count;
}

/// The exact sums to compare results with, or nothing without `--check` or if contributions change from call to call.
/// Throws `usage_error` if `ranks` contributions could exceed the whole numbers that T represents exactly.
template <class T>
std::optional<exact_sums> sums_to_check(const workload& w, const options& o) {
  if (!o.check || is_gradient(w.pattern)) return std::nullopt;
  if (static_cast<std::uint64_t>(w.ranks) * largest_value > exact_limit<T>) {
    throw usage_error("--check needs exact sums: " + o.type + " represents whole numbers exactly only up to " +
                      std::to_string(exact_limit<T>) + ", enough for at most " +
                      std::to_string(exact_limit<T> / largest_value) + " ranks, not " + std::to_string(w.ranks));
  }
  return exact_sums(w);
}

/// The rows of one density, made from records that are already combined over all ranks.
template <class T, class Index>
std::vector<row> rows_of(const std::vector<system_entry<T, Index>>& systems, std::vector<record> records,
                         const workload& w, double density, const std::optional<exact_sums>& sums, const options& o) {
  std::vector<row> rows;
  std::size_t most = 0;
  for (const record& r : records) most = std::max(most, r.seconds.size());
  for (std::size_t s = 0; s < systems.size(); ++s) {
    if (records[s].seconds.size() < most) continue; // interrupted: cannot be compared with the others
    row r;
    r.system = systems[s].name;
    r.partial = systems[s].partial;
    r.is_mpi = systems[s].is_mpi;
    r.memory = systems[s].memory;
    r.work = w;
    r.vector_bytes = static_cast<double>(w.n) * sizeof(T);
    r.density = density;
    r.measured = std::move(records[s]);
    if (!systems[s].partial && r.measured.counted) r.bound_bytes = least_bytes(w, systems[s], r.measured);
    r.model_seconds = systems[s].model_seconds;
    r.plan_calls = systems[s].plan_calls;
    if (sums && !is_balanced(systems[s], w)) {
      r.measured.error_bound = systems[s].relative_error * sums->largest() +
                               systems[s].value_error * w.ranks * static_cast<double>(largest_value);
    }
    r.measured.same_bits = r.measured.same_bits || !systems[s].same_bits;
    rows.push_back(std::move(r));
  }
  compare(rows, o);
  return rows;
}

} // namespace spar::perf
