// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes spar.hpp and the simulated network.
#pragma once

#include <spar/spar.hpp>
#include <spar/transport/sim.hpp>
