// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The errors that spar throws; each message is one sentence that names the values.
#pragma once

#include <stdexcept>
#include <string>

namespace spar {

/// Base of every error of the library.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A caller's mistake, found before any message is sent.
struct invalid_argument : error {
  using error::error;
};

/// Two ranks disagree on what they are computing.
struct mismatch : error {
  using error::error;
};

/// Bytes that arrived are not what a rank of this library sends.
struct corrupt_message : error {
  using error::error;
};

/// Another rank failed while this one was waiting.
struct peer_failed : error {
  using error::error;
};

/// No rank can make progress any more (the simulator knows; other transports cannot).
struct deadlock : error {
  using error::error;
};

/// The layer below (an MPI call, an allocation of device memory) reported an error.
struct transport_error : error {
  using error::error;
};

} // namespace spar
