// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes the parts of the library that most programs need, and nothing that requires MPI or CUDA:
//
// - allreduce.hpp: allreduce, the other collectives, and `compose`
// - topk.hpp: the selectors, error feedback, and ok_topk, topka, gtopk, gaussiank and the other published systems
// - storage/qsgd.hpp, storage/short_float.hpp: the codecs qsgd, as_half and as_bfloat16
// - transport/threads.hpp: ranks that are threads of one process
// - system/fused.hpp, system/set_network.hpp, runtime/progress_thread.hpp, transport/counting.hpp
//
// A program that includes only the headers that it needs of this list compiles faster.
//
// A program includes one of these for other transports, all with spar.hpp: mpi.hpp, nccl.hpp, sim.hpp (the simulated
// network). Values in device memory: on_device.cuh, cuda_feedback.cuh, cuda.hpp. Headers for the rest: tree.hpp (trees,
// FlexReduce), system/partial_allreduce.hpp, system/eager_sgd.hpp, system/bucketed_feedback.hpp (error feedback that
// overlaps with the backward pass), storage/coded.hpp (a code of sparse streams), storage/coalesce.hpp (streams of
// indices in any order), storage/zfp.hpp, storage/zfp_field.hpp (needs libzfp), strided.hpp (values with gaps),
// tolerance.hpp (codecs for a tolerance), model/network_file.hpp (saved network models), transport/faulty.hpp,
// transport/tracing.hpp.
#pragma once

#include <spar/allreduce.hpp>
#include <spar/runtime/progress_thread.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>
#include <spar/system/fused.hpp>
#include <spar/system/set_network.hpp>
#include <spar/topk.hpp>
#include <spar/transport/counting.hpp>
#include <spar/transport/threads.hpp>
#include <spar/version.hpp>
