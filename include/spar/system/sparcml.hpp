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

/// Ranks first agree on the largest number of entries; each then makes the same choice.
/// `Second` is the storage of DSAR's second phase: dense, or quantised and then lossy.
template <class Second = storage::dense>
struct basic_sparcml {
  static constexpr std::string_view name = "sparcml";

  Second second{};

  /// Throws `invalid_argument` for a bad option of the storage.
  template <element T, index_type Index, class Op>
  void validate(const stream_view<T, Index>& mine, const Op& op) const {
    split_allgather<Second>{second}.validate(mine, op);
  }

  /// `residual`, where there is one, gets what a lossy storage loses of this rank's block of the sum.
  template <transport Net, element T, index_type Index, reduction<T> Op>
  task<stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op,
                                    std::span<T> residual = {}) const& {
    double second_bytes = sizeof(T); // a value in DSAR's second phase
    std::uint64_t options = 0;
    if constexpr (block_codec<Second, T>) {
      if constexpr (requires { second.agreed(); }) options = second.agreed();
      second_bytes = static_cast<double>(second.template encoded_bytes<T>(65536)) / 65536;
    }
    std::uint64_t k = mine.count();
    co_await find_largest(net.with_algorithm(Second::name).template with_element<std::uint64_t>(), k);

    const auto n = static_cast<double>(mine.dimension());
    const problem call{net.size(), n, static_cast<double>(k), sizeof(T), sizeof(Index)};
    const network_model model = net.net().node().network();
    const recursive_doubling sparse_doubling{.dense_from = call.dense_fraction(model)};
    const ssar_split ssar;
    const split_allgather<Second> dsar{second};
    const auto chosen = choose_sparcml(model, call, second_bytes);
    const auto start = [&] {
      switch (chosen) {
      case sparcml_choice::doubling:
        return sparse_doubling(net.with_algorithm(sparse_doubling.name), mine, op);
      case sparcml_choice::ssar:
        return ssar(net.with_algorithm(ssar.name), mine, op);
      default:
        return dsar(net.with_algorithm(dsar.name, options), mine, op, residual);
      }
    };
    auto running = start(); // one wait for all three: each costs every user time to compile
    co_return co_await std::move(running);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

using sparcml = basic_sparcml<>;

} // namespace spar
