// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Everything that can happen to one message of a collective, and how every rank may end: with the right result, or in
// time with the right error in this call or the next.
#pragma once

#include "support/collectives.hpp"
#include "support/ranks.hpp"
#include "support/watchdog.hpp"

#include <spar/transport/faulty.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar_test {

// --- properties of a collective ---

/// Whether the collective's ranks may wait for another rank's action without a deadline; then the application aborts
/// after a while.
template <class Collective>
inline constexpr bool waits_idly = false;
/// Whether some of the collective's messages may have no payload, which cannot be damaged.
template <class Collective>
inline constexpr bool empty_payloads = false;

inline constexpr char given_up[] = "the application has given up";

// --- outcomes and settings ---

enum class ending { none, right, corrupt, mismatch, timeout, peer_failed, something_else };

/// How a call ended on a rank.
struct outcome {
  ending how = ending::none;
  bits result;
  std::string text;
  double at = 0; // seconds since the rank began
};

struct rank_outcome {
  outcome first;
  outcome second;
  std::uint64_t sent = 0; // in the first call
  std::uint64_t received = 0;
};

/// Records the exception with which a call ended.
inline void note_error(outcome& to) {
  try {
    throw;
  } catch (const spar::corrupt_message& e) {
    to = {ending::corrupt, {}, e.what()};
  } catch (const spar::mismatch& e) {
    to = {ending::mismatch, {}, e.what()};
  } catch (const spar::timeout& e) {
    to = {ending::timeout, {}, e.what()};
  } catch (const spar::peer_failed& e) {
    to = {ending::peer_failed, {}, e.what()};
  } catch (const std::exception& e) {
    to = {ending::something_else, {}, e.what()};
  }
}

/// Makes a call, and a small one after it.
template <class Collective>
struct two_calls {
  const std::vector<input>* inputs;
  std::vector<rank_outcome>* outcomes;
  double deadline;
  bool checksums = true;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    net.set_deadline(deadline);
    net.set_checksums(checksums);
    const double begun = net.now();
    const auto rank = static_cast<std::size_t>(net.rank());
    rank_outcome& its = (*outcomes)[rank];
    const Collective collective;
    try {
      its.first.result = co_await collective(net, &(*inputs)[rank]);
      its.first.how = ending::right;
    } catch (...) {
      note_error(its.first);
    }
    its.first.at = net.now() - begun;
    its.sent = net.sent();
    its.received = net.received();
    const dense<spar::recursive_doubling> next;
    const input small(net.rank(), 10);
    try {
      its.second.result = co_await next(net, &small);
      its.second.how = ending::right;
    } catch (...) {
      note_error(its.second);
    }
    its.second.at = net.now() - begun;
  }
};

/// Where a case runs, and which fault occurs on which rank.
struct setting {
  spar::rank_t ranks = 3;
  std::size_t n = 200;
  bool synchronous = false;
  std::uint64_t seed = 0;
  double deadline = 1;
  spar::rank_t faulty_rank = 0;
  std::optional<spar::fault> fault{};
  bool checksums = true;
  bool spare_headers = false; // whether a receiver may not need the header of a message, which another one contains

  [[nodiscard]] std::vector<spar::fault> plan(spar::rank_t rank) const {
    if (!fault || rank != faulty_rank) return {};
    return {*fault};
  }
};

inline std::ostream& operator<<(std::ostream& out, const setting& s) {
  constexpr const char* names[] = {"corrupt_header", "corrupt_payload", "delay", "drop", "crash"};
  out << "P = " << s.ranks << ", n = " << s.n << (s.synchronous ? ", synchronous" : "") << ", seed " << s.seed;
  if (s.fault) {
    out << ", rank " << s.faulty_rank << ": " << names[static_cast<int>(s.fault->what)] << " of message "
        << s.fault->message << ", bit " << s.fault->bit << ", " << s.fault->seconds << " s, " << s.fault->messages;
  }
  return out;
}

