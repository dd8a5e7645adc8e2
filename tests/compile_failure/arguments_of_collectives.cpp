// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arguments that a program takes over from MPI, or forgets, are rejected by sentences that show the right ones. Each
// call has types of its own, because the compiler prints a sentence once for each.
#include <spar/spar.hpp>

#include <complex>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

using complex = std::complex<double>;
template <>
inline constexpr spar::element_code spar::code_of<complex> = spar::element_code{64};

void f(spar::threads& net, std::vector<float>& x, std::vector<double>& y, std::vector<complex>& z,
       const spar::sparse_stream<float>& stream) {
#ifdef POSITIVE_CONTROL
  float one = 1;
  std::vector<std::uint32_t> bits(9);
  spar::broadcast(net, std::span(&one, 1), 0);
  (void)spar::start_reduce(net, spar::named{"bits"}, bits, 0);
  spar::reduce(net, x, 0);
  const std::vector<std::uint64_t> bounds{0, 5, 10};
  spar::reduce_scatter(net, x, spar::bounded_ownership{bounds});
  spar::allgather(net, y, spar::bruck_allgather{});
  spar::allreduce(net, z);
  (void)spar::reduce_scatter(net, stream, spar::ring_reduce_scatter{});
#elif defined(SINGLE)
  float one = 1;
  std::vector<bool> bits(9);
  spar::broadcast(net, one, 0);
  (void)spar::start_reduce(net, spar::named{"bits"}, bits, 0);
  spar::allreduce(net, 3);
  (void)spar::start_allgather(net, y.data(), 9);
  spar::reduce_scatter(net, *x.data());
#elif defined(ROOT)
  spar::reduce(net, x);
  (void)spar::start_broadcast(net, y);
  spar::reduce(net, x, y, 0);
#elif defined(COUNTS)
  const std::vector<int> counts{5, 5};
  spar::reduce_scatter(net, x, counts);
  spar::reduce_scatter(net, x, std::vector<int>{5, 5});
  (void)spar::start_reduce_scatter(net, spar::named{"mine"}, x, std::as_const(y));
#elif defined(BOUNDS)
  const std::vector<int> bounds{0, 5, 10};
  spar::reduce_scatter(net, x, spar::bounded_ownership{bounds});
#elif defined(OTHER)
  spar::allgather(net, y, spar::ring{});
#elif defined(ROOTED)
  spar::reduce(net, x, 0, spar::ring_reduce_scatter{});
  (void)spar::start_reduce(net, stream, 0, spar::split_reduce_scatter{});
  (void)spar::broadcast(net, stream, 0, spar::bruck_allgather{});
  spar::broadcast(net, y, 0, spar::binomial_reduce{});
#elif defined(WHOLE)
  (void)spar::start_reduce_scatter(net, x, spar::ring{});
  spar::reduce_scatter(net, y, spar::sparcml{});
  (void)spar::reduce_scatter(net, stream, spar::compose(spar::ring{}));
#elif defined(BLOCK)
  spar::allreduce(net, x, spar::ring_reduce_scatter{});
  (void)spar::start_allreduce(net, stream, spar::split_reduce_scatter{});
#elif defined(ORDER)
  spar::allreduce(net, z, spar::ring{}, spar::maximum{});
#else
  auto feedback = spar::with_error_feedback<complex>(spar::compose(spar::selector::exact_topk{.k = 3}));
  feedback(net, z);
#endif
}
