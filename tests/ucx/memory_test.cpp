// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One allocation of a rank fails, whichever it is, while the ranks make a communicator over UCX: the rank gets
// std::bad_alloc, all others get an error then or from their first call, and no descriptor is left.
#include "rendezvous/processes.hpp"
#include "support/extent.hpp"
#include "support/global_allocations.hpp"
#include "support/ucx_ranks.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>

namespace spar_test {
namespace {

using spar::rank_t;

/// How the attempt of a rank to make a communicator and to call on it has ended.
enum class attempt { succeeded, without_memory, in_error };

/// The rendezvous of all ranks for the attempt `number` of the rank `failing`.
spar::rendezvous meeting_of(const std::string& what, rank_t failing, std::uint64_t number) {
  const std::string group = what + std::to_string(failing) + "number" + std::to_string(number);
  return meeting().among(group, meeting().rank(), meeting().size());
}

/// Makes a communicator by `make(fails)` and calls on it. From the call of `fails` until `make` returns, the allocation
/// `number` of this rank fails; none if the number is 0.
template <class Make>
attempt try_to_make(Make make, std::uint64_t number) {
  std::optional<failing_allocation> allocations;
  try {
    const std::unique_ptr<spar::ucx> net = make([&] { allocations.emplace(number); });
    allocations.reset();
    if (net == nullptr) return attempt::in_error;
    net->set_deadline(2); // a rank that fails when the others know its address may be silent, over shared memory
    spar::barrier(*net);
    return attempt::succeeded;
  } catch (const std::bad_alloc&) {
    allocations.reset();
    return attempt::without_memory;
  } catch (const spar::error&) {
    allocations.reset();
    return attempt::in_error;
  }
}

/// The communicator that `make` returns, whose own memory is there before `make` begins.
template <class Make>
std::unique_ptr<spar::ucx> made_by(Make make) {
  return std::unique_ptr<spar::ucx>(new spar::ucx(make()));
}

/// Whether the others may have a communicator without the rank that fails.
enum class others { fail, may_go_on };

/// Calls `make(meeting, fails)` on all ranks, as `try_to_make` says, for each allocation of rank 0 and of the last
/// rank, or for one of `step` allocations.
template <class Make>
void each_allocation_fails(const char* what, others how, std::uint64_t step, Make make) {
  for (const rank_t failing : {0, meeting().size() - 1}) {
    std::size_t descriptors = 0;
    bool has_failed = true;
    for (std::uint64_t number = 1; has_failed; number += step) {
      SCOPED_TRACE(testing::Message() << what << ", allocation " << number << " of rank " << failing);
      const spar::rendezvous place = meeting_of(what, failing, number);
      const bool fails = meeting().rank() == failing;
      const test::stopwatch time;
      const attempt own = try_to_make([&](auto begin) { return make(place, begin); }, fails ? number : 0);
      EXPECT_LT(time.seconds(), 10); // not the deadline of the rendezvous
      const std::string word = own == attempt::without_memory ? "failed" : "";
      has_failed = !meeting().exchange(word)[static_cast<std::size_t>(failing)].empty();
      if (has_failed && !fails && how == others::may_go_on) {
        EXPECT_NE(static_cast<int>(own), static_cast<int>(attempt::without_memory));
      } else {
        const attempt expected = !has_failed ? attempt::succeeded : fails ? attempt::without_memory : attempt::in_error;
        EXPECT_EQ(static_cast<int>(own), static_cast<int>(expected));
      }
      if (number == 1 + step) descriptors = test::open_descriptors();
      if (number > 1 + step) EXPECT_LE(test::open_descriptors(), descriptors);
    }
    if (meeting().size() == 1) break;
  }
}

std::uint64_t every_or(std::uint64_t step) { return is_full() ? 2 : step; }

TEST(ucx_memory, of_construction) {
  each_allocation_fails("construction", others::fail, every_or(7), [](const spar::rendezvous& place, auto fails) {
    return made_by([&] {
      fails();
      return spar::ucx(place);
    });
  });
}

TEST(ucx_memory, of_split) {
  each_allocation_fails("split", others::fail, every_or(7), [](const spar::rendezvous& place, auto fails) {
    spar::ucx world(place);
    return made_by([&] {
      fails();
      return world.split(0, world.rank());
    });
  });
}

TEST(ucx_memory, of_shrink) {
  each_allocation_fails("shrink", others::may_go_on, every_or(7), [](const spar::rendezvous& place, auto fails) {
    spar::ucx world(place);
    return made_by([&] {
      fails();
      return world.shrink();
    });
  });
}

/// The last rank joins the others.
TEST(ucx_memory, of_grow_and_join) {
  const rank_t members = meeting().size() - 1;
  if (members == 0) return;
  constexpr double seconds = 2; // until those who are left give up
  const std::uint64_t step = is_full() ? 5 : 20;
  each_allocation_fails("grow", others::may_go_on, step, [&](const spar::rendezvous& place, auto fails) {
    if (place.rank() == members) {
      const std::shared_ptr<spar::rendezvous_store> store(std::shared_ptr<void>(), &place.meeting());
      spar::rendezvous_options options;
      options.deadline = seconds;
      return made_by([&] {
        fails();
        return spar::ucx::join(store, options);
      });
    }
    spar::ucx net(place.among("members", place.rank(), members));
    net.set_deadline(0.5 * seconds);
    std::unique_ptr<spar::ucx> wider;
    fails();
    for (const test::stopwatch time; wider == nullptr && time.seconds() < seconds;) wider = net.grow();
    return wider;
  });
}

} // namespace
} // namespace spar_test
