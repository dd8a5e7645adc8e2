// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes the parts of the library that most programs need, and nothing that requires MPI or CUDA. Does not
// include, among others, the simulated network (sim.hpp), trees (tree.hpp), partial collectives
// (system/partial_allreduce.hpp, system/eager_sgd.hpp), saved network models (model/network_file.hpp), the code of
// sparse streams (storage/coded.hpp), values with gaps (strided.hpp), codecs for a tolerance (tolerance.hpp),
// transport/faulty.hpp and transport/tracing.hpp.
#pragma once

#include <spar/optimizer/sgd.hpp>
#include <spar/runtime/progress_thread.hpp>
#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/nonzeros.hpp>
#include <spar/selector/threshold_reuse.hpp>
#include <spar/storage/keep_largest.hpp>
#include <spar/system/collectives.hpp>
#include <spar/system/fused.hpp>
#include <spar/system/published.hpp>
#include <spar/system/set_network.hpp>
#include <spar/transport/counting.hpp>
#include <spar/transport/threads.hpp>
#include <spar/version.hpp>
