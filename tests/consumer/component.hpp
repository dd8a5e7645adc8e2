// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the two components of a program have in common.
#pragma once

#include <spar/spar.hpp>
#include <spar/storage/named_codec.hpp>

#include <vector>

namespace with_zfp {
float sum_by(const char* codec);
}

/// One value of the sum over three ranks of vectors of twos.
template <class T>
T sum(const char* codec) {
  T value = 0;
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    std::vector<T> x(4000, 2);
    spar::allreduce(net, x, spar::compose(spar::storage::named_codec(codec), spar::ring{}));
    if (net.rank() == 0) value = x[17];
  });
  return value;
}
