// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks of a test program over UCX, each of which is a process.
#pragma once

#include <spar/ucx.hpp>

#include <string>
#include <utility>

namespace spar_test {

/// Where the ranks of this program meet.
const spar::rendezvous& meeting();

/// Waits until all ranks call it, without UCX.
inline void wait_for_all() { (void)meeting().exchange(""); }

/// The ending of a call that cannot succeed: the text of its error, and the seconds until then.
template <class Call>
std::pair<std::string, double> ending_of(Call call) {
  const double start = spar::ucx_port::now();
  std::string text = "no error";
  try {
    call();
  } catch (const std::exception& e) {
    text = e.what();
  }
  return {text, spar::ucx_port::now() - start};
}

} // namespace spar_test
