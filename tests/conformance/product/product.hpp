// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tests every meaningful composition of the library's models against sums that are computed without the library.
#pragma once

#include "support/models.hpp"
#include "support/ranks.hpp"
#include "topology/random_tree.hpp"

#include <spar/selector/named_selector.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace spar_test {

/// These models, of which those that aim at a number of entries become named_selectors: compositions with one type
/// compile in half the time of compositions with each selector.
template <class... Selectors>
auto chosen(const std::tuple<model<Selectors>...>& selectors) {
  const auto choose = []<class Selector>(const model<Selector>& of) {
    if constexpr (spar::selector_with_bounds<Selector>)
      return named_model(of.name, spar::selector::named_selector(of.part));
    else
      return of;
  };
  return std::apply([&](const auto&... each) { return std::tuple{choose(each)...}; }, selectors);
}

inline constexpr std::size_t product_dimension = 1200;

using product_net = spar::sim;
using product_sum = spar::selected_sum<float, std::uint32_t>;

/// A composition with its types erased, so that code which is the same for all compositions is compiled once.
struct product_cell {
  using channel = spar::channel<spar::sim_port>;

  std::string name;
  double error = 0;                     ///< relative error of the storage's encoding, to the largest encoded value
  double absolute_error = 0;            ///< the largest change of a contribution by a storage that sums codes
  bool all = true;                      ///< the sum has all contributions, not the k largest entries
  bool coded = false;                   ///< all messages use a block codec that is not plain
  std::shared_ptr<const void> reduce{}; ///< the composition
  std::shared_ptr<void> (*state_of_rank)() = {}; ///< a new state, which a rank keeps from call to call
  spar::task<product_sum> (*selected)(const void* reduce, void* state, channel, std::span<float>) = nullptr;
  spar::task<void> (*in_place)(const void* reduce, channel, std::span<float>) = nullptr;
  /// Null unless the selector is `everything`.
  spar::task<spar::sparse_stream<float>> (*of_streams)(const void* reduce, channel, spar::stream_view<float>) = nullptr;
};

/// A rank's contribution to a step: one value of 20 large, half of the others small, some equal on all ranks, zeros.
inline std::vector<float> product_input(spar::rank_t rank, int step) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 31 + static_cast<std::uint64_t>(step));
  std::vector<float> x(product_dimension);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(static_cast<std::int64_t>(random() % 2001) - 1000) / 64.0F;
    x[i] = random() % 20 == 0 ? 8 * value : random() % 2 == 0 ? value / 16 : i % 50 == 0 ? 100.0F : 0.0F;
  }
  return x;
}

/// One call of a cell on a rank, as a collective.
template <class Call>
struct product_call : spar::algorithm_defaults {
  static constexpr std::string_view name = "product";
  const Call* call;

  explicit product_call(const Call& its) : call(&its) {}
  template <class Argument>
  auto operator()(spar::channel<spar::sim_port> net, Argument x) const& {
    return (*call)(net, x);
  }
};
template <class Call, class Argument>
auto start_product(product_net& net, const Call& call, Argument x) {
  const product_call<Call> algorithm(call);
  const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(product_dimension, algorithm);
  return spar::start_collective(net, agreed, algorithm, x);
}

/// The calls of a cell on each rank, and their results.
struct product_program {
  static constexpr int steps = 3;
  struct step_result {
    std::vector<float> sum, contributed, residual, in_place, of_streams;
    std::uint64_t entries = 0;
    std::uint64_t compressions = 0;
  };
  const product_cell* cell;
  std::vector<std::vector<step_result>>* results; // by rank and step

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const void* const reduce = cell->reduce.get();
    const auto state = cell->state_of_rank();
    const auto selected = [this, reduce, &state](product_cell::channel on, std::span<float> x) {
      return cell->selected(reduce, state.get(), on, x);
    };
    const auto in_place = [this, reduce](product_cell::channel on, std::span<float> x) {
      return cell->in_place(reduce, on, x);
    };
    const auto of_streams = [this, reduce](product_cell::channel on, spar::stream_view<float> mine) {
      return cell->of_streams(reduce, on, mine);
    };
    std::vector<float> residual(product_dimension);
    for (int step = 0; step < steps; ++step) {
      step_result& its = (*results)[static_cast<std::size_t>(net.rank())][static_cast<std::size_t>(step)];
      const std::vector<float> x = product_input(net.rank(), step);
      for (std::size_t i = 0; i < x.size(); ++i) residual[i] += x[i];
      auto pending = start_product(net, selected, std::span<float>(residual));
      const product_sum result = co_await std::move(pending);
      its.sum.resize(product_dimension);
      its.contributed.resize(product_dimension);
      result.sum.to_dense(its.sum, spar::sum{});
      result.contributed.to_dense(its.contributed, spar::sum{});
      its.entries = result.sum.count();
      its.compressions = pending.statistics().compressions;
      its.residual = residual;
      its.in_place = x;
      auto plain = start_product(net, in_place, std::span<float>(its.in_place));
      co_await std::move(plain);
      if (cell->of_streams == nullptr) continue;
      its.of_streams.resize(product_dimension);
      std::vector<float> copy = x;
      const auto mine = spar::select(spar::selector::nonzeros{}, std::span<float>(copy), net.memory());
      const auto view = mine.view();
      auto of_stream = start_product(net, of_streams, view);
      const spar::sparse_stream<float> sum = co_await std::move(of_stream);
      sum.to_dense(its.of_streams, spar::sum{});
    }
  }
};

