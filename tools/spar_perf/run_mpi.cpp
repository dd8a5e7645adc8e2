// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement over MPI; MPI_Allreduce is one of the systems.
#include "compressed_systems.hpp"
#include "measure_ranks.hpp"
#include "partial_systems.hpp"
#include "run.hpp"
#include "topology.hpp"

#include <spar/mpi.hpp>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace perf {

namespace {

/// The MPI datatype and sum operation for T, created here for 16-bit floats because MPI predefines neither.
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
  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }
  [[nodiscard]] MPI_Op op() const noexcept { return op_; }

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

/// MPI_Allreduce as a task that never suspends, so that `measure` can call it like the other systems.
template <class T, class Index>
spar::task<call_cost> call_mpi(counting_links<spar::mpi>& net, MPI_Comm ranks, rank_data<T, Index>* data,
                               const mpi_sum<T>* sum) {
  call_cost call;
  const double begin = net.now();
  const int code = MPI_Allreduce(data->in_place ? MPI_IN_PLACE : data->dense_in.data(), data->dense_out.data(),
                                 static_cast<int>(data->dense_out.size()), sum->type(), sum->op(), ranks);
  call.seconds = net.now() - begin;
  spar::detail::check_mpi(code, "MPI_Allreduce");
  data->result = spar::dense_view<Index>(data->dense_out);
  co_return call;
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
  return with_types(o, [&](auto type, auto index) {
    using T = typename decltype(type)::type;
    using Index = typename decltype(index)::type;
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
    const mpi_sum<T> sum;
    spar::mpi inner{MPI_COMM_WORLD};
    counting_links<spar::mpi> net(inner, links);
    spar::set_network(net, o.model);
    for (const double density : o.densities) {
      const workload w = workload_of(o, density, ranks);
      registry<counting_links<spar::mpi>, T, Index> all(o, density, topology);
      register_systems(all);
      own.register_in(all);
      register_compressed(all);
      register_partial(all);
      all.add_call("mpi", [&](counting_links<spar::mpi>& on, rank_data<T, Index>& data) {
        return call_mpi(on, inner.communicator(), &data, &sum);
      });
      all.last_is_mpi();
      const auto systems = choose(all, o);
      const auto sums = sums_to_check<T>(w, o);
      auto records = or_abort([&] { return measure(net, o, w, systems, sums ? &*sums : nullptr); });
      for (auto& r : rows_of(systems, std::move(records), w, density, sums, o)) rows.push_back(std::move(r));
    }
    return rows;
  });
}

std::vector<std::string> system_names() {
  registry<counting_links<spar::mpi>, float, std::uint32_t> all({}, 0, spar::tree::flat(1));
  register_systems(all);
  std::vector<std::string> names;
  for (const auto& s : all.entries()) names.push_back(s.name);
  names.emplace_back("mpi");
  return names;
}

} // namespace perf
