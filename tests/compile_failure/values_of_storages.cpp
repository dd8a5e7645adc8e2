// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values that a storage does not encode are rejected by a sentence that names the types, for each storage.
#include <spar/collective/compressed/bound.hpp>
#include <spar/spar.hpp>
#include <spar/storage/mx.hpp>
#include <spar/storage/packed.hpp>
#include <spar/storage/zfp.hpp>
#include <spar/system/partial_allreduce.hpp>

#include <cstdint>
#include <vector>

#ifdef POSITIVE_CONTROL
using narrow = float;
using whole = float;
using real = std::int32_t;
#else
using narrow = spar::half;
using whole = std::int32_t;
using real = float;
#endif

void f(spar::threads& net, std::vector<narrow>& x, std::vector<whole>& numbers, std::vector<real>& values,
       const spar::sparse_stream<narrow>& stream) {
  using namespace spar;
  using namespace spar::storage;
  allreduce(net, x, compose(zfp{.rate = 8}, ring{}));
  allreduce(net, x, compose(bound{.error = 0.1}, two_shot{}));
  (void)allreduce(net, stream, bound{.error = 0.1});
  with_error_feedback<narrow>(compose(zfp{.rate = 8}, one_shot{}))(net, x);
  (void)partial_allreduce<narrow>(net, 9, solo{}, compose(zfp{.rate = 8}, rabenseifner{}));
  allreduce(net, numbers, compose(qsgd<8>{}, ring{}));
  allreduce(net, numbers, compose(mx<e4m3>{}, ring{}));
  allreduce(net, numbers, as_half{});
  allreduce(net, values, compose(packed{}, ring{}));
}