inline std::vector<input> inputs_of(const setting& s) {
  std::vector<input> all;
  for (spar::rank_t r = 0; r < s.ranks; ++r) all.emplace_back(r, s.n);
  return all;
}

/// The program of a rank whose application aborts after `seconds`.
inline spar::task<void> give_up_later(spar::sim& net, double seconds) {
  co_await net.sleep(seconds);
  spar::abort(net, given_up);
}
template <class Collective>
spar::task<void> with_patience(spar::sim& inner, spar::faulty<spar::sim>* net, const two_calls<Collective>* program) {
  auto later = give_up_later(inner, 10 * program->deadline);
  auto calls = (*program)(*net);
  co_await std::move(calls);
  co_await std::move(later);
}

template <class Collective>
std::vector<rank_outcome> simulate(const setting& s) {
  const auto inputs = inputs_of(s);
  std::vector<rank_outcome> outcomes(inputs.size());
  spar::simulator_options options;
  if (s.seed != 0) options = random_order(s.seed);
  options.synchronous = s.synchronous;
  spar::simulator engine(s.ranks, options);
  std::deque<spar::faulty<spar::sim>> nets;
  for (spar::rank_t r = 0; r < s.ranks; ++r) nets.emplace_back(engine.rank(r), s.plan(r));
  const two_calls<Collective> program{&inputs, &outcomes, s.deadline};
  engine.run([&](spar::sim& net) {
    auto& its = nets[static_cast<std::size_t>(net.rank())];
    if constexpr (waits_idly<Collective>)
      return with_patience(net, &its, &program);
    else
      return program(its);
  });
  return outcomes;
}

template <class Collective, class Place = in_host_memory>
std::vector<rank_outcome> run_as_threads(const setting& s) {
  const auto inputs = inputs_of(s);
  std::vector<rank_outcome> outcomes(inputs.size());
  const two_calls<Collective> program{&inputs, &outcomes, s.deadline, s.checksums};
  spar::thread_group group(s.ranks, {.synchronous = s.synchronous});
  group.run([&](spar::threads& inner) {
    std::vector<spar::fault> plan = s.plan(inner.rank());
    for (spar::fault& f : plan) f = Place::after_start(f, inner.rank(), s.ranks);
    spar::faulty<spar::threads> bad(inner, plan);
    Place::on(bad, [&](auto& net) {
      if constexpr (waits_idly<Collective>) {
        const auto calls = program(net);
        const bool may_wait = s.fault && s.fault->what == spar::fault::kind::crash;
        for (const double end = net.now() + (may_wait ? 0.5 : 30); !calls.done(); std::this_thread::yield()) {
          if (net.now() > end) spar::abort(net, given_up);
          net.progress(false);
        }
      } else if constexpr (calls_only_block<std::remove_reference_t<decltype(net)>>) {
        EXPECT_TRUE(program(net).done());
      } else {
        spar::run_until_done(net, program(net));
      }
      while (bad.holds_back() && !inner.dead()) net.progress(false);
    });
  });
  return outcomes;
}

