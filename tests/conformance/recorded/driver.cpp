// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes the inputs, runs the systems, and reads and writes the file. The inputs come from a random generator in this
// file, so that they are the same with every standard library.
#include "conformance/recorded/driver.hpp"

#include <spar/core/statistics.hpp>

#include <array>
#include <charconv>
#include <exception>
#include <limits>
#include <sstream>
#include <string_view>

namespace spar_test::recorded {
namespace {

constexpr std::array<spar::rank_t, 6> numbers_of_ranks{1, 2, 3, 4, 5, 8};
constexpr int most_steps = 5;
constexpr std::uint64_t usual = 5000;   // a common dimension
constexpr std::uint64_t large = 100000; // blocks have more than one piece, and the cost model chooses other algorithms

/// Marsaglia's xorshift64.
class generator {
 public:
  explicit generator(std::int64_t seed) : state_(88172645463325252U + static_cast<std::uint64_t>(seed)) {
    for (int i = 0; i < 8; ++i) next(); // generators with similar seeds begin with similar numbers
  }
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ >> 20;
  }
  bool chance(double probability) { return static_cast<double>(next() % 1'000'000) < probability * 1e6; }
  std::int64_t whole(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// Few large values among many small ones, so that sums round.
  double value() {
    const double x = static_cast<double>(whole(-1000, 1000)) / 37;
    return x * x * x;
  }

 private:
  std::uint64_t state_;
};

/// The rank and the step for which an input is made.
struct place {
  spar::rank_t rank;
  spar::rank_t ranks;
  int step;
  /// A generator that differs for each rank and step.
  [[nodiscard]] generator own() const { return generator(7919 * rank + 104729 * step); }
  /// A generator that is the same on all ranks.
  [[nodiscard]] generator common() const { return generator(104729 * step + 31); }
};

template <class ValueAt>
contribution values_of(std::uint64_t n, ValueAt value_at) {
  contribution made{.n = n, .dense = true};
  for (std::uint64_t i = 0; i < n; ++i) made.values.push_back(value_at(i));
  return made;
}
template <class IsThere, class Value>
contribution entries_of(std::uint64_t n, IsThere is_there, Value value) {
  contribution made{.n = n};
  for (std::uint64_t i = 0; i < n; ++i) {
    if (!is_there(i)) continue;
    made.indices.push_back(i);
    made.values.push_back(value());
  }
  return made;
}
contribution random_values(const place& at, std::uint64_t n) {
  generator own = at.own();
  return values_of(n, [&](std::uint64_t) { return own.value(); });
}
contribution random_entries(const place& at, std::uint64_t n, double density) {
  generator own = at.own();
  return entries_of(n, [&](std::uint64_t) { return own.chance(density); }, [&] { return own.value(); });
}

// Dense values.

contribution equal_places(const place& at) { // the large values are at equal indices
  generator own = at.own();
  generator common = at.common();
  return values_of(usual, [&](std::uint64_t) {
    const double small = own.value() / 1000;
    return common.chance(0.01) ? small + 1000 * static_cast<double>(own.whole(1, 100)) : small;
  });
}
contribution disjoint_places(const place& at) { // the nonzero values are at disjoint indices
  generator own = at.own();
  return values_of(usual, [&](std::uint64_t i) {
    return i % static_cast<std::uint64_t>(at.ranks) == static_cast<std::uint64_t>(at.rank) ? own.value() : 0;
  });
}
contribution one_rank_of_zeros(const place& at) {
  return at.rank == at.ranks - 1 ? values_of(usual, [](std::uint64_t) { return 0; }) : random_values(at, usual);
}
contribution ties(const place& at) {
  generator own = at.own();
  return values_of(usual, [&](std::uint64_t) { return static_cast<double>(own.whole(-2, 2)); });
}
contribution wide_range(const place& at) { // within the range of half
  generator own = at.own();
  return values_of(usual, [&](std::uint64_t) {
    const double x = static_cast<double>(own.whole(-1000, 1000)) / 1000;
    return x * static_cast<double>(std::uint64_t{1} << own.whole(0, 30)) / static_cast<double>(1 << 18);
  });
}

// Streams.

contribution equal_indices(const place& at) {
  generator own = at.own();
  generator common = at.common();
  return entries_of(usual, [&](std::uint64_t) { return common.chance(0.01); }, [&] { return own.value(); });
}
contribution disjoint_indices(const place& at) {
  generator own = at.own();
  generator common = at.common();
  const auto mine = [&](std::uint64_t) { return common.chance(0.08) && common.whole(0, at.ranks - 1) == at.rank; };
  return entries_of(usual, mine, [&] { return own.value(); });
}
contribution clustered_indices(const place& at) {
  generator own = at.own();
  const auto there = [&](std::uint64_t i) { return own.chance(i < usual / 10 ? 0.4 : 0.005); };
  return entries_of(usual, there, [&] { return own.value(); });
}
contribution empty_rank(const place& at) {
  return at.rank == at.ranks / 2 ? contribution{.n = usual} : random_entries(at, usual, 0.05);
}
contribution ties_and_zeros(const place& at) { // entries may be zero
  generator own = at.own();
  return entries_of(
      usual, [&](std::uint64_t) { return own.chance(0.05); }, [&] { return static_cast<double>(own.whole(-2, 2)); });
}
contribution one_dense_rank(const place& at) {
  return at.rank == at.ranks - 1 ? random_values(at, usual) : random_entries(at, usual, 0.01);
}

struct input {
  const char* name;
  takes kind;
  contribution (*make)(const place&);
};
constexpr std::array inputs{
    input{"random", takes::values, [](const place& at) { return random_values(at, usual); }},
    input{"equal", takes::values, equal_places},
    input{"disjoint", takes::values, disjoint_places},
    input{"zeros", takes::values, one_rank_of_zeros},
    input{"ties", takes::values, ties},
    input{"wide", takes::values, wide_range},
    input{"n=0", takes::values, [](const place& at) { return random_values(at, 0); }},
    input{"n=3", takes::values, [](const place& at) { return random_values(at, 3); }},
    input{"large", takes::values, [](const place& at) { return random_values(at, large); }},
    input{"0.2%", takes::streams, [](const place& at) { return random_entries(at, usual, 0.002); }},
    input{"5%", takes::streams, [](const place& at) { return random_entries(at, usual, 0.05); }},
    input{"60%", takes::streams, [](const place& at) { return random_entries(at, usual, 0.6); }},
    input{"equal", takes::streams, equal_indices},
    input{"disjoint", takes::streams, disjoint_indices},
    input{"clustered", takes::streams, clustered_indices},
    input{"empty", takes::streams, empty_rank},
    input{"ties", takes::streams, ties_and_zeros},
    input{"dense", takes::streams, one_dense_rank},
    input{"n=0", takes::streams, [](const place& at) { return random_entries(at, 0, 1); }},
    input{"n=3", takes::streams, [](const place& at) { return random_entries(at, 3, 0.6); }},
    input{"large", takes::streams, [](const place& at) { return random_entries(at, large, 0.015); }},
};

std::string hexadecimal(std::uint64_t number) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; number >>= 4) text[i] = "0123456789abcdef"[number % 16];
  return text;
}

