// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The translation unit for which the tests' precompiled header is made.
