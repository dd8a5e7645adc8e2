// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks of any transport over UCX.
#include <spar/any_ucx.hpp>
#include <spar/transport/ucx_any-inl.hpp>