inline double largest_of(const std::vector<float>& x) {
  double most = 0;
  for (const float value : x) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

/// Checks that `got` is the sum of `brought` within the bound. Returns the first index that is not, or the length of
/// `got`.
inline std::size_t first_wrong(const std::vector<float>& got, const std::vector<const std::vector<float>*>& brought,
                               const product_cell& cell) {
  const auto ranks = static_cast<double>(brought.size());
  double largest = 0;
  for (const auto* x : brought) largest += largest_of(*x);
  const double bound = (cell.error * 2 * (ranks + 2) + 1e-5) * largest + ranks * cell.absolute_error;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double expected = 0;
    for (const auto* x : brought) expected += static_cast<double>((*x)[i]);
    if (!(std::abs(static_cast<double>(got[i]) - expected) <= bound)) return i;
  }
  return got.size();
}

inline void check_cell(const product_cell& cell, spar::rank_t ranks, bool synchronous) {
  const auto P = static_cast<std::size_t>(ranks);
  std::vector<std::vector<product_program::step_result>> results(
      P, std::vector<product_program::step_result>(product_program::steps));
  const product_program program{&cell, &results};
  ASSERT_NO_THROW(run_sim(ranks, program, random_order(11, synchronous))) << cell.name << ", P = " << ranks;
  for (std::size_t step = 0; step < product_program::steps; ++step) {
    SCOPED_TRACE(testing::Message() << cell.name << ", P = " << ranks << ", step " << step);
    const auto& first = results[0][step];
    std::vector<std::vector<float>> inputs;
    std::vector<const std::vector<float>*> contributed, brought;
    for (std::size_t r = 0; r < P; ++r)
      inputs.push_back(product_input(static_cast<spar::rank_t>(r), static_cast<int>(step)));
    for (std::size_t r = 0; r < P; ++r) {
      const auto& its = results[r][step];
      contributed.push_back(&its.contributed);
      brought.push_back(&inputs[r]);
      // The same bits on all ranks.
      ASSERT_EQ(std::memcmp(its.sum.data(), first.sum.data(), 4 * product_dimension), 0);
      ASSERT_EQ(std::memcmp(its.in_place.data(), first.in_place.data(), 4 * product_dimension), 0);
      ASSERT_EQ(its.of_streams, first.of_streams);
      ASSERT_EQ(its.entries, first.entries);
    }
    if (cell.coded && P > 1) {
      std::uint64_t compressions = 0;
      for (const auto& of_rank : results) compressions += of_rank[step].compressions;
      ASSERT_GT(compressions, 0U);
    }
    if (cell.all) {
      ASSERT_EQ(first_wrong(first.sum, contributed, cell), product_dimension);
    } else {
      ASSERT_LE(first.entries, product_dimension / 20 * 5 / 4); // k, and the tolerance of a selector
      ASSERT_GT(first.entries, 0U);
    }
    if (cell.of_streams != nullptr) {
      ASSERT_EQ(first_wrong(first.in_place, brought, cell), product_dimension);
      ASSERT_EQ(first_wrong(first.of_streams, brought, cell), product_dimension);
    }
    // Nothing is lost: the sums so far and the residuals of all ranks add up to all contributions.
    double scale = 1;
    std::vector<double> balance(product_dimension);
    for (std::size_t r = 0; r < P; ++r) {
      for (std::size_t s = 0; s <= step; ++s) {
        const auto x = product_input(static_cast<spar::rank_t>(r), static_cast<int>(s));
        scale += largest_of(x);
        for (std::size_t i = 0; i < product_dimension; ++i) balance[i] += static_cast<double>(x[i]);
      }
      for (std::size_t i = 0; i < product_dimension; ++i)
        balance[i] -= static_cast<double>(results[r][step].residual[i]);
    }
    for (std::size_t s = 0; s <= step; ++s) {
      for (std::size_t i = 0; i < product_dimension; ++i) balance[i] -= static_cast<double>(results[0][s].sum[i]);
    }
    const auto worst =
        std::max_element(balance.begin(), balance.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
    ASSERT_LE(std::abs(*worst), 1e-5 * scale) << "values are lost at index " << worst - balance.begin();
  }
}

template <class Composition>
product_cell cell_of(std::string name, const Composition& reduce) {
  using state = typename Composition::state;
  using report = typename Composition::report;
  using storage = typename Composition::storage_type;
  using blocks = spar::storage::blocks_type<storage>;
  product_cell cell{.name = std::move(name), .all = !keeps_k<typename Composition::schedule_type>};
  if constexpr (spar::sums_in_code<storage>) {
    cell.absolute_error = reduce.store.template absolute_error<float>();
    cell.coded = true;
  } else if constexpr (!std::is_same_v<blocks, spar::storage::dense>) {
    cell.error = spar::storage::blocks_of(reduce.store).template relative_error<float>();
    cell.coded = !spar::has_stream_codec<storage>;
  }
  if constexpr (!spar::storage::streams_type<storage>::exact) {
    cell.error = std::max(cell.error, 0x1p-8); // the error of the tests' stream codec that rounds
  }
  using kept = std::pair<state, report>;
  cell.reduce = std::make_shared<const Composition>(reduce);
  cell.state_of_rank = []() -> std::shared_ptr<void> { return std::make_shared<kept>(); };
  cell.selected = [](const void* its, void* now, product_cell::channel net, std::span<float> x) {
    const spar::selector::nothing_to_prepare prepare;
    return static_cast<const Composition*>(its)->template reduce<std::uint32_t>(
        net, &static_cast<kept*>(now)->first, &static_cast<kept*>(now)->second, x, spar::sum{}, prepare);
  };
  cell.in_place = [](const void* its, product_cell::channel net, std::span<float> x) {
    return (*static_cast<const Composition*>(its))(net, x, spar::sum{});
  };
  if constexpr (!Composition::selects_entries) {
    cell.of_streams = [](const void* its, product_cell::channel net, spar::stream_view<float> mine) {
      return (*static_cast<const Composition*>(its))(net, mine, spar::sum{});
    };
  }
  return cell;
}

/// All meaningful compositions with these storages over a topology.
template <class Storages, class Topology, class Selectors>
std::vector<product_cell> cells_over(const Storages& storages, const Topology& over, const Selectors& selectors) {
  std::vector<product_cell> cells;
  for_each_model(storages, [&](const auto& store) {
    for_each_model(all_schedules, [&](const auto& by) {
      for_each_model(selectors, [&](const auto& select) {
        using verdict =
            spar::verdict_of<std::remove_cvref_t<decltype(select.part)>, std::remove_cvref_t<decltype(store.part)>,
                             Topology, std::remove_cvref_t<decltype(by.part)>>;
        if constexpr (spar::composes<verdict>) {
          const std::string name = std::string(select.name) + ", " + std::string(store.name) + ", " +
                                   std::string(Topology::name) + ", " + std::string(by.name);
          cells.push_back(cell_of(name, spar::compose(select.part, store.part, over, by.part)));
        }
      });
    });
  });
  return cells;
}

inline const std::vector<spar::rank_t>& product_ranks() {
  static const std::vector<spar::rank_t> some{1, 3, 4, 6};
  static const std::vector<spar::rank_t> all(all_ranks.begin(), all_ranks.end());
  return is_full() ? all : some;
}

template <class Storages, class Selectors>
void check_flat(const Storages& storages, const Selectors& selectors) {
  const auto cells = cells_over(storages, spar::flat{}, selectors);
  ASSERT_FALSE(cells.empty());
  for (const spar::rank_t ranks : product_ranks()) {
    for (const auto& cell : cells) check_cell(cell, ranks, ranks % 2 == 0);
  }
}

/// A tree with hosts of one, two and three ranks, which are not in the order of their numbers.
inline spar::tree product_tree(spar::rank_t ranks) {
  spar::tree_node root;
  spar::rank_t next = ranks - 1;
  for (int most = 1; next >= 0; most = most % 3 + 1) {
    spar::tree_node host;
    for (int r = 0; r < most && next >= 0; ++r) host.children.push_back({.rank = next--});
    root.children.push_back(host);
  }
  return spar::tree(root);
}

template <class Storages, class Selectors>
void check_tree(const Storages& storages, const Selectors& selectors) {
  for (const spar::rank_t ranks : product_ranks()) {
    const spar::tree_plans plans(product_tree(ranks));
    const auto cells = cells_over(storages, spar::on_tree(plans), selectors);
    ASSERT_FALSE(cells.empty());
    for (const auto& cell : cells) check_cell(cell, ranks, ranks % 2 == 0);
  }
}

} // namespace spar_test
