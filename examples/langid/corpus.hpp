// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads word lists, drops words without information about the language, and splits the rest into training and test
// words.
#pragma once

#include "../ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cwctype>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace langid {

using namespace examples;

/// A file with one word per line, and a hint for the error message if the file is missing.
struct word_list {
  std::string language, path, hint;
};

inline const std::vector<word_list> debian_lists = {
    {"en", "/usr/share/dict/american-english", " (Debian package wamerican)"},
    {"fr", "/usr/share/dict/french", " (Debian package wfrench)"},
    {"de", "/usr/share/dict/ngerman", " (Debian package wngerman)"},
    {"es", "/usr/share/dict/spanish", " (Debian package wspanish)"},
    {"it", "/usr/share/dict/italian", " (Debian package witalian)"},
    {"pt", "/usr/share/dict/portuguese", " (Debian package wportuguese)"},
    {"nl", "/usr/share/dict/dutch", " (Debian package wdutch)"},
    {"pl", "/usr/share/dict/polish", " (Debian package wpolish)"},
};

struct labelled_word {
  std::uint64_t hash;
  std::u32string text;
  std::uint32_t language; // index of the word's list
};

/// The words on which one rank trains and tests.
struct corpus {
  std::vector<labelled_word> training, test;
};

/// One step of a hash over code points, good enough to distribute words among ranks and n-grams among buckets.
constexpr std::uint64_t mix(std::uint64_t hash, char32_t letter) {
  hash = (hash ^ letter) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

/// Decodes UTF-8. A word that is not valid UTF-8 is read as ISO-8859-1, the encoding of some lists.
inline std::u32string decode(std::string_view bytes) {
  std::u32string text;
  text.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i++]);
    int more = lead < 0x80 ? 0 : lead >> 5 == 0x6 ? 1 : lead >> 4 == 0xe ? 2 : lead >> 3 == 0x1e ? 3 : -1;
    char32_t point = more > 0 ? lead & (0x3fu >> more) : lead;
    for (; more > 0 && i < bytes.size() && (bytes[i] & 0xc0) == 0x80; --more) point = point << 6 | (bytes[i++] & 0x3f);
    if (more != 0) {
      text.clear();
      for (const char byte : bytes) text += static_cast<unsigned char>(byte);
      return text;
    }
    text += point;
  }
  return text;
}

/// The word in lower case, because capitals would reveal German nouns. Uses the C library's table; main() sets the
/// locale.
inline std::u32string normalised(std::string_view bytes) {
  std::u32string text = decode(bytes);
  for (char32_t& c : text) c = c >= 'a' && c <= 'z' ? c : static_cast<char32_t>(std::towlower(static_cast<wint_t>(c)));
  return text;
}

/// Whether the text consists of letters only. This excludes possessives ("cat's"), phrases, numbers and abbreviations,
/// which the lists treat differently.
inline bool is_word(std::u32string_view text) {
  const auto letter = [](char32_t c) { return (c >= U'a' && c <= U'z') || c >= 0xc0; };
  return !text.empty() && std::all_of(text.begin(), text.end(), letter);
}

/// Reads the words that this rank owns. A word's hash determines its rank, so that one rank gets all copies of a word:
/// this rank drops repeated words, and words that several languages share, which have no right answer. At most `limit`
/// words per language remain over all ranks, those with the lowest hashes. One word in five is a test word, the same
/// words on any number of ranks. Throws std::runtime_error for a list that cannot be read or contains no word.
inline corpus read_corpus(const std::vector<word_list>& lists, std::size_t limit) {
  const unsigned rank = my_rank(), ranks = number_of_ranks();
  std::string missing;
  for (const word_list& list : lists) {
    const bool readable = std::filesystem::is_regular_file(list.path) && std::ifstream(list.path); // no device
    if (!readable) missing += (missing.empty() ? "" : ", ") + list.path + list.hint;
  }
  if (!missing.empty()) throw std::runtime_error("cannot read these word lists: " + missing);
  std::vector<labelled_word> words;
  for (std::uint32_t language = 0; language < lists.size(); ++language) {
    const word_list& list = lists[language];
    std::ifstream file(list.path);
    std::size_t found = 0;
    for (std::string line; std::getline(file, line);) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      std::u32string text = normalised(line);
      if (!is_word(text)) continue;
      ++found;
      std::uint64_t hash = 0;
      for (const char32_t letter : text) hash = mix(hash, letter);
      if (hash % ranks == rank) words.push_back({hash, std::move(text), language});
    }
    if (found == 0)
      throw std::runtime_error(fmt::format("the word list of {} contains no word: {}", list.language, list.path));
  }
  std::sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.hash < b.hash; });
  corpus mine;
  std::vector<std::size_t> taken(lists.size());
  for (auto word = words.begin(), next = word; word != words.end(); word = next) {
    next = std::find_if(word, words.end(), [&](const auto& other) { return other.hash != word->hash; });
    const bool shared = std::any_of(word, next, [&](const auto& other) { return other.language != word->language; });
    if (shared || taken[word->language] >= (limit + ranks - 1) / ranks) continue;
    ++taken[word->language];
    ((word->hash >> 32) % 5 == 0 ? mine.test : mine.training).push_back(std::move(*word));
  }
  // Shuffle by another hash: so far, words of the longest list come first, because the lowest hashes of a longer list
  // are lower.
  std::sort(mine.training.begin(), mine.training.end(),
            [](const auto& a, const auto& b) { return mix(a.hash, 0) < mix(b.hash, 0); });
  return mine;
}

/// Throws std::runtime_error unless every language has training words and test words. Prints the numbers of words on
/// rank 0. Collective.
inline void check(const corpus& words, const std::vector<word_list>& lists) {
  for (const auto& [part, name] : {std::pair{&words.training, "training"}, std::pair{&words.test, "test"}}) {
    for (std::size_t l = 0; l < lists.size(); ++l) {
      const auto of_l = std::count_if(part->begin(), part->end(), [&](const auto& word) { return word.language == l; });
      if (over_ranks(of_l, MPI_SUM) > 0) continue;
      throw std::runtime_error(fmt::format("no {} word of {} is left: {} has too few words that are in no other list",
                                           name, lists[l].language, lists[l].path));
    }
  }
  const double training = over_ranks(words.training.size(), MPI_SUM), test = over_ranks(words.test.size(), MPI_SUM);
  if (my_rank() > 0) return;
  fmt::print("{} languages, {} training words, {} test words\n", lists.size(), training, test);
  std::fflush(stdout);
}

} // namespace langid
