// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Converts a residual and the state of an algorithm to bytes and back, so that a program can keep both between jobs.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/crc32c.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/runtime/signature.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar::inline v0_1::detail {

// A state has two member templates, which call `f` with each number and each `std::vector<std::uint64_t>` in the state:
// - `shared_state(f)` for the numbers that are equal on all ranks;
// - `own_state(f)` for the numbers that differ from rank to rank.

/// The names of a composition's selector, storage, topology and schedule, separated by commas, or the name of an
/// algorithm that is not a composition. A part that was chosen at run time has the name of what was chosen.
template <class Algorithm>
std::string names_of(const Algorithm& algorithm) {
  std::string names;
  algorithm.options([&](std::string_view, const auto& value) {
    if constexpr (part<std::remove_cvref_t<decltype(value)>>) {
      names.append(names.empty() ? "" : ", ");
      if constexpr (requires { value.chosen_name(); })
        names.append(value.chosen_name());
      else
        names.append(value.name);
    }
  });
  return names.empty() ? std::string(Algorithm::name) : names;
}

/// Throws `invalid_argument` if `saved` differs from `own`. `saved` is the result of `names_of` for the reducer that
/// saved the state, and `own` the result for the reducer that loads the state.
inline void check_names(const std::string& saved, const std::string& own) {
  if (saved != own) raise<invalid_argument>({"the state was saved by the reducer ", saved, "; this reducer is ", own});
}

/// Collects the numbers of a state as 64-bit words; writes the length of a vector before the numbers of the vector.
/// Functions that take vectors are templates, which only programs that save a state compile.
struct state_writer {
  std::vector<std::uint64_t> words{};

  template <class Number>
  void operator()(const Number& number) {
    words.push_back(word_of(number));
  }
  template <std::same_as<std::uint64_t> Word>
  void operator()(const std::vector<Word>& numbers) {
    words.push_back(numbers.size());
    words.insert(words.end(), numbers.begin(), numbers.end());
  }
};

/// Reads the numbers of a state from `words`, in the order in which `state_writer` wrote them. Throws
/// `invalid_argument` if words are missing.
struct state_reader {
  std::span<const std::uint64_t> words;

  std::uint64_t next() {
    if (words.empty())
      raise<invalid_argument>({"the saved state has fewer 64-bit words than the state of this reducer"});
    const std::uint64_t word = words.front();
    words = words.subspan(1);
    return word;
  }
  template <class Number>
  void operator()(Number& number) {
    if constexpr (std::floating_point<Number>)
      number = static_cast<Number>(std::bit_cast<double>(next()));
    else
      number = static_cast<Number>(next());
  }
  template <std::same_as<std::uint64_t> Word>
  void operator()(std::vector<Word>& numbers) {
    const std::uint64_t size = next();
    if (size > words.size())
      raise<invalid_argument>(
          {"the saved state has a vector of ", size, " 64-bit words, but only ", words.size(), " words follow"});
    numbers.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(size));
    words = words.subspan(size);
  }
};

/// Computes a digest of the numbers that `shared_state` passes to this object, and of the lengths of its vectors. Both
/// must be equal on all ranks; the ranks compare only the digest.
struct state_digest {
  std::uint64_t value = 0;

  template <class Number>
  void operator()(const Number& number) {
    value = splitmix_finalize(value ^ word_of(number)) + splitmix_step;
  }
  template <std::same_as<std::uint64_t> Word>
  void operator()(const std::vector<Word>& numbers) {
    (*this)(numbers.size());
    for (const std::uint64_t number : numbers) (*this)(number);
  }
};

/// The header of a saved state. The header is followed by the characters of the names, the words of the state, the
/// residual, and a CRC-32C of all bytes before the CRC. All numbers are in the machine's byte order.
struct saved_header {
  static constexpr std::uint64_t version_1 = 0x3146'4552'4150'5301; // the old layout, with a hash in the field `names`
  static constexpr std::uint64_t version_2 = 0x3146'4552'4150'5302;

  std::uint64_t magic; // `version_1` or `version_2`
  std::uint64_t names; // length of the names in bytes, a multiple of 8; zeros pad the last name
  element_code element;
  std::uint8_t reserved; // 0
  std::uint16_t width;   // number of values of a row of the residual; 0 if its values are not rows
  std::uint32_t zero;    // 0
  std::uint64_t length;  // number of values of the residual
  std::uint64_t words;   // number of 64-bit words of the state
};

