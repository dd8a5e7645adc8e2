// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses the command line.
#include "options.hpp"

#include "../command_line.hpp"
#include "../output.hpp"
#include "../ranks.hpp"
#include "corpus.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <climits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace langid {

namespace {

/// Parses "fr=FILE" into a word list. Throws std::runtime_error if the text is malformed.
word_list named_list(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw std::runtime_error(fmt::format("--list must be LANGUAGE=FILE, not '{}'", text));
  }
  return {text.substr(0, equals), text.substr(equals + 1), ""};
}

} // namespace

int parse(int argc, char** argv, options& chosen) {
  CLI::App app("Trains a classifier of the language of words, with MPI_Allreduce and with spar::allreduce.", "langid");
  app.option_defaults()->always_capture_default();
  std::vector<std::string> lists, words;
  app.add_option("--list", lists, "LANGUAGE=FILE, one word per line; replaces Debian's lists")->allow_extra_args(false);
  app.add_option("--json", chosen.json, "also write the results to this file");
  app.add_option("--epochs", chosen.epochs, "passes over the training words")->check(CLI::Range(1, 1000));
  app.add_option("--batch", chosen.batch, "words per rank and step")->check(CLI::Range(1, 100000));
  app.add_option("--bits", chosen.bits, "log2 of the number of buckets")->check(CLI::Range(8, 22));
  app.add_option("--limit", chosen.limit, "maximum number of words per language")->check(CLI::Range(1, INT_MAX));
  app.add_option("--rate", chosen.rate, "learning rate")->check(examples::finite_positive);
  app.add_flag("--progress", chosen.progress,
               "show a step counter (not detected under launchers, which hide the terminal)");
  app.add_option("WORD", words, "words to classify");
  if (const int status = examples::parse(app, argc, argv); status >= 0) return status;
  // No word contains '=', so --list en=FILE fr=FILE means the same as --list en=FILE --list fr=FILE.
  for (const std::string& word : words) {
    (lists.empty() || word.find('=') == std::string::npos ? chosen.words : lists).push_back(word);
  }
  const bool good = on_all_ranks([&] {
    if (!lists.empty()) chosen.lists.clear();
    for (const std::string& text : lists) {
      word_list list = named_list(text);
      for (const word_list& other : chosen.lists) {
        if (other.language != list.language) continue;
        throw std::runtime_error(
            fmt::format("--list names two lists for {}: {} and {}", list.language, other.path, list.path));
      }
      chosen.lists.push_back(std::move(list));
    }
    if (chosen.lists.size() < 2) {
      throw std::runtime_error(
          fmt::format("--list: got {} language ({}), expected at least 2", lists.size(), lists[0]));
    }
    check_writable(chosen.json);
  });
  return good ? -1 : 2;
}

} // namespace langid
