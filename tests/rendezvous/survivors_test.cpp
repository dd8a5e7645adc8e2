// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The agreement on survivors in a model: ranks make one step at a time, in every order for few ranks and in random
// orders for more. Between any two steps, a rank may die, stop for any time, or give up any other rank, dead or not.
#include "support/extent.hpp"

#include <spar/rendezvous/survivors.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using spar::rank_t;
using list_of_ranks = std::vector<spar::detail::survivor>;

std::string address_of(rank_t r) { return std::string("any\0bytes", 9) + std::to_string(r); }

list_of_ranks agree(spar::rendezvous_store& meeting, rank_t own, rank_t size, spar::detail::patience& with) {
  return spar::detail::agree_on_survivors(meeting, "p/", own, size, address_of(own), with);
}

/// What a rank has learnt in one step: from the store, or how long it still waits for a peer.
struct answer {
  std::optional<std::string> text;
  double left = 0;
};

enum class life { runs, dead, done, refused };

struct rank_state {
  life now = life::runs;
  std::vector<answer> answers{}; // of the steps so far
  list_of_ranks list{};          // if done
  std::vector<bool> given_up{};  // which peers
};

/// The state of the store and of all ranks.
struct model {
  std::map<std::string, std::string> values{};
  std::vector<rank_state> ranks{};

  explicit model(rank_t size)
      : ranks(static_cast<std::size_t>(size),
              rank_state{.given_up = std::vector<bool>(static_cast<std::size_t>(size))}) {}

  [[nodiscard]] rank_t size() const { return static_cast<rank_t>(ranks.size()); }
  rank_state& operator[](rank_t r) { return ranks[static_cast<std::size_t>(r)]; }
  const rank_state& operator[](rank_t r) const { return ranks[static_cast<std::size_t>(r)]; }
  [[nodiscard]] bool gave_up(rank_t r, rank_t peer) const {
    return (*this)[r].given_up[static_cast<std::size_t>(peer)];
  }

  /// The word about the rank `r`; empty if there is none.
  [[nodiscard]] std::string word(rank_t r) const {
    const auto at = values.find("p/" + std::to_string(r));
    return at == values.end() ? std::string() : at->second;
  }
  /// Whether the word about the rank `r` is its own report.
  [[nodiscard]] bool has_reported(rank_t r) const { return word(r) == "+" + address_of(r); }

  /// All that matters for what may still happen.
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const auto& [key, value] : values) all += key + "=" + value + ";";
    for (const auto& r : ranks) {
      all += "\n" + std::to_string(static_cast<int>(r.now)) + ":";
      for (const bool b : r.given_up) all += b ? '1' : '0';
      if (r.now != life::runs) continue;
      for (const auto& a : r.answers) all += "," + a.text.value_or("-") + (a.left > 0 ? "+" : "");
    }
    return all;
  }
};

/// Thrown when a rank has made one step: the next step begins the function anew, with the answers so far.
struct suspended {};

/// One rank of the model, as a store and as patience.
class stepping final : public spar::rendezvous_store, public spar::detail::patience {
 public:
  stepping(model& of, rank_t rank) : of_(&of), rank_(rank) {}

  /// Makes one step; returns false if the rank has to wait for another one.
  bool step() {
    rank_state& own = (*of_)[rank_];
    try {
      own.list = agree(*this, rank_, of_->size(), *this);
      own.now = life::done;
    } catch (const suspended&) {
    } catch (const spar::peer_failed&) {
      own.now = life::refused;
    }
    return !waits_;
  }

  std::string put(std::string_view key, std::string_view value) override {
    return *next([&] { return answer{of_->values.try_emplace(std::string(key), value).first->second}; }).text;
  }
  std::optional<std::string> wait(std::string_view key, double) override {
    return next([&]() -> std::optional<answer> {
             const auto at = of_->values.find(std::string(key));
             if (at != of_->values.end()) return answer{at->second};
             if (of_->gave_up(rank_, std::stoi(std::string(key.substr(2))))) return answer{};
             return std::nullopt;
           })
        .text;
  }
  double left(rank_t peer) override {
    return next([&] { return answer{{}, of_->gave_up(rank_, peer) ? 0.0 : 1.0}; }).left;
  }

