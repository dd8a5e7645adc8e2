// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every collective, sparse and dense, as a program that returns the bits of its result; for tests that run all
// collectives.
#pragma once

#include "support/compositions.hpp"
#include "support/values.hpp"

#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {

using index = std::uint32_t;
using bits = std::vector<std::byte>;

/// A rank's contribution. No message of any collective is empty, so that there is always payload to damage.
struct input {
  std::vector<index> indices;
  std::vector<float> values;
  std::vector<float> dense;

  input(spar::rank_t rank, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t place = 7 * i + 4 * static_cast<std::size_t>(rank);
      dense.push_back(static_cast<float>(place % 13));
      if (place % 10 > 1) continue;
      indices.push_back(static_cast<index>(i));
      values.push_back(static_cast<float>(place % 11 + 1));
    }
  }
  [[nodiscard]] spar::stream_view<float, index> view() const {
    return spar::sparse_view(dense.size(), indices, values);
  }
};

template <class T>
void append(bits& to, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  to.insert(to.end(), bytes.begin(), bytes.end());
}
inline bits bits_of(std::span<const float> values) {
  bits all;
  append(all, values);
  return all;
}
inline bits bits_of(const spar::sparse_stream<float, index>& s) {
  bits all;
  append<index>(all, s.indices());
  append<float>(all, s.values());
  return all;
}
inline bits bits_of(const spar::gathered<float, index>& g) {
  bits all;
  for (std::size_t r = 0; r < g.size(); ++r) {
    append<index>(all, g.part(r).indices());
    append<float>(all, g.part(r).values());
  }
  return all;
}

template <class Net>
spar::rank_t root_of(const Net& net) {
  return net.size() > 1 ? 1 : 0;
}

template <class Algorithm>
struct sparse {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    auto pending = spar::start_allreduce(net, mine->view(), Algorithm{});
    const auto sum = co_await std::move(pending);
    co_return bits_of(sum);
  }
};
/// Selects entries, with error feedback.
template <class Reducer>
struct feedback {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    Reducer reduce{{.select = {.density = 0.04}}};
    auto pending = reduce.start_reduce(net, std::span(mine->dense));
    const auto result = co_await std::move(pending);
    co_return bits_of(result.sum);
  }
};
template <class Algorithm>
struct dense {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    call_values<Net> x(net, mine->dense);
    if constexpr (calls_only_block<Net>) {
      spar::allreduce(net, x.span(), Algorithm{});
    } else {
      auto pending = spar::start_allreduce(net, x.span(), Algorithm{});
      co_await std::move(pending);
    }
    co_return bits_of(x.read());
  }
};
struct sparse_reduce_scatter {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    auto pending = spar::start_reduce_scatter(net, mine->view());
    const auto block = co_await std::move(pending);
    co_return bits_of(block);
  }
};
struct dense_reduce_scatter {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    std::vector<float> x = mine->dense;
    auto pending = spar::start_reduce_scatter(net, std::span(x));
    co_await std::move(pending);
    const auto own = spar::uniform_ownership{x.size(), net.size()}[net.rank()];
    co_return bits_of(std::span(x).subspan(own.begin, own.size()));
  }
};
struct sparse_allgather {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    auto pending = spar::start_allgather(net, mine->view());
    const auto all = co_await std::move(pending);
    co_return bits_of(all);
  }
};
struct dense_allgather {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    std::vector<float> x = mine->dense;
    auto pending = spar::start_allgather(net, std::span(x));
    co_await std::move(pending);
    co_return bits_of(x);
  }
};
struct sparse_reduce {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    auto pending = spar::start_reduce(net, mine->view(), root_of(net));
    const auto sum = co_await std::move(pending);
    co_return bits_of(sum);
  }
};
struct dense_reduce {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    std::vector<float> x = mine->dense;
    auto pending = spar::start_reduce(net, std::span(x), root_of(net));
    co_await std::move(pending);
    co_return net.rank() == root_of(net) ? bits_of(x) : bits{};
  }
};
struct sparse_broadcast {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    auto pending = spar::start_broadcast(net, mine->view(), root_of(net));
    const auto theirs = co_await std::move(pending);
    co_return bits_of(theirs);
  }
};
struct dense_broadcast {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    std::vector<float> x = mine->dense;
    auto pending = spar::start_broadcast(net, std::span(x), root_of(net));
    co_await std::move(pending);
    co_return bits_of(x);
  }
};

