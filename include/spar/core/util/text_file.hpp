// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads a whole text file in bounded memory.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace spar::inline v0_1::detail {

/// Calls `system_call` until no signal interrupts it, and returns its result.
template <class Call>
auto repeat_if_interrupted(const Call& system_call) {
  auto result = system_call();
  while (result < 0 && errno == EINTR) result = system_call();
  return result;
}

/// Returns the text of the file `path`. Throws `invalid_argument`, naming the file, if it cannot be read, for example
/// because it is a directory, if it has more than `most` bytes, or if it has a zero byte, which no text has: so the
/// function also ends for files without an end, such as /dev/zero. A FIFO that no process writes is an empty text.
[[gnu::cold]] inline std::string read_text_file(const std::string& path, std::size_t most) {
  const struct opened {
    int get;
    ~opened() {
      if (get >= 0) ::close(get);
    }
  } file{repeat_if_interrupted([&] {
    return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); // does not wait for a writer of a FIFO
  })};
  const auto expect = [&](bool good) {
    if (!good) raise<invalid_argument>({"cannot read ", path, ": ", std::strerror(errno)});
  };
  expect(file.get >= 0 && ::fcntl(file.get, F_SETFL, 0) == 0); // waits for what the writer of a pipe writes
  std::string text;
  for (bool ended = false; !ended;) {
    const std::size_t length = text.size(), room = std::min(most + 1 - length, std::max<std::size_t>(length, 4096));
    text.resize(length + room);
    const ssize_t taken = repeat_if_interrupted([&] { return ::read(file.get, text.data() + length, room); });
    expect(taken >= 0);
    text.resize(length + static_cast<std::size_t>(taken));
    if (text.find('\0', length) != text.npos) raise<invalid_argument>({path, " has a zero byte; expected a text"});
    if (text.size() > most)
      raise<invalid_argument>({path, " has more than ", most, " bytes; expected at most as many"});
    ended = taken == 0;
  }
  return text;
}

/// The start of a text for an error message, which a text from a file could make as long as the file.
[[gnu::cold]] inline std::string start_of(std::string_view text) {
  constexpr std::size_t most = 80;
  return text.size() <= most ? std::string(text) : std::string(text.substr(0, most)) + "...";
}

} // namespace spar::inline v0_1::detail
