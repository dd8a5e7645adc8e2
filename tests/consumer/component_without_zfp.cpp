// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A component of a program, which links spar::spar only, in a program whose other component links spar::zfp. Each class
// must be the same in both.
#include "component.hpp"

#include <cmath>
#include <cstdio>

int main() {
  int wrong = 0;
  const auto expect_six = [&](const char* component, const char* codec, double sum) {
    if (std::abs(sum - 6) < 0.1) return;
    std::printf("component %s zfp, codec %s: the sum is %g, expected 6\n", component, codec, sum);
    ++wrong;
  };
  for (const char* codec : {"none", "qsgd:8", "zfp:16"}) {
    expect_six("with", codec, with_zfp::sum_by(codec));
    expect_six("without", codec, sum<double>(codec));
  }
  return wrong;
}
