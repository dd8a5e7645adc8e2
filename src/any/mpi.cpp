// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks of any transport over MPI.
#include <spar/any_mpi.hpp>
#include <spar/system/any/mpi-inl.hpp>
