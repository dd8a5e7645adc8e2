// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How processes join a group by a store: threads take the place of processes.
#include "rendezvous/processes.hpp"

#include <spar/rendezvous/joiners.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <vector>

namespace {

using spar::rank_t;
using spar::detail::growth;
using spar::detail::joiner;

using texts = std::vector<std::string>;

/// Waits for each peer as many seconds as a function says.
struct patience final : spar::detail::patience {
  explicit patience(std::function<double(rank_t)> f) : seconds(std::move(f)) {}
  double left(rank_t peer) override { return seconds(peer); }
  std::function<double(rank_t)> seconds;
};
double long_enough(rank_t) { return 20; }

std::future<growth> join(spar::rendezvous_store& store, std::string text, double seconds = 20) {
  return std::async(std::launch::async,
                    [&store, text, seconds] { return spar::detail::join_group(store, text, seconds); });
}
std::future<growth> follow(spar::rendezvous_store& store, rank_t own) {
  return std::async(std::launch::async, [&store, own] {
    patience with(long_enough);
    return spar::detail::follow_growth(store, "g/", own, "member " + std::to_string(own), with);
  });
}
std::vector<joiner> take_joiners(spar::rendezvous_store& store, std::string_view prefix, std::uint64_t& next) {
  return spar::detail::take_joiners(store, prefix, next, [](std::string_view text) {
    if (text == "malformed") throw spar::corrupt_message("it has described itself by other bytes");
  });
}
/// Takes `count` processes, whose requests come at any time.
std::vector<joiner> take(spar::rendezvous_store& store, std::size_t count, std::uint64_t& next,
                         const std::string& prefix = "g/") {
  std::vector<joiner> all;
  while (all.size() < count) {
    for (const joiner& one : take_joiners(store, prefix, next)) all.push_back(one);
  }
  return all;
}
growth lead(spar::rendezvous_store& store, rank_t size, const std::vector<joiner>& joiners,
            std::function<double(rank_t)> seconds = long_enough, const std::string& prefix = "g/") {
  patience with(std::move(seconds));
  return spar::detail::lead_growth(store, prefix, size, "member 0", "settings", joiners, with);
}

TEST(joiners, come_behind_the_members_in_the_order_of_their_places) {
  spar::memory_store store;
  std::uint64_t next = 0;
  EXPECT_TRUE(take_joiners(store, "g/", next).empty());
  EXPECT_EQ(next, 0U);
  auto first = join(store, "first");
  std::vector<joiner> joiners = take(store, 1, next);
  auto second = join(store, "second");
  for (const joiner& one : take(store, 1, next)) joiners.push_back(one);
  auto follower = follow(store, 1);
  const growth decided = lead(store, 2, joiners);
  EXPECT_EQ(decided.all, (texts{"member 0", "member 1", "first", "second"}));
  EXPECT_EQ(decided.next_place, 2U);
  for (auto* const other : {&follower, &first, &second}) {
    const growth same = other->get();
    EXPECT_EQ(same.all, decided.all);
    EXPECT_EQ(same.settings, "settings");
    EXPECT_EQ(same.next_place, 2U);
  }
}

TEST(joiners, are_taken_by_one_group) {
  spar::memory_store store;
  std::uint64_t next = 0, of_other_group = 0;
  auto process = join(store, "process");
  const auto joiners = take(store, 1, next);
  EXPECT_TRUE(take_joiners(store, "h/", of_other_group).empty());
  EXPECT_EQ(of_other_group, 1U);
  (void)lead(store, 1, joiners);
  EXPECT_EQ(process.get().all, (texts{"member 0", "process"}));
}

/// A process that has asked and then died.
TEST(joiners, that_do_not_answer_are_left_out) {
  spar::memory_store store;
  std::uint64_t next = 0;
  auto lives = join(store, "lives");
  std::vector<joiner> joiners = take(store, 1, next);
  joiners.push_back({1, "died"});
  const growth decided = lead(store, 1, joiners, [](rank_t peer) { return peer == 1 ? 20. : 0.; });
  EXPECT_EQ(decided.all, (texts{"member 0", "lives"}));
  EXPECT_EQ(lives.get().all, decided.all);
}

TEST(joiners, that_are_left_out_ask_again) {
  spar::memory_store store;
  std::uint64_t next = 0;
  store.put("g/decision", "mrank 1 has failed"); // a refusal
  auto process = join(store, "process");
  const auto joiners = take(store, 1, next);
  EXPECT_EQ(test::message_of<spar::peer_failed>([&] { (void)lead(store, 1, joiners); }),
            "the communicator does not grow: rank 1 has failed");
  const auto again = take(store, 1, next, "h/");
  EXPECT_EQ(again[0].place, 1U);
  (void)lead(store, 1, again, long_enough, "h/");
  EXPECT_EQ(process.get().all, (texts{"member 0", "process"}));
}

TEST(joiners, wait_for_the_next_group_if_a_member_is_given_up) {
  spar::memory_store store;
  std::uint64_t next = 0;
  auto process = join(store, "process");
  auto follower = follow(store, 1);
  const auto joiners = take(store, 1, next);
  const auto silent = [](rank_t peer) { return peer == 2 ? 0. : 20.; };
  EXPECT_EQ(test::message_of<spar::peer_failed>([&] { (void)lead(store, 3, joiners, silent); }),
            "the communicator does not grow: rank 0 has given up rank 2");
  EXPECT_EQ(test::message_of<spar::peer_failed>([&] { (void)follower.get(); }),
            "the communicator does not grow: rank 0 has given up rank 2");
  (void)lead(store, 1, take(store, 1, next, "h/"), long_enough, "h/");
  EXPECT_EQ(process.get().all, (texts{"member 0", "process"}));
}

/// A member that has lost patience reads a decision that was made before, and goes on with it.
TEST(joiners, the_first_decision_stays) {
  spar::memory_store store;
  std::uint64_t next = 0;
  auto process = join(store, "process");
  const auto joiners = take(store, 1, next);
  store.put("g/1", "member 1");
  const growth decided = lead(store, 2, joiners);
  patience without([](rank_t) { return 0.; });
  EXPECT_EQ(spar::detail::follow_growth(store, "g/", 1, "member 1", without).all, decided.all);
  (void)spar::detail::refuse_growth(store, "g/", "too late");
  EXPECT_EQ(process.get().all, decided.all);

  spar::memory_store other;
  EXPECT_EQ(test::message_of<spar::peer_failed>(
                [&] { (void)spar::detail::follow_growth(other, "g/", 1, "member 1", without); }),
            "the communicator does not grow: rank 1 has given up rank 0");
  EXPECT_EQ(test::message_of<spar::peer_failed>([&] { (void)lead(other, 1, {{0, "process"}}, without.seconds); }),
            "the communicator does not grow: rank 1 has given up rank 0");
}

TEST(joiners, that_nobody_takes_end) {
  spar::memory_store store;
  const std::string text = test::message_of<spar::timeout>([&] { (void)join(store, "late", 0.01).get(); });
  EXPECT_NE(text.find("has waited 0.01 s for the ranks of the job to call grow; they may have ended"), text.npos)
      << text;
  std::uint64_t next = 0;
  EXPECT_TRUE(take_joiners(store, "g/", next).empty());
  EXPECT_EQ(next, 1U);
}

TEST(joiners, whose_group_does_not_decide_end) {
  spar::memory_store store;
  std::uint64_t next = 0;
  auto process = join(store, "process", 0.05);
  (void)take(store, 1, next); // and dies
  EXPECT_NE(test::message_of<spar::timeout>([&] { (void)process.get(); }).find("has waited 0.05 s"), std::string::npos);
}

TEST(joiners, of_another_version_and_other_bytes_are_refused) {
  spar::memory_store store, other;
  auto process = join(other, "process");
  std::string asks = other.wait("spar/join/0", 20).value();
  asks[5] ^= 1; // the first letter of the version, behind its length
  store.put("spar/join/0", asks);
  store.put("spar/join/1", "other bytes");
  std::uint64_t next = 0;
  EXPECT_TRUE(take_joiners(store, "g/", next).empty());
  EXPECT_EQ(next, 2U);
  const std::string answer = store.wait("spar/join/0/taker", 0).value();
  EXPECT_NE(answer.find("start all ranks from one build"), std::string::npos) << answer;
  other.put("spar/join/0/taker", answer);
  EXPECT_EQ(test::message_of<spar::mismatch>([&] { (void)process.get(); }), answer.substr(1));
  EXPECT_TRUE(store.wait("spar/join/1/taker", 0));
}

/// Each is refused at its place, and the process that asks after them is taken.
TEST(joiners, that_are_malformed_or_tell_what_another_tells_are_refused) {
  spar::memory_store store;
  std::uint64_t next = 0;
  auto malformed = join(store, "malformed");
  (void)store.wait("spar/join/0", 20);
  auto first = join(store, "process");
  (void)store.wait("spar/join/1", 20);
  auto same = join(store, "process");
  (void)store.wait("spar/join/2", 20);
  auto last = join(store, "last");
  (void)store.wait("spar/join/3", 20);
  const auto joiners = take_joiners(store, "g/", next);
  ASSERT_EQ(joiners.size(), 2U);
  EXPECT_EQ(next, 4U);
  const growth decided = lead(store, 1, joiners);
  EXPECT_EQ(decided.all, (texts{"member 0", "process", "last"}));
  EXPECT_EQ(first.get().all, decided.all);
  EXPECT_EQ(last.get().all, decided.all);
  EXPECT_EQ(test::message_of<spar::mismatch>([&] { (void)malformed.get(); }), "it has described itself by other bytes");
  const std::string why = test::message_of<spar::mismatch>([&] { (void)same.get(); });
  EXPECT_NE(why.find("joins at the place 2 with the text of another process, at the place 1"), why.npos) << why;
}

/// A process that no longer waits when the group decides: nobody joins, but the group goes on.
TEST(joiners, that_give_up_end_no_group) {
  spar::memory_store store;
  std::uint64_t next = 0;
  auto hasty = join(store, "hasty", 0.3);
  const auto joiners = take(store, 1, next);
  const test::stopwatch time;
  const std::string why = test::message_of<spar::timeout>([&] { (void)hasty.get(); });
  EXPECT_NE(why.find("has waited 0.3 s for the ranks that grow to decide; they may have ended"), why.npos) << why;
  EXPECT_LT(time.seconds(), 5);
  auto follower = follow(store, 1);
  EXPECT_EQ(lead(store, 2, joiners).all, texts{});
  EXPECT_EQ(follower.get().all, texts{});
  auto other = join(store, "other");
  EXPECT_EQ(lead(store, 1, take(store, 1, next, "h/"), long_enough, "h/").all, (texts{"member 0", "other"}));
  EXPECT_EQ(other.get().next_place, next);
}

/// The reason that a decision with these bytes is refused by the rank 1, which has told "member 1".
std::string error_of_decision(const std::string& bytes) {
  spar::memory_store store;
  store.put("g/decision", bytes);
  patience with(long_enough);
  return test::message_of<spar::corrupt_message>(
      [&] { (void)spar::detail::follow_growth(store, "g/", 1, "member 1", with); });
}

TEST(joiners, a_malformed_decision_is_refused) {
  const auto decision = [](std::uint64_t next_place, const texts& all) {
    return error_of_decision(encode(growth{next_place, "settings", all}));
  };
  EXPECT_NE(error_of_decision("x"), "nothing");
  EXPECT_EQ(decision(1, {"member 0", "member 1", "a"}), "nothing");
  EXPECT_EQ(decision(1, {}), "a group grows to 2 - 2 ranks; expected at least 1");
  EXPECT_EQ(decision(0, {"member 0", "member 1", "a"}),
            "the next place of a group that grows is 0 in 8 bytes; expected at least 1 in 8 bytes");
  EXPECT_EQ(decision(2, {"member 0", "member 1", "a", "member 1"}),
            "the ranks 1 and 3 of a group that grows are one process");
  EXPECT_EQ(decision(1, {"member 0", "a"}), "a group grows to 2 ranks, of which none is its rank 1");
  EXPECT_EQ(decision(1, {"member 0"}), "a group grows to 1 ranks, of which none is its rank 1");
}

} // namespace
