// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parts and compositions from texts.
#include <spar/core/policy/part_text-inl.hpp>
#include <spar/system/text/composition_text-inl.hpp>
