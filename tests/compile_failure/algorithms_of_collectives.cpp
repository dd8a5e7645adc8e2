// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each collective rejects the algorithms of all others, and an operation in the place of the algorithm, by one sentence
// for each.
#include <spar/spar.hpp>
#include <spar/system/fused.hpp>
#include <spar/system/partial_allreduce.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

template <class... Algorithms>
void each(auto collective, Algorithms... by) {
  (collective(by), ...);
}
/// Calls `collective` with the algorithms that are not its own.
void wrong(auto collective, auto... by) { each(collective, spar::dissemination_barrier{}, spar::maximum{}, by...); }

void f(spar::threads& net, std::vector<float>& x, const spar::sparse_stream<std::int32_t>& stream,
       spar::bounded_ownership owners) {
  using namespace spar;
  const auto allreduces = [&](auto by) { allreduce(net, x, by); };
  const auto allreduces_stream = [&](auto by) { (void)allreduce(net, stream, by); };
  const auto scatters = [&](auto by) { reduce_scatter(net, x, by); };
  const auto scatters_stream = [&](auto by) { (void)reduce_scatter(net, stream, by); };
  const auto scatters_to = [&](auto by) { reduce_scatter(net, x, owners, by); };
  const auto gathers = [&](auto by) { allgather(net, x, by); };
  const auto gathers_stream = [&](auto by) { (void)allgather(net, stream, by); };
  const auto reduces = [&](auto by) { reduce(net, x, 0, by); };
  const auto reduces_stream = [&](auto by) { (void)reduce(net, stream, 0, by); };
  const auto broadcasts = [&](auto by) { broadcast(net, x, 0, by); };
  const auto broadcasts_stream = [&](auto by) { (void)broadcast(net, stream, 0, by); };
  const auto partially = [&](auto by) { (void)partial_allreduce<float>(net, 9, solo{}, by); };
  const auto partially_stream = [&](auto by) {
    (void)partial_allreduce<sparse_stream<std::int32_t>>(net, 9, solo{}, by);
  };
  const auto fused = [&](auto by) {
    const std::array<std::size_t, 1> sizes{9};
    fused_allreduce<threads, float, decltype(by)> tensors(net, sizes, {}, by);
    tensors.ready(0, x);
  };
#ifdef POSITIVE_CONTROL
  each(allreduces, ring{}, sparcml{}, storage::qsgd<8>{}), each(allreduces_stream, ring{}, sparcml{});
  each(scatters, ring_reduce_scatter{}), each(scatters_stream, ring_reduce_scatter{}, split_reduce_scatter{});
  each(scatters_to, ring_reduce_scatter{});
  each(gathers, bruck_allgather{}, ring_allgather{}), each(gathers_stream, bruck_allgather{});
  each(reduces, binomial_reduce{}), each(reduces_stream, binomial_reduce{});
  each(broadcasts, binomial_broadcast{}), each(broadcasts_stream, binomial_broadcast{});
  each(partially, ring{}), each(partially_stream, ring{}), each(fused, ring{});
#else
  const auto of_allreduce = [](auto collective) {
    wrong(collective, ring_reduce_scatter{}, split_reduce_scatter{}, bruck_allgather{}, ring_allgather{},
          binomial_reduce{}, binomial_broadcast{});
  };
  of_allreduce(allreduces), of_allreduce(allreduces_stream), of_allreduce(partially), of_allreduce(partially_stream);
  each(fused, split_reduce_scatter{});
  const auto of_scatter = [](auto collective) {
    wrong(collective, ring{}, sparcml{}, bruck_allgather{}, ring_allgather{}, binomial_reduce{}, binomial_broadcast{});
  };
  of_scatter(scatters), of_scatter(scatters_stream), of_scatter(scatters_to);
  const auto of_gather = [](auto collective) {
    wrong(collective, ring{}, sparcml{}, ring_reduce_scatter{}, split_reduce_scatter{}, binomial_reduce{},
          binomial_broadcast{});
  };
  of_gather(gathers), of_gather(gathers_stream);
  const auto of_root = [](auto collective, auto other) {
    wrong(collective, ring{}, sparcml{}, ring_reduce_scatter{}, split_reduce_scatter{}, bruck_allgather{},
          ring_allgather{}, other);
  };
  of_root(reduces, binomial_broadcast{}), of_root(reduces_stream, binomial_broadcast{});
  of_root(broadcasts, binomial_reduce{}), of_root(broadcasts_stream, binomial_reduce{});
#endif
}