 private:
  template <class Look>
  answer next(const Look& look) {
    rank_state& own = (*of_)[rank_];
    if (at_ < own.answers.size()) return own.answers[at_++];
    if (stepped_) throw suspended();
    const std::optional<answer> now = look();
    waits_ = !now;
    if (!now) throw suspended();
    stepped_ = true;
    own.answers.push_back(*now);
    return own.answers[at_++];
  }

  model* of_;
  rank_t rank_;
  std::size_t at_ = 0;
  bool stepped_ = false;
  bool waits_ = false;
};

bool step(model& m, rank_t r) { return m[r].now == life::runs && stepping(m, r).step(); }

/// What must be true at any time.
void check(const model& m) {
  list_of_ranks reported;
  for (rank_t r = 0; r < m.size(); ++r) {
    if (m.has_reported(r)) reported.push_back({r, address_of(r)});
    ASSERT_FALSE(m.has_reported(r) && m[r].answers.empty()) << "rank " << r << " has not called";
  }
  for (rank_t r = 0; r < m.size(); ++r) {
    if (m[r].now == life::refused) {
      ASSERT_FALSE(m.has_reported(r)) << m.text();
    }
    if (m[r].now == life::done) {
      ASSERT_EQ(m[r].list, reported) << m.text(); // so all lists are equal
      ASSERT_TRUE(m.has_reported(r)) << m.text();
    }
  }
}

/// Lets all ranks that live end: they give up whoever has not come. A rank that others have given up is refused.
void finish(model m) {
  for (bool again = true; again;) {
    again = false;
    for (rank_t r = 0; r < m.size(); ++r) {
      while (step(m, r)) again = true;
    }
  }
  for (rank_t r = 0; r < m.size(); ++r) {
    for (rank_t peer = 0; peer < m.size(); ++peer) m[r].given_up[static_cast<std::size_t>(peer)] = true;
  }
  for (rank_t r = 0; r < m.size(); ++r) {
    for (int steps = 0; step(m, r); ++steps) ASSERT_LT(steps, 1000) << "rank " << r << " does not end\n" << m.text();
    ASSERT_NE(m[r].now, life::runs) << "rank " << r << " waits for ever\n" << m.text();
    ASSERT_EQ(m[r].now == life::done, m[r].now != life::dead && m.has_reported(r)) << m.text();
  }
  check(m);
}

/// Tries every order of steps, deaths and losses of patience from `from` on.
void explore(const model& from, std::set<std::string>& seen, int deaths, int losses) {
  if (testing::Test::HasFatalFailure() ||
      !seen.insert(from.text() + std::to_string(deaths) + "," + std::to_string(losses)).second)
    return;
  check(from);
  finish(from);
  for (rank_t r = 0; r < from.size(); ++r) {
    if (from[r].now != life::runs) continue;
    model next = from;
    if (step(next, r)) explore(next, seen, deaths, losses);
    if (deaths > 0) {
      model dies = from;
      dies[r].now = life::dead;
      explore(dies, seen, deaths - 1, losses);
    }
    for (rank_t peer = 0; losses > 0 && peer < from.size(); ++peer) {
      if (peer == r || from.gave_up(r, peer)) continue;
      model loses = from;
      loses[r].given_up[static_cast<std::size_t>(peer)] = true;
      explore(loses, seen, deaths, losses - 1);
    }
  }
}

TEST(survivors, agree_in_every_order_of_two_ranks) {
  std::set<std::string> seen;
  explore(model(2), seen, 2, 2);
  EXPECT_GT(seen.size(), 100U);
}

TEST(survivors, agree_in_every_order_of_three_ranks) {
  std::set<std::string> seen;
  explore(model(3), seen, 1, is_full() ? 3 : 1);
  EXPECT_GT(seen.size(), 1000U);
}

