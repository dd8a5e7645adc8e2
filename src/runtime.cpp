// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The part of spar that does not depend on the type of values, without MPI.
#include <spar/core/error-inl.hpp>
#include <spar/transport/threads-inl.hpp>
