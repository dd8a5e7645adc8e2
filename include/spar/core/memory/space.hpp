// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory spaces: types that say where the bytes of a buffer are.
#pragma once

#include <concepts>

namespace spar {

/// Memory that the processor can read and write.
struct host {};

/// Memory of a CUDA device.
struct cuda {};

template <class Space>
concept memory_space = std::same_as<Space, host> || std::same_as<Space, cuda>;

} // namespace spar
