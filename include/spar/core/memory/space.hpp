// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory spaces: types that state whether a buffer is in host memory or in device memory.
#pragma once

#include <spar/core/compiler.hpp>

#include <concepts>
#include <type_traits>

namespace spar::inline v0_1 {

/// The space of host memory, which the processor can read and write.
struct host {};

/// The space of CUDA device memory.
struct cuda {};

/// A memory space: `host` or `cuda`.
template <class Space>
concept memory_space = std::same_as<Space, host> || std::same_as<Space, cuda>;

namespace detail {

/// A type of values in device memory, such as a stream with the space `cuda`.
template <class X>
concept in_device_memory = std::same_as<typename std::remove_cvref_t<X>::space, cuda>;
template <class... Args>
concept any_in_device_memory = (in_device_memory<Args> || ...);

} // namespace detail

} // namespace spar::inline v0_1
