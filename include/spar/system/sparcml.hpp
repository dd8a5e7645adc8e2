// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SparCML: the sparse allreduce that takes the cheapest of its three algorithms (SparCML, sections 5.3 and 8.1).
#pragma once

#include <spar/collective/largest.hpp>
#include <spar/collective/recursive_doubling.hpp>
#include <spar/collective/split_allgather.hpp>
#include <spar/model/cost.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// The algorithms among which SparCML chooses.
enum class sparcml_choice { doubling, ssar, dsar };

/// The cheapest for P ranks with at most k of n entries each, where `second_phase_bytes` is a value's size in DSAR's
/// second phase.
inline sparcml_choice choose_sparcml(const network_model& net, const problem& p, double second_phase_bytes) noexcept {
  const double doubling = seconds_recursive_doubling(net, p);
  const double ssar = seconds_ssar_split(net, p);
  const double dsar = seconds_dsar_split(net, p, second_phase_bytes);
  if (doubling <= ssar && doubling <= dsar) return sparcml_choice::doubling;
  return ssar <= dsar ? sparcml_choice::ssar : sparcml_choice::dsar;
}

/// Ranks first agree on the largest number of entries; each then makes the same choice. DSAR's second phase travels by
/// the block codec of the storage that the call is given; sums that turn dense in recursive doubling travel as they
/// are, as each of its rounds would round anew.
struct sparcml {
  static constexpr std::string_view name = "sparcml";

  /// `residual`, where it is not empty, gets what this rank's encodings lose.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                    std::span<T> residual = {}) const& {
    const auto streams = storage::streams_of(store);
    const auto blocks = storage::blocks_of(store);
    const double second_bytes = static_cast<double>(blocks.template encoded_bytes<T>(65536)) / 65536; // of a value
    std::uint64_t k = mine.count();
    co_await find_largest(net.with_algorithm(blocks.name).template with_element<std::uint64_t>(), k);

    const double entry_bytes = streams.template entry_bits<T, Index>(mine.dimension(), k) / 8;
    const auto n = static_cast<double>(mine.dimension());
    const problem call{net.size(), n, static_cast<double>(k), sizeof(T), entry_bytes - sizeof(T)};
    const network_model model = net.net().node().network();
    const recursive_doubling sparse_doubling{.dense_from = call.dense_fraction(model)};
    const ssar_split ssar;
    const dsar_split dsar;
    const auto chosen = choose_sparcml(model, call, second_bytes);
    const auto start = [&] {
      switch (chosen) {
      case sparcml_choice::doubling:
        return sparse_doubling(net.with_algorithm(sparse_doubling.name), mine, op, streams, residual);
      case sparcml_choice::ssar:
        return ssar(net.with_algorithm(ssar.name, ssar.agreed()), mine, op, store, residual);
      default:
        return dsar(net.with_algorithm(dsar.name, dsar.agreed()), mine, op, store, residual);
      }
    };
    auto running = start(); // one wait for all three: each costs every user time to compile
    co_return co_await std::move(running);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
