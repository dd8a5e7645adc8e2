// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks that the table of compositions in docs/guide/composing.md is the one that follows from the lists of models,
// and that most combinations work. With SPAR_WRITE_TABLE in the environment the test writes the table instead.
#include "support/models.hpp"
#include "support/varint.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/packed.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace spar_test {
namespace {

struct table {
  std::string text{};
  std::size_t cells = 0, meaningless = 0;
  std::vector<std::string> reasons{}; // in order of appearance
  std::map<std::string, std::size_t> times{};
};

/// One cell of the table: a schedule and a storage with all selectors and topologies.
struct entry {
  std::size_t works = 0;
  std::vector<std::string> against{}; // the numbers of the reasons, each once
};

template <class Selector, class Storage, class Topology, class Schedule>
void look(table& made, entry& at) {
  using verdict = spar::verdict_of<Selector, Storage, Topology, Schedule>;
  ++made.cells;
  if constexpr (spar::composes<verdict>) {
    ++at.works;
  } else {
    ++made.meaningless;
    const std::string why(verdict::sentence);
    ++made.times[why];
    auto place = std::find(made.reasons.begin(), made.reasons.end(), why);
    if (place == made.reasons.end()) place = made.reasons.insert(place, why);
    const std::string number = std::to_string(place - made.reasons.begin() + 1);
    if (std::find(at.against.begin(), at.against.end(), number) == at.against.end()) at.against.push_back(number);
  }
}

template <class Schedule, class Storage>
entry entry_of(table& made) {
  entry at;
  for_each_model(all_selectors, [&]<class Selector>(const model<Selector>&) {
    look<Selector, Storage, spar::flat, Schedule>(made, at);
    look<Selector, Storage, spar::on_tree, Schedule>(made, at);
  });
  return at;
}

/// A paragraph in lines of at most 120 characters, all but the first of which begin with `indent`.
std::string wrapped(std::string line, const std::string& indent = "") {
  for (std::size_t from = 0; line.size() - from > 120;) {
    const std::size_t blank = line.rfind(' ', from + 120);
    line.replace(blank, 1, "\n" + indent);
    from = blank + 1;
  }
  return line + "\n";
}

table make_table() {
  table made;
  std::string& out = made.text;
  out += "| Schedule |";
  for_each_model(all_storages, [&]<class Storage>(const model<Storage>& store) {
    out += " `" + std::string(store.name) + (std::is_same_v<Storage, spar::storage::coo> ? "`, `coded` |" : "` |");
  });
  out += "\n|---|";
  for_each_model(all_storages, [&](const auto&) { out += "---|"; });
  out += "\n";
  for_each_model(all_schedules, [&]<class Schedule>(const model<Schedule>& by) {
    out += "| `" + std::string(by.name) + "` |";
    for_each_model(all_storages, [&]<class Storage>(const model<Storage>&) {
      const entry at = entry_of<Schedule, Storage>(made);
      out += at.against.empty() ? " all" : at.works > 0 ? " some" : " none";
      for (const std::string& number : at.against) out += " (" + number + ")";
      out += " |";
    });
    out += "\n";
  });
  out +=
      "\n" +
      wrapped(
          "*all*: the schedule works with this storage and each selector, over `flat` and over `on_tree`. Other "
          "stream codecs work where `coo` does, also those that round, except with `pruned_owners`; the tests "
          "run one that rounds with each other schedule. `packed` works where `dense` does, and `bound` where `dense` "
          "does with the selector `everything`. *some*, *none*: the other combinations do not compile, "
          "for the reasons with these numbers:") +
      "\n";
  for (std::size_t r = 0; r < made.reasons.size(); ++r)
    out += wrapped(std::to_string(r + 1) + ". " + made.reasons[r] + " (" + std::to_string(made.times[made.reasons[r]]) +
                       " combinations).",
                   "   ");
  out +=
      "\n" + wrapped("Of " + std::to_string(made.cells) +
                     " combinations of selector, storage, topology and schedule, " + std::to_string(made.meaningless) +
                     " do not compile; the tests run the other " + std::to_string(made.cells - made.meaningless) + ".");
  return made;
}

/// The words of a text, however its lines are wrapped.
std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

TEST(product_table, stands_in_the_documentation) {
  const table made = make_table();
  const char* const path = SPAR_SOURCE_DIR "/docs/guide/composing.md";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::string_view begin = "<!-- the table of the product: begin -->\n",
                         end = "<!-- the table of the product: end -->";
  const std::size_t from = page.find(begin), to = page.find(end);
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos && from < to);
  const std::size_t first = from + begin.size();
  if (std::getenv("SPAR_WRITE_TABLE") != nullptr) {
    page.replace(first, to - first, "\n" + made.text + "\n");
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(words_of(page.substr(first, to - first)), words_of(made.text))
      << "rewrite the table: SPAR_WRITE_TABLE=1 " << "conformance_product_table_test";
}

TEST(product_table, says_where_packed_and_bound_work) {
  const auto works = []<class Selector, class Storage, class Schedule>() {
    return spar::composes<spar::verdict_of<Selector, Storage, spar::flat, Schedule>> +
           2 * spar::composes<spar::verdict_of<Selector, Storage, spar::on_tree, Schedule>>;
  };
  for_each_model(all_schedules, [&]<class Schedule>(const model<Schedule>& by) {
    for_each_model(all_selectors, [&]<class Selector>(const model<Selector>& select) {
      using spar::storage::dense, spar::storage::packed, spar::storage::bound;
      const int plain = works.template operator()<Selector, dense, Schedule>();
      const int coded = std::is_same_v<Selector, spar::everything> ? plain : 0;
      EXPECT_EQ((works.template operator()<Selector, packed, Schedule>()), plain) << by.name << ", " << select.name;
      EXPECT_EQ((works.template operator()<Selector, bound, Schedule>()), coded) << by.name << ", " << select.name;
    });
  });
}

TEST(product_table, has_one_column_for_stream_codecs) {
  table made;
  for_each_model(all_schedules, [&]<class Schedule>(const model<Schedule>& by) {
    const entry plain = entry_of<Schedule, spar::storage::coo>(made);
    const entry exact = entry_of<Schedule, spar::storage::coded<>>(made);
    EXPECT_EQ(plain.works, exact.works) << by.name;
    EXPECT_EQ(plain.against, exact.against) << by.name;
    for (const entry& other : {entry_of<Schedule, rounded>(made), entry_of<Schedule, spar::storage::coded<7>>(made)}) {
      if (std::is_same_v<Schedule, spar::pruned_owners>) {
        EXPECT_EQ(other.works, 0U) << "a codec that rounds";
        continue;
      }
      EXPECT_EQ(plain.works, other.works) << by.name;
      EXPECT_EQ(plain.against, other.against) << by.name;
    }
  });
}

TEST(product_table, has_few_reasons_against_few_cells) {
  const table made = make_table();
  EXPECT_LE(made.reasons.size(), 10U);
  EXPECT_LT(made.meaningless * 2, made.cells);
  for (const std::string& why : made.reasons) EXPECT_GT(why.size(), 40U) << "each reason must be a full sentence";
}

} // namespace
} // namespace spar_test
