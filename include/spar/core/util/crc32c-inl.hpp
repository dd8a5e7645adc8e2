// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of crc32c.hpp.
#pragma once

#include <spar/core/util/crc32c.hpp>

#include <array>
#include <cstring>

namespace spar::inline v0_1 {

namespace detail {

inline constexpr auto crc32c_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0x82F63B78U : 0U);
    table[byte] = remainder;
  }
  return table;
}();

inline std::uint32_t crc32c_portable(const void* data, std::size_t size) noexcept {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~0U;
  for (; size > 0; --size) crc = (crc >> 8) ^ crc32c_table[(crc ^ *p++) & 0xFF];
  return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDA_ARCH__)
__attribute__((target("sse4.2"))) inline std::uint32_t crc32c_sse42(const void* data, std::size_t size) noexcept {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t crc = 0xFFFFFFFFU;
  for (; size >= 8; size -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  auto narrow = static_cast<std::uint32_t>(crc);
  if (size >= 4) {
    std::uint32_t word;
    std::memcpy(&word, p, 4);
    narrow = __builtin_ia32_crc32si(narrow, word);
    size -= 4;
    p += 4;
  }
  for (; size > 0; --size) narrow = __builtin_ia32_crc32qi(narrow, *p++);
  return ~narrow;
}
__attribute__((target("sse4.2"))) inline std::uint32_t crc32c_sse42(std::uint64_t first, std::uint32_t last) noexcept {
  const std::uint64_t crc = __builtin_ia32_crc32di(0xFFFFFFFFU, first);
  return ~__builtin_ia32_crc32si(static_cast<std::uint32_t>(crc), last);
}
inline bool has_crc32c() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
#endif

} // namespace detail

[[gnu::noinline]] SPAR_INLINE std::uint32_t crc32c(const void* data, std::size_t size) noexcept {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDA_ARCH__)
  if (detail::has_crc32c()) return detail::crc32c_sse42(data, size);
#endif
  return detail::crc32c_portable(data, size);
}

SPAR_INLINE std::uint32_t crc32c(std::uint64_t first, std::uint32_t last) noexcept {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDA_ARCH__)
  if (detail::has_crc32c()) return detail::crc32c_sse42(first, last);
#endif
  std::array<unsigned char, 12> bytes;
  std::memcpy(bytes.data(), &first, 8);
  std::memcpy(bytes.data() + 8, &last, 4);
  return detail::crc32c_portable(bytes.data(), bytes.size());
}

} // namespace spar::inline v0_1
