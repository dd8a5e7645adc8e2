// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Options of the compiler with which no header of spar would compile, which says so in one sentence.
#ifndef POSITIVE_CONTROL // the options alone are no error
#include <spar/spar.hpp>
#endif
