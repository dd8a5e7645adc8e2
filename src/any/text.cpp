// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads compositions from texts.
#include <spar/system/any/text-inl.hpp>
