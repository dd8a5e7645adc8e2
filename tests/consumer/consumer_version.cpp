// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user's program that compiles quickly: the version of the headers is FOUND_VERSION, that of the package.
#include <spar/version.hpp>

int main() { return spar::version == FOUND_VERSION ? 0 : 1; }
