// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A residual and an algorithm's state as bytes, to be kept between jobs.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/crc32c.hpp>
#include <spar/core/util/splitmix.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace spar::detail {

// A state names its numbers by members that call f with each number and each vector of numbers:
//   shared_state(f)  what changes, alike on all ranks;
//   own_state(f)     what changes on each rank for itself.

/// The names of a composition's parts, or that of another algorithm.
template <class Algorithm>
std::string names_of(const Algorithm& algorithm) {
  std::string names;
  algorithm.options([&](std::string_view, const auto& value) {
    if constexpr (part<std::remove_cvref_t<decltype(value)>>) {
      names += (names.empty() ? "" : ", ") + std::string(value.name);
    }
  });
  return names.empty() ? std::string(Algorithm::name) : names;
}

/// Throws `invalid_argument` where a saved state is of other parts.
inline void check_names(const std::string& saved, const std::string& own) {
  if (saved != own) raise<invalid_argument>({"a saved state is of ", saved, "; this reducer is of ", own});
}

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
    if (words.empty()) raise<invalid_argument>({"a saved state is too short"});
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
    if (size > words.size()) raise<invalid_argument>({"a saved state is too short"});
    numbers.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(size));
    words = words.subspan(size);
  }
};

/// A digest of all of them.
struct state_digest {
  std::uint64_t value = 0;

  void operator()(std::uint64_t number) { value = mix(value ^ number) + mix_step; }
  void operator()(const std::vector<std::uint64_t>& numbers) {
    for (const std::uint64_t number : numbers) (*this)(number);
  }
};

/// In front of the names' characters, the state's words and the residual; a CRC-32C of everything follows them. In the
/// machine's byte order.
struct saved_header {
  static constexpr std::uint64_t version_1 = 0x3146'4552'4150'5301; // had a hash in place of the names' length
  static constexpr std::uint64_t version_2 = 0x3146'4552'4150'5302;

  std::uint64_t magic;
  std::uint64_t names; // bytes, a multiple of 8, zeros behind the last name
  element_code element;
  std::array<std::uint8_t, 7> reserved; // zeros
  std::uint64_t length;
  std::uint64_t words;
};

template <element T>
struct saved_state {
  std::string names; // empty in version 1, whose state cannot be loaded
  std::vector<std::uint64_t> words;
  std::vector<T> residual;
};

template <element T>
std::vector<std::byte> to_bytes(std::span<const std::uint64_t> words, std::span<const T> residual, std::string names) {
  names.resize((names.size() + 7) / 8 * 8);
  saved_header head{};
  head.magic = saved_header::version_2;
  head.names = names.size();
  head.element = code_of<T>;
  head.length = residual.size();
  head.words = words.size();
  std::vector<std::byte> out;
  const auto append = [&](const auto& bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); };
  append(std::as_bytes(std::span(&head, 1)));
  append(std::as_bytes(std::span(names)));
  append(std::as_bytes(words));
  append(std::as_bytes(residual));
  const std::uint32_t checksum = crc32c(out.data(), out.size());
  append(std::as_bytes(std::span(&checksum, 1)));
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
  if ((head.magic != saved_header::version_1 && head.magic != saved_header::version_2) ||
      head.reserved != saved_header{}.reserved || checksum != crc32c(saved.data(), body)) {
    raise<invalid_argument>({"a saved residual is invalid: its magic number or its checksum is wrong"});
  }
  if (head.element != code_of<T>) raise<invalid_argument>({"a saved residual has another type of values"});
  const std::size_t names = head.magic == saved_header::version_2 ? head.names : 0;
  const std::size_t rest = body - sizeof head;
  if (names > rest || head.words > rest / sizeof(std::uint64_t) || head.length > rest / sizeof(T) ||
      names + head.words * sizeof(std::uint64_t) + head.length * sizeof(T) != rest) {
    raise<invalid_argument>({"a saved residual of ", saved.size(), " bytes cannot hold ", head.length, " values"});
  }
  saved_state<T> state{std::string(names, '\0'), std::vector<std::uint64_t>(head.words), std::vector<T>(head.length)};
  const std::byte* from = saved.data() + sizeof head;
  const auto read = [&](auto& to) {
    if (!to.empty()) std::memcpy(to.data(), from, to.size() * sizeof(to[0]));
    from += to.size() * sizeof(to[0]);
  };
  read(state.names);
  read(state.words);
  read(state.residual);
  state.names.resize(std::min(state.names.find('\0'), state.names.size()));
  return state;
}

} // namespace spar::detail
