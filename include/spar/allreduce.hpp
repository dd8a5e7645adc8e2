// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes allreduce of dense values and of sparse streams, the other collectives, and `compose` with all schedules
// that reduce whole vectors or streams. Leaves out selectors, codecs of dense values and transports: a program
// also includes a transport, such as transport/threads.hpp, and the parts that it names. Compiles faster than spar.hpp.
#pragma once

#include <spar/system/collectives.hpp>
