// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/disagreements.hpp"

#include <spar/spar.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace spar_test {
namespace {

using net_t = spar::any_transport;
using spar::rank_t;

constexpr std::size_t n = 24;

constexpr spar::ring ring;
constexpr spar::recursive_doubling doubling;
constexpr spar::binomial_reduce binomial;
constexpr spar::maximum maximum;
constexpr spar::average average;

template <class T>
std::vector<T> values(std::size_t count = n) {
  return std::vector<T>(count, T(1));
}

template <class Index>
constexpr std::array<Index, 3> indices{1, 5, 7};
constexpr std::array<float, 3> ones{1, 1, 1};
template <class T, class Index = std::uint32_t>
spar::stream_view<T, Index> stream(std::uint64_t dimension = n) {
  return spar::sparse_view(dimension, std::span<const Index>(indices<Index>), std::span<const T>(ones));
}

spar::task<void> broadcast_root(net_t& net, bool odd, rank_t own, rank_t common) {
  auto x = values<float>();
  co_await spar::start_broadcast(net, x, odd ? own : common);
}
spar::task<void> reduce_root(net_t& net, bool odd, rank_t own, rank_t common) {
  auto x = values<float>();
  co_await spar::start_reduce(net, x, odd ? own : common);
}
spar::task<void> broadcast_root_of_streams(net_t& net, bool odd, rank_t own, rank_t common) {
  const auto x = stream<float>();
  co_await spar::start_broadcast(net, x, odd ? own : common);
}
spar::task<void> reduce_root_of_streams(net_t& net, bool odd, rank_t own, rank_t common) {
  const auto x = stream<float>();
  co_await spar::start_reduce(net, x, odd ? own : common);
}
spar::task<void> broadcast_or_reduce(net_t& net, bool odd, rank_t own, rank_t common) {
  auto x = values<float>();
  if (odd)
    co_await spar::start_broadcast(net, x, own);
  else
    co_await spar::start_reduce(net, x, common);
}
spar::task<void> broadcast_values_or_stream(net_t& net, bool odd, rank_t own, rank_t common) {
  auto x = values<float>();
  const auto y = stream<float>();
  if (odd)
    co_await spar::start_broadcast(net, x, own);
  else
    co_await spar::start_broadcast(net, y, common);
}
spar::task<void> broadcast_length(net_t& net, bool odd, rank_t, rank_t common) {
  auto x = values<float>(odd ? n + 1 : n);
  co_await spar::start_broadcast(net, x, common);
}
spar::task<void> broadcast_type(net_t& net, bool odd, rank_t, rank_t common) {
  auto x = values<float>();
  auto y = values<std::int32_t>();
  if (odd)
    co_await spar::start_broadcast(net, x, common);
  else
    co_await spar::start_broadcast(net, y, common);
}
spar::task<void> reduce_operation(net_t& net, bool odd, rank_t, rank_t common) {
  auto x = values<float>();
  if (odd)
    co_await spar::start_reduce(net, x, common, binomial, maximum);
  else
    co_await spar::start_reduce(net, x, common);
}
/// An operation with an option.
struct capped_sum {
  static constexpr std::string_view name = "capped_sum";
  double cap = 0;
  void options(auto&& f) const { f("cap", cap); }
  float operator()(float a, float b) const { return std::min(a + b, static_cast<float>(cap)); }
  template <class T>
  static T neutral() {
    return 0;
  }
};
spar::task<void> reduce_option_of_operation(net_t& net, bool odd, rank_t, rank_t common) {
  auto x = values<float>();
  const capped_sum op{.cap = odd ? 2.0 : 3.0};
  co_await spar::start_reduce(net, x, common, binomial, op);
}
spar::task<void> reduce_index_type(net_t& net, bool odd, rank_t, rank_t common) {
  const auto x = stream<float>();
  const auto y = stream<float, std::uint64_t>();
  if (odd)
    co_await spar::start_reduce(net, x, common);
  else
    co_await spar::start_reduce(net, y, common);
}
spar::task<void> allreduce_length(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>(odd ? n + 1 : n);
  co_await spar::start_allreduce(net, x, doubling);
}
spar::task<void> allreduce_type(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>();
  auto y = values<std::int32_t>();
  if (odd)
    co_await spar::start_allreduce(net, x, ring);
  else
    co_await spar::start_allreduce(net, y, ring);
}
spar::task<void> allreduce_width_of_rows(net_t& net, bool odd, rank_t, rank_t) {
  auto x = std::vector<spar::row<float, 2>>(n);
  auto y = std::vector<spar::row<float, 3>>(n);
  if (odd)
    co_await spar::start_allreduce(net, x, ring);
  else
    co_await spar::start_allreduce(net, y, ring);
}
spar::task<void> allreduce_operation(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>();
  if (odd)
    co_await spar::start_allreduce(net, x, doubling, average);
  else
    co_await spar::start_allreduce(net, x, doubling);
}
spar::task<void> allreduce_algorithm(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>();
  if (odd)
    co_await spar::start_allreduce(net, x, ring);
  else
    co_await spar::start_allreduce(net, x, doubling);
}
spar::task<void> allreduce_option(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>();
  const spar::ring pieces{.piece = odd ? 7U : 8U};
  co_await spar::start_allreduce(net, x, pieces);
}
spar::task<void> allreduce_of_streams_option(net_t& net, bool odd, rank_t, rank_t) {
  const auto x = stream<float>();
  const spar::recursive_doubling turning{.dense_from = odd ? 0.5 : 1.0};
  co_await spar::start_allreduce(net, x, turning);
}
spar::task<void> allreduce_k(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>();
  const spar::selector::exact_topk select{.k = odd ? 3U : 4U};
  co_await spar::start_allreduce(net, x, spar::compose(select, doubling));
}
spar::task<void> allreduce_values_or_stream(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>();
  const auto y = stream<float>();
  if (odd)
    co_await spar::start_allreduce(net, x, doubling);
  else
    co_await spar::start_allreduce(net, y, doubling);
}
spar::task<void> allgather_length(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>(odd ? n + 1 : n);
  co_await spar::start_allgather(net, x);
}
spar::task<void> allgather_of_streams_dimension(net_t& net, bool odd, rank_t, rank_t) {
  const auto x = stream<float>(odd ? n + 1 : n);
  co_await spar::start_allgather(net, x);
}
spar::task<void> reduce_scatter_length(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>(odd ? n + 1 : n);
  co_await spar::start_reduce_scatter(net, x);
}
spar::task<void> reduce_scatter_owners(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>();
  const auto ranks = static_cast<std::size_t>(net.size());
  std::vector<std::uint64_t> bounds(ranks + 1, n);
  for (std::size_t r = 0; r < ranks; ++r) bounds[r] = r * (odd ? 2 : 3);
  const spar::bounded_ownership owners{bounds};
  co_await spar::start_reduce_scatter(net, x, owners);
}
spar::task<void> barrier_or_allgather(net_t& net, bool odd, rank_t, rank_t) {
  auto x = values<float>();
  if (odd)
    co_await spar::start_barrier(net);
  else
    co_await spar::start_allgather(net, x);
}

constexpr disagreement all[] = {
    {"broadcast, root", "root=", &broadcast_root, true},
    {"reduce, root", "root=", &reduce_root, true},
    {"broadcast of streams, root", "root=", &broadcast_root_of_streams, true},
    {"reduce of streams, root", "root=", &reduce_root_of_streams, true},
    {"broadcast or reduce", "binomial_reduce", &broadcast_or_reduce, true},
    {"broadcast of values or of a stream", "dense values", &broadcast_values_or_stream, true},
    {"broadcast, length", "the dimension n", &broadcast_length, false},
    {"broadcast, type", "the element type", &broadcast_type, false},
    {"reduce, operation", "the operation", &reduce_operation, false},
    {"reduce, option of the operation", "operations", &reduce_option_of_operation, false},
    {"reduce, type of indices", "the index type", &reduce_index_type, false},
    {"allreduce, length", "the dimension n", &allreduce_length, false},
    {"allreduce, type", "the element type", &allreduce_type, false},
    {"allreduce, width of rows", "rows of 3 values", &allreduce_width_of_rows, false},
    {"allreduce, operation", "the operation", &allreduce_operation, false},
    {"allreduce, algorithm", "the algorithm", &allreduce_algorithm, false},
    {"allreduce, option", "piece=7", &allreduce_option, false},
    {"allreduce of streams, option", "dense_from=0.5", &allreduce_of_streams_option, false},
    {"allreduce, k", "select.k=3", &allreduce_k, false},
    {"allreduce of values or of a stream", "dense values", &allreduce_values_or_stream, false},
    {"allgather, length", "the dimension n", &allgather_length, false},
    {"allgather of streams, dimension", "the dimension n", &allgather_of_streams_dimension, false},
    {"reduce_scatter, length", "the dimension n", &reduce_scatter_length, false},
    {"reduce_scatter, owners", "owners.length", &reduce_scatter_owners, false},
    {"barrier or allgather", "barrier", &barrier_or_allgather, false},
};

} // namespace

std::span<const disagreement> disagreements() { return all; }

spar::task<void> disagree(spar::any_transport& net, const disagreement& which, spar::rank_t odd, spar::rank_t own,
                          spar::rank_t common, std::string* text) {
  std::vector<float> x(4, 1.0F);
  try {
    co_await which.start(net, net.rank() == odd, own, common);
    co_await spar::start_allreduce(net, x, ring);
    co_await spar::start_allreduce(net, x, ring);
  } catch (const spar::mismatch& e) {
    *text = e.what();
  } catch (const spar::peer_failed& e) {
    *text = e.what();
  }
}

} // namespace spar_test
