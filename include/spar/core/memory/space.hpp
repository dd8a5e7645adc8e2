// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory spaces: types that state whether a buffer is in host memory or in device memory.
#pragma once

#include <concepts>

namespace spar {

/// The space of host memory, which the processor can read and write.
struct host {};

/// The space of CUDA device memory.
struct cuda {};

/// A memory space: `host` or `cuda`.
template <class Space>
concept memory_space = std::same_as<Space, host> || std::same_as<Space, cuda>;

} // namespace spar
