// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A device has no kernels that make codes; spar::staged takes the values to the host.
#include "cuda/runtime_double.hpp"

#include "cuda/on_host.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/cuda.hpp>
#include <spar/on_device.cuh>
#include <spar/spar.hpp>

void program(spar::threads& net, spar::device_span<float> x) {
#ifdef POSITIVE_CONTROL
  spar::staged gpu(net);
#else
  spar::on_device gpu(net);
#endif
  spar::allreduce(gpu, x, spar::compose(spar::storage::bound{.error = 0.1}, spar::ring{}));
}