/// A tree of two hosts with half of the ranks each; the second host has one more if the number is odd.
inline spar::tree two_hosts(spar::rank_t ranks) {
  std::vector<spar::rank_t> host_of;
  for (spar::rank_t r = 0; r < ranks; ++r) host_of.push_back(r < ranks / 2 ? 0 : 1);
  return spar::tree_of_hosts(host_of);
}
struct sparse_on_tree {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    const spar::flex_plan plan(two_hosts(net.size()), mine->dense.size());
    auto pending = spar::start_allreduce(net, mine->view(), spar::flexreduce(plan));
    const auto sum = co_await std::move(pending);
    co_return bits_of(sum);
  }
};
struct dense_on_tree {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    const spar::flex_plan plan(two_hosts(net.size()), mine->dense.size());
    call_values<Net> x(net, mine->dense);
    auto pending = spar::start_allreduce(net, x.span(), spar::flexreduce(plan));
    co_await std::move(pending);
    co_return bits_of(x.read());
  }
};
struct sparse_by_quantiles_on_tree {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    const spar::tree_plans plans(two_hosts(net.size()));
    auto pending = spar::start_allreduce(net, mine->view(), spar::tree_sparcml(plans));
    const auto sum = co_await std::move(pending);
    co_return bits_of(sum);
  }
};
/// The density is so large that each rank owns some entries.
struct feedback_on_tree {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    const spar::tree_plans plans(two_hosts(net.size()));
    spar::ok_topk<float, index, spar::on_tree> reduce(
        {.select = {.density = 0.8}, .store = {}, .over = spar::on_tree(plans), .by = {}});
    auto pending = reduce.start_reduce(net, std::span(mine->dense));
    const auto result = co_await std::move(pending);
    co_return bits_of(result.sum);
  }
};

/// Sends a vector in several pieces, whatever its length.
template <class Storage, class Schedule>
struct in_pieces : spar::algorithm_defaults {
  static constexpr std::string_view name = Schedule::name;
  template <class Net, class Op>
  spar::task<void> operator()(spar::channel<Net> net, std::span<float> x, Op op) const& {
    const auto algorithm = spar::compose(Storage{}, Schedule{.piece = x.size() / 8 + 1});
    co_await algorithm(net, x, op);
  }
};
struct compressed_on_tree {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    const spar::flex_plan plan(two_hosts(net.size()), mine->dense.size());
    call_values<Net> x(net, mine->dense);
    auto pending = spar::start_allreduce(net, x.span(), spar::flexreduce(plan, spar::storage::as_bfloat16{}));
    co_await std::move(pending);
    co_return bits_of(x.read());
  }
};

/// The nonzeros of dense values.
using nonzeros = spar::composition<spar::selector::nonzeros, spar::storage::coo, spar::flat, spar::cheapest>;

using collectives =
    joined<testing::Types, each<sparse, stream_schedules>,
           std::tuple<sparse<quantised_split<4>>, sparse<spar::split_allgather<>>, sparse<spar::gather_and_merge>,
                      feedback<spar::gtopk<float>>, feedback<spar::ok_topk<float>>>,
           each<dense, dense_schedules>,
           std::tuple<dense<nonzeros>, dense<in_pieces<spar::storage::qsgd<8>, spar::ring>>,
                      dense<in_pieces<spar::storage::as_bfloat16, spar::recursive_doubling>>,
                      dense<in_pieces<spar::storage::as_bfloat16, spar::two_shot>>,
                      dense<in_pieces<spar::storage::as_bfloat16, spar::one_shot>>, compressed_on_tree, sparse_on_tree,
                      sparse_by_quantiles_on_tree, dense_on_tree, feedback_on_tree, sparse_reduce_scatter,
                      dense_reduce_scatter, sparse_allgather, dense_allgather, sparse_reduce, dense_reduce,
                      sparse_broadcast, dense_broadcast>>;

} // namespace spar_test
