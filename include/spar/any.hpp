// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives of any composition over any transport, whose code is in the compiled library: a file that includes this
// header compiles in a fraction of a second. To catch errors by their types, include <spar/core/error.hpp>; all derive
// from std::exception.
#pragma once

#include <spar/system/any/allreduce.hpp>
#include <spar/system/any/feedback.hpp>
#include <spar/transport/any_transport.hpp>
