// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Turns error codes of NCCL into exceptions.
#pragma once

#include <spar/core/error.hpp>

#include <nccl.h>

namespace spar::inline v0_1 {

/// NCCL failed. The message contains the name of the call and NCCL's error text.
struct nccl_error : error {
  using error::error;
};

namespace detail {

/// Throws `nccl_error` with the name `call` of an NCCL function, the text of the error code, and NCCL's description of
/// its last error, unless `code` is ncclSuccess or ncclInProgress.
inline void check_nccl(ncclResult_t code, const char* call) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  const char* last = ncclGetLastError(nullptr);
  if (last == nullptr) last = "";
  raise<nccl_error>({call, " failed: ", ncclGetErrorString(code), *last == '\0' ? "" : "; ", last});
}

} // namespace detail

} // namespace spar::inline v0_1
