// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes spar.hpp and the NCCL transport.
#pragma once

#include <spar/spar.hpp>
#include <spar/transport/nccl.hpp>
