// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// CRC-32C (Castagnoli), the checksum of messages. Computed by the processor's CRC instruction (SSE 4.2) if available.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstddef>
#include <cstdint>

namespace spar::inline v0_1 {

/// CRC-32C of `size` bytes at `data`.
std::uint32_t crc32c(const void* data, std::size_t size) noexcept;

/// CRC-32C of 12 bytes: the 8 bytes of `first`, followed by the 4 bytes of `last`.
std::uint32_t crc32c(std::uint64_t first, std::uint32_t last) noexcept;

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/core/util/crc32c-inl.hpp>
#endif
