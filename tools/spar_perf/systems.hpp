// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems that spar_perf compares. One line in `register_systems` adds another.
#pragma once

#include "element_types.hpp"
#include "topka.hpp"

#include <spar/spar.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace perf {

/// One rank's contribution and result. Dense values are there only where a system takes them.
template <class T, class Index>
struct rank_data {
  std::uint64_t n = 0;
  std::vector<Index> indices;
  std::vector<T> values;
  std::vector<T> dense_in;
  std::vector<T> dense_out;
  bool in_place = false; ///< dense_out is the input as well

  spar::stream<T, Index> sum;
  spar::stream_view<T, Index> result;

  [[nodiscard]] auto sparse() const { return spar::sparse_view(n, indices, values); }
};

/// What one call cost on one rank.
struct call_cost {
  double seconds = 0;
  bool counted = false; ///< `cost` is known
  spar::statistics cost;
};

template <class Net, class T, class Index>
struct system_entry {
  std::string name;
  bool dense = false;        ///< takes the dense vector
  double relative_error = 0; ///< bound of |error| / the largest |sum|
  std::function<spar::task<call_cost>(Net&, rank_data<T, Index>&)> call;
};

namespace detail {

// Coroutines: everything by value, or by a reference that outlives them.

template <class Net, class T, class Index, class Algorithm>
spar::task<call_cost> call_sparse(Net& net, rank_data<T, Index>* data, Algorithm algorithm) {
  call_cost call;
  const double begin = net.now();
  auto pending = spar::start_allreduce(net, data->sparse(), std::move(algorithm));
  data->sum = co_await std::move(pending);
  call.seconds = net.now() - begin;
  call.counted = true;
  call.cost = pending.statistics();
  data->result = data->sum.view();
  co_return call;
}

template <class Net, class T, class Index, class Algorithm>
spar::task<call_cost> call_dense(Net& net, rank_data<T, Index>* data, Algorithm algorithm) {
  const std::span<const T> in(data->dense_in);
  const std::span<T> out(data->dense_out);
  call_cost call;
  const double begin = net.now();
  auto pending = data->in_place ? spar::start_allreduce(net, out, std::move(algorithm))
                                : spar::start_allreduce(net, in, out, std::move(algorithm));
  co_await std::move(pending);
  call.seconds = net.now() - begin;
  call.counted = true;
  call.cost = pending.statistics();
  data->result = spar::dense_view<Index>(data->dense_out);
  co_return call;
}

} // namespace detail

template <class Net, class T, class Index>
class registry {
 public:
  using entry = system_entry<Net, T, Index>;
  using call_type = decltype(entry::call);

  explicit registry(double density) : density_(density) {}

  /// Adds an algorithm object as spar::allreduce takes it, for the types for which it can be called. One that can do
  /// both gets the sparse stream at densities below 1 and the dense vector at 1. `relative_error`: of a lossy one, the
  /// bound of |error| / the largest |sum|.
  template <class Algorithm>
  void add(std::string name, Algorithm algorithm, double relative_error = 0) {
    constexpr bool sparse = spar::stream_allreduce<Algorithm, Net, T, Index, spar::sum>;
    constexpr bool dense = spar::dense_allreduce<Algorithm, Net, T, spar::sum>;
    if constexpr (!sparse && !dense) {
      static_assert(!(std::same_as<T, float> && std::same_as<Index, std::uint32_t>),
                    "this algorithm has no name, or can be called neither with a stream nor with dense values");
    } else {
      const bool takes_dense = dense && (!sparse || density_ == 1);
      add_call(std::move(name), takes_dense, relative_error, [=](Net& net, rank_data<T, Index>& data) {
        if constexpr (dense && sparse) {
          return takes_dense ? detail::call_dense(net, &data, algorithm) : detail::call_sparse(net, &data, algorithm);
        } else if constexpr (dense) {
          return detail::call_dense(net, &data, algorithm);
        } else {
          return detail::call_sparse(net, &data, algorithm);
        }
      });
    }
  }

  /// Adds anything that is called with a transport and a rank's data.
  void add_call(std::string name, bool dense, double relative_error, call_type call) {
    entries_.push_back({std::move(name), dense, relative_error, std::move(call)});
  }

  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return entries_; }

 private:
  double density_;
  std::vector<entry> entries_;
};

/// Names as `--systems` takes them. QSGD's error is below scale / levels, and the scale at most the largest |sum|; the
/// decoded value is rounded to T once more.
template <class Net, class T, class Index>
void register_systems(registry<Net, T, Index>& systems) {
  systems.add("sparcml", spar::sparcml{});
  systems.add("ssar_split", spar::ssar_split{});
  systems.add("dsar_split", spar::dsar_split{});
  systems.add("rec_doubling", spar::recursive_doubling{});
  systems.add("ring", spar::ring{});
  systems.add("rabenseifner", spar::rabenseifner{});
  systems.add("allgather", topka{});
  systems.add("dense", spar::dense{});
  constexpr double rounding = 2 / static_cast<double>(exact_limit<T>);
  systems.add("dsar_qsgd8", spar::split_allgather<spar::storage::qsgd<8>>{}, 1.0 / 127 + rounding);
  systems.add("dsar_qsgd4", spar::split_allgather<spar::storage::qsgd<4>>{}, 1.0 / 7 + rounding);
  systems.add("dsar_qsgd2", spar::split_allgather<spar::storage::qsgd<2>>{}, 1.0 / 1 + rounding);
}

} // namespace perf