/// What a call did on one rank.
struct measured {
  outcome left;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};
using of_ranks = std::vector<measured>;
using contributions = std::vector<std::vector<contribution>>; // by rank and step

std::vector<of_ranks> run(const system& which, spar::rank_t ranks, const contributions& given) {
  std::vector<of_ranks> steps(static_cast<std::size_t>(which.steps), of_ranks(static_cast<std::size_t>(ranks)));
  const program on_rank = which.prepare(ranks, given[0][0].n);
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    const auto rank = static_cast<std::size_t>(net.rank());
    const call reduce = on_rank(net);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const spar::statistics before = net.statistics();
      measured& m = steps[step][rank];
      m.left = reduce(given[step][rank]);
      m.messages = net.statistics().messages_sent - before.messages_sent;
      m.bytes = net.statistics().bytes_sent - before.bytes_sent;
    }
  });
  return steps;
}

record summed(std::string name, const of_ranks& ranks, std::vector<std::string>& errors) {
  record r{.call = std::move(name), .result = hexadecimal(ranks[0].left.result), .residual = "-"};
  hash residuals;
  for (const measured& m : ranks) {
    if (m.left.result != ranks[0].left.result) {
      errors.push_back(r.call + ": rank " + std::to_string(&m - ranks.data()) + " has another result than rank 0");
    }
    residuals.add_number(m.left.residual);
    r.messages += m.messages;
    r.bytes += m.bytes;
  }
  if (ranks[0].left.has_residual) r.residual = hexadecimal(residuals.value());
  return r;
}

} // namespace

std::vector<record> run_all(const std::vector<system>& systems, const filter& runs, std::vector<std::string>& errors,
                            std::vector<std::string>& omitted) {
  std::vector<std::vector<record>> of_systems(systems.size());
  for (const spar::rank_t ranks : numbers_of_ranks) {
    for (const input& from : inputs) {
      contributions given(most_steps);
      for (int step = 0; step < most_steps; ++step) {
        for (spar::rank_t rank = 0; rank < ranks; ++rank) {
          given[static_cast<std::size_t>(step)].push_back(from.make({rank, ranks, step}));
        }
      }
      for (std::size_t s = 0; s < systems.size(); ++s) {
        if (systems[s].input != from.kind) continue;
        const std::string name = systems[s].name + ' ' + std::to_string(ranks) + ' ' + from.name;
        if (!runs(s, ranks, static_cast<std::size_t>(&from - inputs.data()))) {
          omitted.push_back(name);
          continue;
        }
        try {
          const std::vector<of_ranks> steps = run(systems[s], ranks, given);
          for (std::size_t step = 0; step < steps.size(); ++step) {
            of_systems[s].push_back(summed(name + ' ' + std::to_string(step), steps[step], errors));
          }
        } catch (const std::exception& e) {
          errors.push_back(name + ": " + e.what());
        }
      }
    }
  }
  std::vector<record> all;
  for (const auto& records : of_systems) all.insert(all.end(), records.begin(), records.end());
  return all;
}

std::vector<record> read(std::istream& in) {
  std::vector<record> records;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::array<std::string, 4> name;
    record r;
    for (std::string& word : name) words >> word;
    r.call = name[0] + ' ' + name[1] + ' ' + name[2] + ' ' + name[3];
    words >> r.result >> r.residual >> r.messages >> r.bytes;
    records.push_back(std::move(r));
  }
  return records;
}

void write(std::ostream& out, const std::vector<record>& records) {
  for (const record& r : records) {
    out << r.call << ' ' << r.result << ' ' << r.residual << ' ' << r.messages << ' ' << r.bytes << '\n';
  }
}

} // namespace spar_test::recorded