/// Runs the ranks of a thread_group by turns on one thread, so that the order of all events is the same in every run.
/// The faulty rank runs ahead: it has `turns` turns for each turn of another rank. When no rank can go on, the deadline
/// of all ranks expires.
template <class Collective>
std::vector<rank_outcome> run_by_turns(const setting& s, int turns) {
  const auto inputs = inputs_of(s);
  std::vector<rank_outcome> outcomes(inputs.size());
  const two_calls<Collective> program{&inputs, &outcomes, s.deadline, s.checksums};
  spar::thread_group group(s.ranks, {.synchronous = s.synchronous});
  std::deque<spar::faulty<spar::threads>> nets;
  std::vector<std::optional<spar::task<void>>> running(inputs.size());
  for (spar::rank_t r = 0; r < s.ranks; ++r) nets.emplace_back(group.rank(r), s.plan(r));
  const auto turn_of = [&](std::size_t r) {
    if (!running[r]) running[r].emplace(program(nets[r]));
    nets[r].progress(false);
  };
  const auto done = [&] {
    return std::all_of(running.begin(), running.end(), [](const auto& its) { return its && its->done(); });
  };
  const auto operations = [&] { // sends and receives, and programs that have ended
    std::uint64_t sum = 0;
    for (std::size_t r = 0; r < nets.size(); ++r)
      sum += nets[r].sent() + nets[r].received() + (running[r] && running[r]->done() ? 1U : 0U);
    return sum;
  };
  const auto ahead = static_cast<std::size_t>(s.faulty_rank);
  std::uint64_t before = 0;
  for (int idle_rounds = 0; !done() && idle_rounds < 8; ++idle_rounds) {
    for (std::size_t next = 1; next < nets.size(); ++next) {
      for (int turn = 0; turn < turns; ++turn) turn_of(ahead);
      turn_of((ahead + next) % nets.size());
    }
    const std::uint64_t now = operations();
    if (std::exchange(before, now) != now) idle_rounds = 0;
    if (idle_rounds == 4) {
      for (auto& net : nets) net.set_deadline(0);
    }
  }
  EXPECT_TRUE(done()) << "a call has not ended";
  return outcomes;
}

// --- expected outcomes ---

/// Whether the fault is a delay shorter than the deadline.
inline bool is_harmless(const setting& s) {
  return s.fault->what == spar::fault::kind::delay && s.fault->seconds < s.deadline;
}
inline bool is_damage(const setting& s) {
  return s.fault->what == spar::fault::kind::corrupt_header || s.fault->what == spar::fault::kind::corrupt_payload;
}

inline bool tells(const outcome& o, const char* what) { return o.text.find(what) != std::string::npos; }

inline bool all_right(const std::vector<rank_outcome>& all) {
  return std::all_of(all.begin(), all.end(), [](const rank_outcome& r) {
    return r.first.how == ending::right && r.second.how == ending::right;
  });
}
inline void expect_same(const std::vector<rank_outcome>& is, const std::vector<rank_outcome>& clean) {
  for (std::size_t r = 0; r < is.size(); ++r) {
    EXPECT_TRUE(is[r].first.result == clean[r].first.result) << "the first call returned a wrong result";
    EXPECT_TRUE(is[r].second.result == clean[r].second.result) << "the second call returned a wrong result";
  }
}

/// Compares a faulty run with the clean one; a call may end up to `slack` seconds after the deadline.
template <class Collective>
void judge(const setting& s, const std::vector<rank_outcome>& is, const std::vector<rank_outcome>& clean,
           double slack) {
  const auto what = s.fault->what;
  const bool may_go_unnoticed = (empty_payloads<Collective> && what == spar::fault::kind::corrupt_payload) ||
                                (s.spare_headers && what == spar::fault::kind::corrupt_header);
  if (may_go_unnoticed && all_right(is)) return expect_same(is, clean);
  bool noticed = false;
  const auto faulty_rank = static_cast<std::size_t>(s.faulty_rank);
  for (std::size_t r = 0; r < is.size(); ++r) {
    SCOPED_TRACE(testing::Message() << "rank " << r << ": " << is[r].first.text << " | " << is[r].second.text);
    double before = 0;
    for (const auto& [now, then] : {std::pair(&is[r].first, &clean[r].first), {&is[r].second, &clean[r].second}}) {
      if (now->how == ending::right) {
        EXPECT_TRUE(now->result == then->result) << "a call returned a wrong result";
      } else if (is_damage(s)) {
        EXPECT_TRUE(now->how == ending::peer_failed || (now->how == ending::corrupt && r == faulty_rank));
      } else {
        // The receiver may detect a missing message by the next message.
        const bool missed = now->how == ending::corrupt && s.fault->what == spar::fault::kind::drop;
        EXPECT_TRUE(missed || now->how == ending::peer_failed || now->how == ending::timeout);
        EXPECT_FALSE(is_harmless(s));
        noticed = noticed || missed || now->how == ending::timeout;
        if (waits_idly<Collective> && s.fault->what == spar::fault::kind::crash && tells(*now, given_up)) {
          noticed = true; // the crashed rank should have started a round
          before = now->at;
          continue;
        }
        EXPECT_FALSE(tells(*now, given_up));
      }
      const double limit = is_harmless(s) ? s.fault->seconds : is_damage(s) ? 0 : s.deadline;
      EXPECT_LE(now->at - before, limit + slack);
      before = now->at;
    }
    if (!is_harmless(s)) {
      EXPECT_NE(is[r].second.how, ending::right) << "a rank did not learn of the failure";
    }
  }
  if (is_damage(s)) {
    EXPECT_EQ(is[faulty_rank].first.how, ending::corrupt);
  } else if (!is_harmless(s)) {
    std::string texts; // of all ranks
    for (const rank_outcome& r : is) texts += r.first.text + " | " + r.second.text + '\n';
    EXPECT_TRUE(noticed) << texts;
  }
}

