// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes the parts of the library that most programs need, and nothing that requires MPI or CUDA:
//
// - system/collectives.hpp: allreduce and the other collectives; collective/allreduce/compose.hpp: `compose`, `sparcml`
// - system/published.hpp: ok_topk, topka, gtopk, gaussiank and the other published systems
// - optimizer/error_feedback.hpp: `error_feedback`, around any composition; optimizer/sgd.hpp: `sgd_step`
// - selector/, storage/codec.hpp: the selectors, such as exact_topk, and the codecs of dense values
// - transport/threads.hpp: ranks that are threads of one process
//
// A program includes one of these for other transports, all with spar.hpp: mpi.hpp, nccl.hpp, sim.hpp (the simulated
// network). Values in device memory: on_device.cuh, cuda_feedback.cuh, cuda.hpp. Headers for the rest: tree.hpp (trees,
// FlexReduce), system/partial_allreduce.hpp, system/eager_sgd.hpp, storage/coded.hpp (a code of sparse streams),
// storage/coalesce.hpp (streams of indices in any order), storage/zfp.hpp, storage/zfp_field.hpp (needs libzfp),
// strided.hpp (values with gaps), tolerance.hpp (codecs for a tolerance), model/network_file.hpp (saved network
// models), transport/faulty.hpp, transport/tracing.hpp.
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
