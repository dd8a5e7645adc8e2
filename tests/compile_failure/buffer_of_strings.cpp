// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A buffer's elements are sent as their bytes: a type that is not trivially copyable is rejected.
#include <spar/core/memory/buffer.hpp>

#include <string>

#ifdef POSITIVE_CONTROL
spar::buffer<char> b;
#else
spar::buffer<std::string> b;
#endif