/// Calls `run_case(setting)` with every fault of every message of the clean run.
template <class RunCase>
void for_each_fault(setting s, const std::vector<rank_outcome>& clean, const RunCase& run_case) {
  using kind = spar::fault::kind;
  std::uint64_t bit = 0x9E3779B97F4A7C15U * (s.seed + s.n);
  for (spar::rank_t r = 0; r < s.ranks; ++r) {
    s.faulty_rank = r;
    const auto add = [&](const spar::fault& f) {
      s.fault = f;
      run_case(s);
    };
    const rank_outcome& counts = clean[static_cast<std::size_t>(r)];
    for (std::uint64_t m = 0; m < counts.received; ++m) {
      for (const kind what : {kind::corrupt_header, kind::corrupt_payload}) {
        bit = bit * 6364136223846793005U + 1442695040888963407U;
        add({.what = what, .message = m, .bit = bit >> 33});
      }
    }
    for (std::uint64_t m = 0; m < counts.sent; ++m) {
      add({.what = kind::drop, .message = m});
      add({.what = kind::delay, .message = m, .seconds = 0.4 * s.deadline});
      add({.what = kind::delay, .message = m, .seconds = 3 * s.deadline});
      add({.what = kind::delay, .message = m, .seconds = 0.4 * s.deadline, .messages = 1});
      add({.what = kind::delay, .message = m, .seconds = 0.4 * s.deadline, .messages = 3});
    }
    for (std::uint64_t m = 0; m < counts.sent + counts.received; ++m) add({.what = kind::crash, .message = m});
  }
}

/// A case of how many to run with threads, so that about one case of each setting runs in the quick set: at least
/// `least`. The numbers of these cases in successive settings differ, and with them the kinds of fault.
inline std::uint64_t stride_among_threads(const setting& s, const std::vector<rank_outcome>& clean,
                                          std::uint64_t least) {
  std::uint64_t all = 0;
  for_each_fault(s, clean, [&](const setting&) { ++all; });
  return runs_all_cases() ? least : std::max(least, all - all / 9);
}

inline void expect_clean(const std::vector<rank_outcome>& clean) {
  for (const auto& its : clean) {
    ASSERT_EQ(its.first.how, ending::right) << its.first.text;
    ASSERT_EQ(its.second.how, ending::right) << its.second.text;
  }
}

template <class Collective>
struct faults : testing::Test {
  /// If a case hangs, ends the program and prints the name of the case.
  watchdog guard{60};
  std::uint64_t cases = 0;

  template <class Run>
  void check(const setting& s, const std::vector<rank_outcome>& clean, double slack, const Run& run_it) {
    SCOPED_TRACE(s);
    guard.watch(testing::PrintToString(s));
    try {
      judge<Collective>(s, run_it(s), clean, slack);
    } catch (const std::exception& e) {
      ADD_FAILURE() << s << ": " << e.what();
    }
    ++cases;
  }
  void TearDown() override { std::cout << "[    cases ] " << cases << '\n'; }
};

} // namespace spar_test
