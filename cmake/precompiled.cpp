// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An empty source: CMake makes a precompiled header for a source (spar_add_precompiled).
