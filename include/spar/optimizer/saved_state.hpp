// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A residual and an algorithm's state as bytes, to be kept between jobs.
#pragma once

#include <spar/core/crc32c.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/fnv1a.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace spar::detail {

// An algorithm names its state by members that call f with each number and each vector of numbers:
//   shared_state(f)  what changes, alike on all ranks;
//   own_state(f)     what changes on each rank for itself.
// Its options are those of a policy.

/// Collects numbers as words.
struct state_writer {
  std::vector<std::uint64_t> words{};

  void operator()(std::uint64_t number) { words.push_back(number); }
  void operator()(const std::vector<std::uint64_t>& numbers) {
    words.push_back(numbers.size());
    words.insert(words.end(), numbers.begin(), numbers.end());
  }
};

/// Gives them back in the same order.
struct state_reader {
  std::span<const std::uint64_t> words;

  std::uint64_t next() {
    if (words.empty()) throw invalid_argument("a saved state is too short");
    const std::uint64_t word = words.front();
    words = words.subspan(1);
    return word;
  }
  template <std::unsigned_integral Number>
  void operator()(Number& number) {
    number = static_cast<Number>(next());
  }
  void operator()(std::vector<std::uint64_t>& numbers) {
    const std::uint64_t size = next();
    if (size > words.size()) throw invalid_argument("a saved state is too short");
    numbers.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(size));
    words = words.subspan(size);
  }
};

/// Hashes all of them, as FNV-1a does octets.
struct state_hash {
  std::uint64_t value = fnv1a_basis;

  void operator()(std::uint64_t number) { value = fnv1a(value, number); }
  void operator()(const std::vector<std::uint64_t>& numbers) {
    for (const std::uint64_t number : numbers) (*this)(number);
  }
};

/// In front of the state's words and the residual; a CRC-32C of everything follows them. In the machine's byte order.
struct saved_header {
  static constexpr std::uint64_t spar = 0x3146'4552'4150'5301; // with the version

  std::uint64_t magic;
  std::uint64_t algorithm; // its name's hash
  element_code element;
  std::array<std::uint8_t, 7> reserved; // zeros
  std::uint64_t length;
  std::uint64_t words;
};

template <element T>
struct saved_state {
  std::uint64_t algorithm;
  std::vector<std::uint64_t> words;
  std::vector<T> residual;
};

template <element T>
std::vector<std::byte> to_bytes(std::span<const std::uint64_t> words, std::span<const T> residual,
                                std::uint64_t algorithm) {
  saved_header head{};
  head.magic = saved_header::spar;
  head.algorithm = algorithm;
  head.element = code_of<T>;
  head.length = residual.size();
  head.words = words.size();
  const std::size_t values_at = sizeof head + words.size_bytes();
  const std::size_t body = values_at + residual.size_bytes();
  std::vector<std::byte> out(body + sizeof(std::uint32_t));
  std::memcpy(out.data(), &head, sizeof head);
  if (!words.empty()) std::memcpy(out.data() + sizeof head, words.data(), words.size_bytes());
  if (!residual.empty()) std::memcpy(out.data() + values_at, residual.data(), residual.size_bytes());
  const std::uint32_t checksum = crc32c(out.data(), body);
  std::memcpy(out.data() + body, &checksum, sizeof checksum);
  return out;
}

/// Throws `invalid_argument` where the bytes are damaged, or not those of a residual of T.
template <element T>
saved_state<T> from_bytes(std::span<const std::byte> saved) {
  saved_header head{};
  std::uint32_t checksum = 0;
  if (saved.size() < sizeof head + sizeof checksum) {
    raise<invalid_argument>({"a saved residual of ", saved.size(), " bytes is too short"});
  }
  std::memcpy(&head, saved.data(), sizeof head);
  const std::size_t body = saved.size() - sizeof checksum;
  std::memcpy(&checksum, saved.data() + body, sizeof checksum);
  if (head.magic != saved_header::spar || head.reserved != saved_header{}.reserved ||
      checksum != crc32c(saved.data(), body)) {
    throw invalid_argument("a saved residual is damaged, or it is none");
  }
  if (head.element != code_of<T>) throw invalid_argument("a saved residual has another type of values");
  const std::size_t rest = body - sizeof head;
  if (head.words > rest / sizeof(std::uint64_t) || head.length > rest / sizeof(T) ||
      head.words * sizeof(std::uint64_t) + head.length * sizeof(T) != rest) {
    raise<invalid_argument>({"a saved residual of ", saved.size(), " bytes cannot hold ", head.length, " values"});
  }
  saved_state<T> state{head.algorithm, std::vector<std::uint64_t>(head.words), std::vector<T>(head.length)};
  const std::byte* const words = saved.data() + sizeof head;
  if (head.words > 0) std::memcpy(state.words.data(), words, head.words * sizeof(std::uint64_t));
  const std::byte* const values = words + head.words * sizeof(std::uint64_t);
  if (head.length > 0) std::memcpy(state.residual.data(), values, head.length * sizeof(T));
  return state;
}

} // namespace spar::detail
