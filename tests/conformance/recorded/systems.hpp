// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Adapters that make a system callable by the driver, one for each kind, so that each system is one line in
// streams.cpp, values.cpp or feedback.cpp.
#pragma once

#include "conformance/recorded/driver.hpp"

#include <spar/collective/allreduce/gather_and_merge.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/system/collectives.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/system/set_network.hpp>
#include <spar/tree.hpp>

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test::recorded {

std::vector<system> systems_of_streams();
std::vector<system> systems_of_values();
std::vector<system> systems_with_feedback();

/// A tree of hosts with one to three ranks, not in the order of ranks.
inline spar::tree uneven_hosts(spar::rank_t ranks) {
  const auto host = [](std::vector<spar::rank_t> its) {
    spar::tree_node made{.links = {1e10, 1e-6}};
    for (const spar::rank_t r : its) made.children.push_back({.rank = r});
    return made;
  };
  spar::tree_node root{.links = {1e8, 1e-5}};
  switch (ranks) {
  case 1:
    root.children = {{.rank = 0}};
    break;
  case 2:
    root.children = {host({1}), {.rank = 0}};
    break;
  case 3:
    root.children = {host({0, 2}), {.rank = 1}};
    break;
  case 4:
    root.children = {host({0, 2, 3}), {.rank = 1}};
    break;
  case 5:
    root.children = {host({0, 3}), host({1, 2, 4})};
    break;
  default:
    root.children = {host({0, 4, 5}), host({1, 6}), {.rank = 7}, host({2, 3})};
  }
  return spar::tree(root);
}
/// A tree of two hosts with equal numbers of ranks, or all ranks at one switch if their number is odd.
inline spar::tree even_hosts(spar::rank_t ranks) {
  if (ranks % 2 != 0) return spar::tree::flat(ranks);
  spar::tree_node root{.links = {1e8, 1e-5}, .children = {2, spar::tree_node{.links = {1e10, 1e-6}}}};
  for (spar::rank_t r = 0; r < ranks; ++r) {
    root.children[static_cast<std::size_t>(r % 2)].children.push_back({.rank = r});
  }
  return spar::tree(root);
}

/// The topologies and plans that algorithms borrow.
struct topologies {
  topologies(spar::rank_t ranks, std::uint64_t n)
      : uneven(uneven_hosts(ranks)), even(even_hosts(ranks)), plans(uneven), flex(uneven, n),
        around(spar::ring_plan(uneven, n)), by_levels(spar::blueconnect_plan(even, n)) {}

  spar::tree uneven;
  spar::tree even;
  spar::tree_plans plans;
  spar::flex_plan flex;
  spar::flex_plan around;
  spar::flex_plan by_levels;
};

/// `Algorithm` is a composition, a part of one, or a function that makes one from topologies.
template <class Algorithm>
auto made(const Algorithm& algorithm, const topologies& on) {
  if constexpr (std::invocable<const Algorithm&, const topologies&>)
    return algorithm(on);
  else
    return spar::detail::as_algorithm(algorithm);
}

template <class T, class From>
std::vector<T> converted(const std::vector<From>& from) {
  std::vector<T> to;
  to.reserve(from.size());
  for (const From x : from) to.push_back(static_cast<T>(x));
  return to;
}

template <class T, class Index>
std::uint64_t hash_of(const spar::sparse_stream<T, Index>& sum) {
  hash bits;
  bits.add_number(sum.is_dense() ? 1 : 0);
  bits.add_number(sum.dimension());
  bits.add_values(sum.view().indices());
  bits.add_values(sum.view().values());
  return bits.value();
}
template <class T>
std::uint64_t hash_of(std::span<const T> values) {
  hash bits;
  bits.add_values(values);
  return bits.value();
}

/// A contribution in the types of a system.
template <class T, class Index>
struct typed {
  explicit typed(const contribution& from)
      : n(from.n), dense(from.dense), indices(converted<Index>(from.indices)), values(converted<T>(from.values)) {}
  [[nodiscard]] spar::stream_view<T, Index> view() const {
    return dense ? spar::stream_view<T, Index>::dense(n, 0, values)
                 : spar::stream_view<T, Index>::sparse(n, indices, values);
  }

  std::uint64_t n;
  bool dense;
  std::vector<Index> indices;
  std::vector<T> values;
};

/// `make_call(net, topologies, n)` returns a `call`.
template <class MakeCall>
system system_of(std::string name, takes input, int steps, MakeCall make_call) {
  const auto prepare = [make_call](spar::rank_t ranks, std::uint64_t n) {
    const auto on = std::make_shared<const topologies>(ranks, n);
    return program([=](spar::threads& net) {
      const call its = make_call(net, *on, n);
      return call([on, its](const contribution& mine) { return its(mine); });
    });
  };
  return {.name = std::move(name), .input = input, .steps = steps, .prepare = prepare};
}

/// An allreduce of streams.
template <class T, class Index = std::uint32_t, class Algorithm, class Op = spar::sum>
system of_streams(std::string name, Algorithm algorithm, Op op = {}) {
  return system_of(std::move(name), takes::streams, 2, [=](spar::threads& net, const topologies& on, std::uint64_t) {
    return call([&net, op, reduce = made(algorithm, on)](const contribution& mine) {
      const typed<T, Index> own(mine);
      auto pending = spar::start_allreduce(net, own.view(), reduce, op);
      return outcome{.result = hash_of(pending.wait())};
    });
  });
}

/// An allreduce of dense values, in place.
template <class T, class Algorithm, class Op = spar::sum>
system of_values(std::string name, Algorithm algorithm, Op op = {}) {
  return system_of(std::move(name), takes::values, 2, [=](spar::threads& net, const topologies& on, std::uint64_t) {
    return call([&net, op, reduce = made(algorithm, on)](const contribution& mine) {
      auto x = converted<T>(mine.values);
      auto pending = spar::start_allreduce(net, std::span(x), reduce, op);
      pending.wait();
      return outcome{.result = hash_of(std::span<const T>(x))};
    });
  });
}

/// An allreduce of dense values with error feedback: the algorithm selects entries, or rounds values.
template <class T, class Index = std::uint32_t, class Algorithm, class Op = spar::sum>
system with_feedback(std::string name, Algorithm algorithm, Op op = {}) {
  return system_of(std::move(name), takes::values, 5, [=](spar::threads& net, const topologies& on, std::uint64_t) {
    using reducer = spar::error_feedback<T, decltype(made(algorithm, on)), Index>;
    return call([&net, op, reduce = std::make_shared<reducer>(made(algorithm, on))](const contribution& mine) {
      auto x = converted<T>(mine.values);
      auto pending = reduce->start(net, std::span(x), op);
      pending.wait();
      return outcome{hash_of(std::span<const T>(x)), true, hash_of(reduce->residual())};
    });
  });
}

/// A partial allreduce with participation `everyone`, of dense values if `T` is an element type and of streams if `T`
/// is a stream. Records the residual if the algorithm is an error_feedback.
template <class T, class Algorithm>
system partial_of_everyone(std::string name, Algorithm algorithm) {
  constexpr bool values = spar::element<T>;
  return system_of(std::move(name), values ? takes::values : takes::streams, 5,
                   [=](spar::threads& net, const topologies& on, std::uint64_t n) {
                     // An error_feedback cannot be copied, and a partial allreduce cannot be moved.
                     using made_here =
                         decltype(spar::partial_allreduce<T>(net, n, spar::everyone{}, made(algorithm, on)));
                     const std::shared_ptr<made_here> reduce(
                         new made_here(spar::partial_allreduce<T>(net, n, spar::everyone{}, made(algorithm, on))));
                     return call([reduce](const contribution& mine) {
                       if constexpr (values) {
                         auto x = converted<T>(mine.values);
                         auto pending = reduce->start(std::span(x));
                         pending.wait();
                         outcome left{.result = hash_of(std::span<const T>(x))};
                         if constexpr (requires { reduce->algorithm().residual(); }) {
                           left.has_residual = true;
                           left.residual = hash_of(reduce->algorithm().residual());
                         }
                         return left;
                       } else {
                         const typed<typename T::value_type, typename T::index_value_type> own(mine);
                         auto pending = reduce->start(own.view());
                         return outcome{.result = hash_of(pending.wait().sum)};
                       }
                     });
                   });
}

/// The same system on a network with other costs, on which algorithms that use the cost model choose otherwise.
inline system on_slow_network(system its) {
  its.name += "_slow";
  its.prepare = [prepare = std::move(its.prepare)](spar::rank_t ranks, std::uint64_t n) {
    return program([on_rank = prepare(ranks, n)](spar::threads& net) {
      net.set_network({.alpha = 2e-5, .beta = 1e-8});
      return on_rank(net);
    });
  };
  return its;
}

} // namespace spar_test::recorded