TEST(survivors, agree_in_random_orders_of_up_to_eight_ranks) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::size_t smaller = 0, refused = 0;
  const std::size_t runs = is_full() ? 50'000 : 1'000;
  for (std::size_t run = 0; run < runs && !testing::Test::HasFatalFailure(); ++run) {
    model m(1 + below(8));
    const int deadly = below(3) == 0 ? 0 : 4 + below(30), impatient = below(3) == 0 ? 0 : 1 + below(12);
    for (int at = 0; at < 60 * m.size(); ++at) {
      const rank_t r = below(m.size()), peer = below(m.size());
      if (m[r].now != life::runs) continue;
      if (deadly > 0 && below(deadly * m.size()) == 0) m[r].now = life::dead;
      if (impatient > 0 && below(impatient) == 0) m[r].given_up[static_cast<std::size_t>(peer)] = peer != r;
      step(m, r);
      check(m);
    }
    finish(m);
    for (const auto& r : m.ranks) {
      if (r.now == life::done && r.list.size() < m.ranks.size()) ++smaller;
      if (r.now == life::refused) ++refused;
    }
  }
  EXPECT_GT(smaller, runs / 6); // the orders are not all harmless
  EXPECT_GT(refused, runs / 30);
}

TEST(survivors, are_all_ranks_if_all_come) {
  for (rank_t size = 1; size <= 8; ++size) {
    model m(size);
    for (int turn = 0; turn < 1000; ++turn) {
      for (rank_t r = size - 1; r >= 0; --r) step(m, r);
    }
    for (rank_t r = 0; r < size; ++r) {
      ASSERT_EQ(m[r].now, life::done);
      EXPECT_EQ(m[r].list.size(), static_cast<std::size_t>(size));
    }
  }
}

TEST(survivors, know_who_has_given_them_up) {
  model m(2);
  m[0].given_up[1] = true;
  while (step(m, 0)) continue;
  EXPECT_EQ(m[0].list, (list_of_ranks{{0, address_of(0)}}));
  class once final : public spar::rendezvous_store, public spar::detail::patience {
   public:
    std::string put(std::string_view, std::string_view) override { return "-rank 0 has given it up"; }
    std::optional<std::string> wait(std::string_view, double) override { return {}; }
    double left(rank_t) override { return 0; }
  } late;
  EXPECT_EQ(m.word(1), late.put("", ""));
  try {
    (void)agree(late, 1, 2, late);
    FAIL() << "expected peer_failed";
  } catch (const spar::peer_failed& e) {
    EXPECT_STREQ(e.what(), "rank 1 (this rank) called shrink too late, so the others go on without it: "
                           "rank 0 has given it up");
  }
}

TEST(survivors, report_once) {
  class impatient final : public spar::detail::patience {
   public:
    double left(rank_t) override { return 0; }
  } with;
  spar::memory_store meeting;
  const list_of_ranks own{{1, address_of(1)}};
  EXPECT_EQ(agree(meeting, 1, 3, with), own);
  EXPECT_EQ(agree(meeting, 1, 3, with), own); // as after an error of the store
  EXPECT_THROW((void)spar::detail::agree_on_survivors(meeting, "p/", 1, 3, "another address", with),
               spar::invalid_argument);
  const list_of_ranks other{{0, "b"}};
  EXPECT_EQ(spar::detail::agree_on_survivors(meeting, "another group/", 0, 3, "b", with), other);
}

/// Of threads that share a memory_store, those that call go on; one comes after the others have given it up.
TEST(survivors, agree_by_a_store_in_memory) {
  class waiting final : public spar::detail::patience {
   public:
    explicit waiting(rank_t lost) : lost_(lost) {}
    double left(rank_t peer) override { return peer == lost_ ? 0 : 60; }

   private:
    rank_t lost_;
  };
  for (rank_t size = 2; size <= 8; ++size) {
    const rank_t lost = size / 2;
    spar::memory_store meeting;
    std::vector<list_of_ranks> lists(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (rank_t r = 0; r < size; ++r) {
      if (r == lost) continue;
      threads.emplace_back([&, r] {
        waiting with(lost);
        lists[static_cast<std::size_t>(r)] = agree(meeting, r, size, with);
      });
    }
    for (auto& t : threads) t.join();
    list_of_ranks expected;
    for (rank_t r = 0; r < size; ++r) {
      if (r != lost) expected.push_back({r, address_of(r)});
    }
    for (rank_t r = 0; r < size; ++r) {
      EXPECT_TRUE(r == lost || lists[static_cast<std::size_t>(r)] == expected) << "rank " << r << " of " << size;
    }
    waiting with(-1);
    EXPECT_THROW((void)agree(meeting, lost, size, with), spar::peer_failed);
  }
}

} // namespace
} // namespace spar_test
