// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A component of a program, which links spar::zfp.
#include "component.hpp"

float with_zfp::sum_by(const char* codec) { return sum<float>(codec); }
