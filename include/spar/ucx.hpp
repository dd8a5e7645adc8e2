// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes spar.hpp and the UCX transport.
#pragma once

#include <spar/spar.hpp>
#include <spar/system/ucx_grow.hpp>
#include <spar/transport/ucx.hpp>
