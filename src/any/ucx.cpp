// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks of any transport over UCX.
#include <spar/any_ucx.hpp>
#include <spar/system/any/ucx-inl.hpp>
