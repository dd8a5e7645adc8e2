// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares every system on fixed inputs with a recording: the bits of results and residuals, and the messages and bytes
// that ranks send. The test proves that a refactoring changed none of them. With SPAR_RECORD=FILE in the environment
// the test writes a new recording to FILE instead. The quick set runs each system with a third of the combinations of
// input and number of ranks.
#include "conformance/recorded/systems.hpp"
#include "support/extent.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace spar_test {
namespace {

using recorded::record;

#if defined(__x86_64__) && !defined(__FMA__)
constexpr bool compares_bits = true;
#else
constexpr bool compares_bits = false; // fused multiply-add rounds once instead of twice
#endif

/// After a new recording, name the commit whose headers were used.
constexpr const char* header =
    "# Bits and traffic of every system on fixed inputs, recorded from the headers of commit e69a751 by the test\n"
    "# conformance.recorded itself, which compares what it computes with this file. To record anew, change the commit "
    "in\n"
    "# recorded_test.cpp and run conformance_recorded_test with SPAR_RECORD=FILE in the environment.\n"
    "# system, ranks, input, step, hash of the result, hash of all residuals (-: none), messages, bytes of payload\n";

std::string text(const record& r) {
  return r.result + ' ' + r.residual + ", " + std::to_string(r.messages) + " messages, " + std::to_string(r.bytes) +
         " bytes";
}

bool same(const record& a, const record& b) {
  if (a.messages != b.messages || a.bytes != b.bytes) return false;
  return !compares_bits || (a.result == b.result && a.residual == b.residual);
}

TEST(recorded, traffic_and_bits) {
  std::vector<recorded::system> systems;
  for (const auto& some :
       {recorded::systems_of_streams(), recorded::systems_of_values(), recorded::systems_with_feedback()}) {
    systems.insert(systems.end(), some.begin(), some.end());
  }
  std::vector<std::string> errors;
  std::vector<std::string> omitted;
  const char* const file = std::getenv("SPAR_RECORD");
  const auto runs = [&](std::size_t system, spar::rank_t ranks, std::size_t input) {
    return file != nullptr || runs_case(3, system, ranks, input);
  };
  const std::vector<record> found = recorded::run_all(systems, runs, errors, omitted);
  for (const std::string& error : errors) ADD_FAILURE() << error;

  if (file != nullptr) {
    std::ofstream out(file);
    out << header;
    recorded::write(out, found);
    ASSERT_TRUE(out.flush()) << "cannot write " << file;
    return;
  }

  std::ifstream in(SPAR_RECORDED);
  ASSERT_TRUE(in) << "cannot read " << SPAR_RECORDED;
  std::map<std::string, record> expected;
  for (record& r : recorded::read(in)) {
    std::string name = r.call;
    expected.emplace(std::move(name), std::move(r));
  }
  constexpr int most_reported = 20;
  int differing = 0;
  const auto report = [&](const std::string& name, const std::string& recorded_text, const std::string& found_text) {
    if (++differing > most_reported) return;
    ADD_FAILURE() << name << "\n  recorded " << recorded_text << "\n  found    " << found_text;
  };
  for (const record& r : found) {
    const auto its = expected.find(r.call);
    if (its == expected.end()) {
      report(r.call, "nothing", text(r));
      continue;
    }
    if (!same(its->second, r)) report(r.call, text(its->second), text(r));
    expected.erase(its);
  }
  const std::set<std::string> others(omitted.begin(), omitted.end());
  for (const auto& [name, r] : expected) {
    if (!others.contains(name.substr(0, name.rfind(' ')))) report(name, text(r), "nothing");
  }
  EXPECT_EQ(differing, 0) << "lines differ of " << found.size();
}

} // namespace
} // namespace spar_test
