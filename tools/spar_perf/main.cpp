// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// spar_perf: a suite without systems of its own.
#include "suite.hpp"

int main(int argc, char** argv) { return spar::perf::suite().run(argc, argv); }