template <element T>
struct saved_state {
  std::string names; // empty for layout version 1, of which only the residual can be restored
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
  head.width = width_of<T>;
  head.length = residual.size();
  head.words = words.size();
  const std::size_t body = sizeof head + names.size() + words.size_bytes() + residual.size_bytes();
  std::vector<std::byte> out(body + sizeof(std::uint32_t));
  std::byte* to = out.data();
  const auto append = [&](const void* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
    to += bytes;
  };
  append(&head, sizeof head);
  append(names.data(), names.size());
  append(words.data(), words.size_bytes());
  append(residual.data(), residual.size_bytes());
  const std::uint32_t checksum = crc32c(out.data(), body);
  append(&checksum, sizeof checksum);
  return out;
}

/// Reads what `to_bytes` wrote. Throws `invalid_argument` if the bytes are damaged, or if the values of the residual
/// are not of type T.
template <element T>
saved_state<T> from_bytes(std::span<const std::byte> saved) {
  saved_header head{};
  std::uint32_t checksum = 0;
  if (saved.size() < sizeof head + sizeof checksum) {
    raise<invalid_argument>(
        {"the saved state has ", saved.size(), " bytes; expected at least ", sizeof head + sizeof checksum});
  }
  std::memcpy(&head, saved.data(), sizeof head);
  const std::size_t body = saved.size() - sizeof checksum;
  std::memcpy(&checksum, saved.data() + body, sizeof checksum);
  if ((head.magic != saved_header::version_1 && head.magic != saved_header::version_2) || head.reserved != 0 ||
      head.zero != 0 || checksum != crc32c(saved.data(), body)) {
    raise<invalid_argument>({"the saved state of ", saved.size(),
                             " bytes is damaged: its magic number, its reserved bytes or its checksum is wrong"});
  }
  if (head.element != code_of<T>)
    raise<invalid_argument>({"the saved residual has values of type ", name_of(head.element).c_str(),
                             ", but the type of this reducer's values is ", name_of(code_of<T>).c_str()});
  if (head.width != width_of<T>)
    raise<invalid_argument>(
        {"the saved residual has rows of ", head.width, " values, but this reducer has rows of ", width_of<T>});
  const std::size_t names = head.magic == saved_header::version_2 ? head.names : 0;
  const std::size_t rest = body - sizeof head;
  if (names > rest || head.words > rest / sizeof(std::uint64_t) || head.length > rest / sizeof(T) ||
      names + head.words * sizeof(std::uint64_t) + head.length * sizeof(T) != rest) {
    raise<invalid_argument>({"the saved state has ", saved.size(), " bytes, which do not match its header: ", names,
                             " bytes of names, ", head.words, " words of state and a residual of ", head.length,
                             " values"});
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

/// Returns the residual and the state `now` of a reducer that calls `algorithm` as bytes.
template <element T, class Algorithm>
std::vector<std::byte> save_reducer(const Algorithm& algorithm, typename Algorithm::state now,
                                    std::span<const T> residual) {
  state_writer words;
  now.shared_state(words);
  now.own_state(words);
  return to_bytes<T>(words.words, residual, names_of(algorithm));
}
/// Replaces the state `now` of a reducer that calls `algorithm` by what `save_reducer` has saved, and returns the
/// residual. Throws `invalid_argument`, and changes nothing, if `saved` is damaged, if it comes from a different value
/// type, selector, storage, topology or schedule, or if it has an old layout that lacks their names.
template <element T, class Algorithm>
std::vector<T> load_reducer(const Algorithm& algorithm, typename Algorithm::state& now,
                            std::span<const std::byte> saved) {
  saved_state<T> loaded = from_bytes<T>(saved);
  if (loaded.names.empty()) {
    raise<invalid_argument>({"the saved state has an old layout without the names of its selector, storage, topology "
                             "and schedule, so they cannot be checked; take_over() in C++ restores only the "
                             "residual, and the next calls then compute new thresholds and boundaries"});
  }
  check_names(loaded.names, names_of(algorithm));
  typename Algorithm::state next = now;
  state_reader words{loaded.words};
  next.shared_state(words);
  next.own_state(words);
  if (!words.words.empty())
    raise<invalid_argument>(
        {"the saved state has ", words.words.size(), " more 64-bit words than the state of this reducer"});
  now = std::move(next);
  return std::move(loaded.residual);
}

} // namespace spar::inline v0_1::detail
