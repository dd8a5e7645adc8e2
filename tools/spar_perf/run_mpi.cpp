// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement over MPI; MPI_Allreduce is one of the systems.
#include "calibrate.hpp"
#include "element_types.hpp"
#include "measurement.hpp"
#include "run.hpp"
#include "topology.hpp"

#include <spar/mpi.hpp>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spar::perf {

namespace {

/// MPI_Allreduce of sums of T. The datatype and operation of 16-bit floats are made here: MPI predefines neither.
template <class T>
class mpi_sum {
 public:
  mpi_sum() {
    if constexpr (std::is_same_v<T, float>)
      type_ = MPI_FLOAT;
    else if constexpr (std::is_same_v<T, double>)
      type_ = MPI_DOUBLE;
    else if constexpr (std::is_same_v<T, std::int32_t>)
      type_ = MPI_INT32_T;
    else if constexpr (std::is_same_v<T, std::int64_t>)
      type_ = MPI_INT64_T;
    else {
      made_ = true;
      spar::detail::check_mpi(MPI_Type_contiguous(sizeof(T), MPI_BYTE, &type_), "MPI_Type_contiguous");
      spar::detail::check_mpi(MPI_Type_commit(&type_), "MPI_Type_commit");
      spar::detail::check_mpi(MPI_Op_create(&add, 1, &op_), "MPI_Op_create");
    }
  }
  mpi_sum(const mpi_sum&) = delete;
  ~mpi_sum() {
    if (!made_) return;
    MPI_Op_free(&op_);
    MPI_Type_free(&type_);
  }
  void operator()(MPI_Comm ranks, const void* in, void* out, std::uint64_t n) const {
    const int code = MPI_Allreduce(in == nullptr ? MPI_IN_PLACE : in, out, static_cast<int>(n), type_, op_, ranks);
    spar::detail::check_mpi(code, "MPI_Allreduce");
  }

 private:
  static void add(void* in, void* inout, int* count, MPI_Datatype*) {
    const T* __restrict from = static_cast<const T*>(in);
    T* __restrict to = static_cast<T*>(inout);
    for (int i = 0; i < *count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
  }

  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op op_ = MPI_SUM;
  bool made_ = false;
};

/// Calls f. Ends the job at once if f throws: the other ranks wait for this rank, and to unwind would free a
/// communicator, which waits for the other ranks.
template <class F>
auto or_abort(F f) {
  try {
    return f();
  } catch (const std::exception& e) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr, "spar_perf: rank %d: %s\n", rank, e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
  }
}

/// MPI_Allreduce of the type that the options name.
mpi_allreduce allreduce_over(MPI_Comm ranks, const options& o) {
  return with_types(o, [&](auto type, auto) -> mpi_allreduce {
    const auto sum = std::make_shared<const mpi_sum<typename decltype(type)::type>>();
    return [ranks, sum](const void* in, void* out, std::uint64_t n) { (*sum)(ranks, in, out, n); };
  });
}

/// Reads `--topology` on every rank. Throws `usage_error` on all ranks if the file is unusable on any rank.
spar::tree agreed_topology(const options& o) {
  const std::vector<spar::rank_t> hosts = spar::hosts_of(MPI_COMM_WORLD);
  std::optional<spar::tree> found;
  std::string why = "--topology: the file is unusable on another rank";
  try {
    found = topology_of(o, hosts);
  } catch (const usage_error& e) {
    why = e.what();
  }
  int usable = found ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &usable, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (usable == 0) throw usage_error(why);
  return *found;
}

} // namespace

std::vector<row> run_mpi(const options& o, const own_systems& own) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (o.ranks > 0 && o.ranks != ranks) {
    throw usage_error("--ranks is " + std::to_string(o.ranks) + ", but MPI has started " + std::to_string(ranks));
  }
  if (o.count > INT_MAX && std::find(o.systems.begin(), o.systems.end(), "mpi") != o.systems.end()) {
    throw usage_error("system mpi passes the count as an int: --count " + std::to_string(o.count) + " exceeds " +
                      std::to_string(INT_MAX));
  }
  std::vector<row> rows;
  const spar::tree topology = agreed_topology(o);
  const root_links links(topology);
  for (const double density : o.densities) workload_of(o, density, ranks);
  spar::mpi rank{MPI_COMM_WORLD};
  const mpi_allreduce mpi = allreduce_over(rank.communicator(), o);
  measured_net net(rank, links);
  net.set_network(o.model);
  for (const double density : o.densities) {
    const auto systems = measurement_of({o, density, ranks, topology, own, mpi});
    auto records = or_abort([&] { return systems->on_rank(net); });
    if (!take_rows(*systems, std::move(records), rows)) break;
  }
  return rows;
}

spar::network_model calibrate_mpi(const options& o) {
  spar::mpi rank{MPI_COMM_WORLD};
  spar::any_transport net(rank);
  return calibrate(net, o);
}

} // namespace spar::perf
