// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory spaces: where the bytes of a buffer lie, as a type.
#pragma once

#include <concepts>

namespace spar {

/// Memory that the processor reads and writes.
struct host {};

/// Memory of a CUDA device.
struct cuda {};

template <class Space>
concept memory_space = std::same_as<Space, host> || std::same_as<Space, cuda>;

} // namespace spar
