// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads files of LIBSVM: one sample per line, "LABEL [qid:N] INDEX:VALUE ... # comment", with indices from 1 on.
#pragma once

#include "samples.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace linear {

/// The largest dimension whose indices fit into 32 bits.
constexpr std::uint64_t most_features = std::uint64_t{1} << 32;

/// The bytes of a file, by mmap: the kernel reads only the pages that are used.
class mapped_file {
 public:
  explicit mapped_file(const std::string& path) {
    const auto fail = [&](const char* why) { throw std::runtime_error(path + " cannot be read: " + why); };
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe without a writer would block
    if (file < 0) fail(std::strerror(errno));
    struct stat about{};
    const char* why = fstat(file, &about) != 0  ? std::strerror(errno)
                      : !S_ISREG(about.st_mode) ? "not a regular file"
                                                : nullptr;
    if (why == nullptr && about.st_size > 0) {
      size_ = static_cast<std::size_t>(about.st_size);
      bytes_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
      if (bytes_ == MAP_FAILED) why = std::strerror(errno);
    }
    close(file);
    if (why != nullptr) fail(why);
  }
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  ~mapped_file() {
    if (size_ > 0) munmap(bytes_, size_);
  }
  std::string_view text() const { return {static_cast<const char*>(bytes_), size_}; }

 private:
  void* bytes_ = nullptr;
  std::size_t size_ = 0;
};

/// Parses the lines of one shard.
class libsvm_parser {
 public:
  /// `text` is the whole file `name`; an index above `dimension` is an error.
  libsvm_parser(std::string_view text, std::string name, std::uint64_t dimension)
      : text_(text), name_(std::move(name)), dimension_(dimension) {}

  /// Parses the lines that begin in part `shard` of `shards` equal parts of the file. Throws std::runtime_error for a
  /// malformed line, and for a label that is not one of `labels` unless these are empty, with file, line and column.
  samples parse(std::size_t shard, std::size_t shards, std::span<const float> labels = {}) const {
    samples all;
    const std::size_t end = begin_of(shard + 1, shards);
    for (std::size_t at = begin_of(shard, shards); at < end;) {
      const std::size_t stop = std::min(text_.find('\n', at), text_.size());
      parse_line(text_.substr(at, stop - at), labels, all);
      at = stop + 1;
    }
    return all;
  }

 private:
  /// The first line that begins at or after the cut before the shard.
  std::size_t begin_of(std::size_t shard, std::size_t shards) const {
    const std::size_t cut = text_.size() / shards * shard + text_.size() % shards * shard / shards;
    if (cut == 0) return 0;
    const std::size_t end = text_.find('\n', cut - 1);
    return end == std::string_view::npos ? text_.size() : end + 1;
  }

  void parse_line(std::string_view line, std::span<const float> labels, samples& into) const {
    line = line.substr(0, line.find('#'));
    std::string_view word = next_word(line);
    if (word.empty()) return;
    if (word.find(':') != std::string_view::npos) fail(word, "the label is missing before '", word, "'");
    const float label = value_of(word, "the label");
    if (!labels.empty() && std::find(labels.begin(), labels.end(), label) == labels.end())
      fail(word, "the label ", word, " is a third one; expected two labels");
    word = next_word(line);
    if (word.starts_with("qid:")) {
      (void)index_of(word.substr(4), "the qid");
      word = next_word(line);
    }
    std::uint64_t last = 0;
    for (; !word.empty(); word = next_word(line)) {
      const std::size_t colon = word.find(':');
      if (colon == std::string_view::npos) fail(word, "expected INDEX:VALUE, got '", word, "'");
      const std::string_view number = word.substr(0, colon);
      const std::uint64_t index = index_of(number, "the index");
      if (index == 0) fail(word, "the index is 0; the first feature has the index 1", "");
      if (index <= last) fail(word, "the index ", number, " is not above the index before, " + std::to_string(last));
      if (index > dimension_) fail(word, "the index ", number, " is above the dimension " + std::to_string(dimension_));
      last = index;
      into.values.push_back(value_of(word.substr(colon + 1), "the value"));
      into.indices.push_back(static_cast<std::uint32_t>(index - 1));
    }
    into.close(label);
  }

  /// Removes the first word from the line, and returns it; empty at the end of the line.
  static std::string_view next_word(std::string_view& line) {
    constexpr const char* blanks = " \t\r\v\f";
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    const std::string_view word = line.substr(0, line.find_first_of(blanks));
    line.remove_prefix(word.size());
    return word;
  }

  std::uint64_t index_of(std::string_view word, std::string_view what) const {
    std::uint64_t number = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, number);
    if (stop == end && error == std::errc::result_out_of_range) fail(word, what, " ", word, " is out of range");
    if (stop != end || error != std::errc{}) fail(word, what, " must be a whole number, not '", word, "'");
    return number;
  }

  float value_of(std::string_view word, std::string_view what) const {
    double number = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] =
        std::from_chars(word.data() + (word.starts_with('+') && !word.starts_with("+-") ? 1 : 0), end, number);
    if (stop == end && (error == std::errc::result_out_of_range ||
                        (std::isfinite(number) && std::abs(number) > double{std::numeric_limits<float>::max()})))
      fail(word, what, " ", word, " is out of range");
    if (stop != end || error != std::errc{} || !std::isfinite(number))
      fail(word, what, " must be a finite number, not '", word, "'");
    return static_cast<float>(number);
  }

  /// Throws the error at the place of `word`, which is part of the text.
  template <class... Parts>
  [[noreturn]] void fail(std::string_view word, const Parts&... parts) const {
    const std::string_view before = text_.substr(0, static_cast<std::size_t>(word.data() - text_.data()));
    const std::size_t line_begin = before.rfind('\n') + 1; // npos + 1 is 0
    std::string why = name_ + ":" + std::to_string(1 + std::count(before.begin(), before.end(), '\n')) + ":" +
                      std::to_string(before.size() - line_begin + 1) + ": ";
    (why.append(parts), ...);
    throw std::runtime_error(why);
  }

  std::string_view text_;
  std::string name_;
  std::uint64_t dimension_;
};

/// Reads part `shard` of `shards` of a file: the bytes of this part, up to the end of its last line.
inline samples read_libsvm(const std::string& path, std::uint64_t dimension, std::size_t shard, std::size_t shards,
                           std::span<const float> labels = {}) {
  const mapped_file file(path);
  for (const std::string_view begin : {"BZh", "\x1f\x8b", "\xfd\x37zXZ"}) // bzip2, gzip, xz
    if (file.text().starts_with(begin))
      throw std::runtime_error(path + " is compressed; unpack it first, by bunzip2, gunzip or unxz");
  return libsvm_parser(file.text(), path, dimension).parse(shard, shards, labels);
}

} // namespace linear
