// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes spar.hpp and the MPI transport.
#pragma once

#include <spar/spar.hpp>
#include <spar/transport/mpi.hpp>
#include <spar/transport/mpi/hosts.hpp>
