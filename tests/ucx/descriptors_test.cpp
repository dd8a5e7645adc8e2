// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The descriptors on which a rank over UCX sleeps: the end of a process is known once, and a bell ends the sleep.
#include "rendezvous/processes.hpp"

#include <spar/transport/ucx/descriptors.hpp>

#include <gtest/gtest.h>

#include <vector>

#include <csignal>
#include <sys/eventfd.h>

namespace {

/// Descriptors that watch a process as rank 3, and no messages.
struct watching {
  spar::detail::descriptor worker{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  spar::detail::ucx_descriptors all{worker.get()};
  test::process watched{[] {
    test::rest(20);
    return 0;
  }};

  std::vector<spar::rank_t> ended() {
    std::vector<spar::rank_t> ranks;
    all.take_ended([&](spar::rank_t r) { ranks.push_back(r); });
    return ranks;
  }
};

TEST(ucx_descriptors, tell_once_that_a_process_has_ended) {
  watching own;
  EXPECT_TRUE(own.all.watch(3, own.watched.id()));
  EXPECT_FALSE(own.all.wait(0));
  EXPECT_TRUE(own.ended().empty());
  const test::process forked([] { // has copies of all descriptors
    test::rest(20);
    return 0;
  });
  ::kill(own.watched.id(), SIGKILL);
  EXPECT_TRUE(own.all.wait(10));
  EXPECT_EQ(own.ended(), std::vector<spar::rank_t>{3});
  EXPECT_FALSE(own.all.wait(0)) << "would never sleep again";
  EXPECT_TRUE(own.ended().empty());
  ::kill(forked.id(), SIGKILL);
}

TEST(ucx_descriptors, of_a_process_that_does_not_exist_any_more) {
  watching own;
  const pid_t process = own.watched.id();
  ::kill(process, SIGKILL);
  own.watched.status();
  EXPECT_FALSE(own.all.watch(3, process));
}

TEST(ucx_descriptors, are_woken) {
  watching own;
  const test::stopwatch watch;
  own.all.wake();
  EXPECT_FALSE(own.all.wait(10));
  EXPECT_LT(watch.seconds(), 5);
  EXPECT_FALSE(own.all.wait(0.01)); // once
  EXPECT_GE(watch.seconds(), 0.01);
  ::kill(own.watched.id(), SIGKILL);
}

} // namespace
