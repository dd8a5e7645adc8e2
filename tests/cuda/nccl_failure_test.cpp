// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Failures of the transport over NCCL, on doubles of NCCL and of the CUDA runtime: every rank ends in an error with the
// reason, aborts its NCCL communicator exactly once, and leaves nothing behind.
#include "nccl_double.hpp"
#include "on_ranks.hpp"
#include "runtime_double.hpp"

#include <spar/collective/allreduce/ring.hpp>
#include <spar/nccl.hpp>
#include <spar/runtime/progress_thread.hpp>
#include <spar/transport/faulty.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using spar::rank_t;
using net_type = spar::nccl<spar::threads>;

/// How a rank ended.
struct outcome {
  std::string error; // empty if there was none
  nccl_double::counts did;
  std::uint64_t cuda_calls = 0;

  [[nodiscard]] bool has(const std::string& text) const { return error.find(text) != std::string::npos; }
};

void reset(std::uint64_t seed) {
  cuda_double::reset(seed);
  nccl_double::reset(seed);
}

/// Checks what must be true on each rank after any failure or success: the NCCL communicator, if there was one, was
/// freed once, and after an error by ncclCommAbort.
void check_ends(const std::vector<outcome>& ranks) {
  for (const outcome& o : ranks) {
    EXPECT_EQ(o.did.aborts + o.did.destroys, o.did.joins) << o.error;
    if (!o.error.empty()) {
      EXPECT_EQ(o.did.destroys, 0U) << o.error;
    }
    EXPECT_EQ(o.did.open_groups, 0) << o.error;
  }
  EXPECT_EQ(nccl_double::communicators(), 0U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
}

/// Runs `program(control)` on 3 ranks.
template <class Program>
std::vector<outcome> outcomes(double deadline, Program program) {
  auto ended = on_ranks(3, [&](spar::threads& control) {
    control.set_deadline(deadline);
    outcome o;
    try {
      program(control);
    } catch (const std::exception& e) {
      o.error = e.what();
    }
    o.did = nccl_double::of_this_thread();
    o.cuda_calls = cuda_double::calls();
    return o;
  });
  check_ends(ended);
  return ended;
}

void reduce_twice(net_type& net) {
  std::vector<float> x(3000, 1);
  for (int call = 0; call < 2; ++call) spar::allreduce(net, std::span(x), spar::ring{});
  EXPECT_EQ(x, std::vector<float>(3000, 9));
}

/// Plans one failure after another on rank 1, at each of the first 40 places and at some of the others, by
/// `plan(number)`, until `reached(rank 1, number)` is false, and checks that the error contains `text`. Returns for how
/// many failures all ranks ended in an error.
template <class Plan, class Reached>
int fail_everywhere(const std::string& text, Plan plan, Reached reached) {
  int everywhere = 0;
  for (std::uint64_t number = 1; number < 1000; number += 1 + number / 40) {
    reset(number);
    const auto ended = outcomes(20, [&](spar::threads& control) {
      if (control.rank() == 1) plan(number);
      net_type net(control, {.eager_bytes = 0});
      reduce_twice(net);
    });
    if (!reached(ended[1], number)) {
      for (const outcome& o : ended) EXPECT_EQ(o.error, "");
      return everywhere;
    }
    // A rank's program may have ended before the failure.
    bool all = true;
    for (const outcome& o : ended) {
      EXPECT_TRUE(o.error.empty() || o.has(text)) << number << ": " << o.error;
      all = all && !o.error.empty();
    }
    if (all) ++everywhere;
  }
  ADD_FAILURE() << "the program has more places to fail than this test reaches";
  return everywhere;
}

TEST(nccl_failure, of_each_call_of_nccl_ends_every_rank) {
  const int everywhere = fail_everywhere(
      " failed: a planned error of NCCL", [](std::uint64_t call) { nccl_double::fail_at(call); },
      [](const outcome& o, std::uint64_t call) { return o.did.calls >= call; });
  EXPECT_GE(everywhere, 30);
}

TEST(nccl_failure, of_each_call_of_cuda_ends_every_rank) {
  const int everywhere = fail_everywhere(
      " failed: cudaErrorUnknown, a planned error", [](std::uint64_t call) { cuda_double::fail_at(call); },
      [](const outcome& o, std::uint64_t call) { return o.cuda_calls >= call; });
  EXPECT_GE(everywhere, 30);
}

TEST(nccl_failure, of_a_transfer_ends_every_rank) {
  const int everywhere = fail_everywhere(
      " failed: a planned error of a transfer", [](std::uint64_t poll) { nccl_double::fail_later_at(poll); },
      [](const outcome& o, std::uint64_t poll) { return o.did.polls >= poll; });
  EXPECT_GE(everywhere, 20);
}

TEST(nccl_failure, to_create_a_communicator_says_why) {
  reset(1);
  nccl_double::refuse(true);
  const auto ended = outcomes(20, [](spar::threads& control) { net_type net(control); });
  for (const outcome& o : ended) EXPECT_TRUE(o.has("invalid usage; Duplicate GPU detected")) << o.error;
}

TEST(nccl_failure, of_a_control_transport_with_a_progress_thread_says_why) {
  reset(1);
  const auto ended = outcomes(20, [](spar::threads& control) {
    spar::progress_thread background(control);
    net_type net(control);
  });
  for (const outcome& o : ended) EXPECT_TRUE(o.has("cannot wrap a communicator with a progress_thread")) << o.error;
}

TEST(nccl_failure, of_calls_that_would_block_says_why) {
  reset(1);
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  const auto ended = outcomes(20, [](spar::threads& control) { net_type net(control); });
  unsetenv("NCCL_COMM_BLOCKING");
  for (const outcome& o : ended) EXPECT_TRUE(o.has("NCCL_COMM_BLOCKING is 1")) << o.error;
}

TEST(nccl_failure, of_a_rank_that_does_not_create_its_communicator_is_a_timeout) {
  reset(1);
  const auto ended = outcomes(20, [](spar::threads& control) {
    std::vector<float> all_are_here(1);
    spar::allreduce(control, std::span(all_are_here), spar::ring{});
    control.set_deadline(1);
    if (control.rank() != 2) net_type net(control);
    while (!control.dead()) control.progress(true);
  });
  EXPECT_TRUE(ended[0].has("s for all ranks to create their spar::nccl")) << ended[0].error;
}

TEST(nccl_failure, of_a_rank_that_does_not_destroy_its_communicator_is_a_timeout) {
  reset(1);
  const auto ended = outcomes(20, [](spar::threads& control) {
    net_type net(control);
    control.set_deadline(1);
    if (control.rank() != 2) return; // destroys `net`
    while (!control.dead()) control.progress(true);
    std::vector<float> x(1);
    spar::allreduce(net, std::span(x), spar::ring{});
  });
  EXPECT_TRUE(ended[2].has("s for all ranks to destroy their spar::nccl")) << ended[2].error;
  for (const outcome& o : ended) EXPECT_EQ(o.did.aborts, 1U);
}

/// Rank 0 makes one call, with a payload that travels by NCCL, and leaves; the others make another one.
TEST(nccl_failure, of_a_rank_that_has_left_is_named) {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    reset(seed);
    const auto ended = outcomes(20, [](spar::threads& control) {
      net_type net(control);
      std::vector<float> x(10'000, control.rank() == 0 ? 1.0F : 0.0F);
      spar::broadcast(net, std::span(x), 0);
      EXPECT_EQ(x.back(), 1.0F);
      if (control.rank() != 0) spar::broadcast(net, std::span(x), 0);
    });
    for (const std::size_t r : {1U, 2U})
      EXPECT_TRUE(ended[r].has("rank 0 has left (calls without a name: 2), but rank ")) << ended[r].error;
  }
}

/// A collective in which rank 0 sends `sent` bytes to rank 1, which expects `expected` bytes.
struct send_once {
  template <spar::transport Net>
  spar::task<void> operator()(spar::channel<Net> net, std::span<std::byte> sent, std::span<std::byte> expected) const {
    if (net.rank() == 0) {
      const spar::payload out{spar::wire_format::block_coded, 1, {sent}};
      auto sending = net.send(1, out);
      co_await sending;
    } else if (net.rank() == 1) {
      spar::message_buffer in(net.memory());
      in.place(0, expected);
      auto receiving = net.receive(0, in);
      co_await receiving;
    }
  }
};

void send(net_type& net, std::size_t sent, std::size_t expected) {
  std::vector<std::byte> from(sent, std::byte{7}), to(expected);
  spar::run_collective(net, spar::signature{.digest = 1, .element = spar::element_code::uint32}, send_once{},
                       std::span(from), std::span(to));
  if (net.rank() == 1) {
    EXPECT_EQ(to, from);
  }
}

TEST(nccl_failure, of_a_payload_of_another_size_ends_the_sender) {
  reset(1);
  const auto ended = outcomes(20, [](spar::threads& control) {
    net_type net(control);
    send(net, 10'000, 10'000);
    send(net, 10'000, 8'000);
    while (!net.dead()) net.progress(true); // rank 2
  });
  EXPECT_TRUE(ended[1].has("10000 bytes, but the receiver expects 8000 bytes")) << ended[1].error;
  EXPECT_TRUE(ended[0].has("10000 bytes, but the receiver expects 8000 bytes")) << ended[0].error;
  for (const outcome& o : ended) EXPECT_EQ(o.did.sends + o.did.receives, o.did.groups); // only the first transfer
}

TEST(nccl_failure, of_a_rank_that_does_not_receive_is_a_timeout) {
  reset(1);
  const auto ended = outcomes(20, [](spar::threads& control) {
    net_type net(control);
    net.set_deadline(0.2);
    if (control.rank() == 0) send(net, 10'000, 10'000);
    while (!net.dead()) net.progress(true);
  });
  EXPECT_TRUE(ended[0].has("has waited for 0.2 s for a message to rank 1 to be received")) << ended[0].error;
  EXPECT_EQ(ended[0].did.sends, 0U);
}

TEST(nccl_failure, of_a_transfer_that_does_not_end_is_a_timeout) {
  reset(1);
  cuda_double::stop(true); // the device does nothing
  const auto ended = outcomes(20, [](spar::threads& control) {
    net_type net(control);
    net.set_deadline(1);
    send(net, 10'000, 10'000);
    while (!net.dead()) net.progress(true);
  });
  cuda_double::stop(false);
  EXPECT_EQ(ended[0].did.sends, 1U);
  EXPECT_EQ(ended[1].did.receives, 1U);
  for (const rank_t r : {0, 1})
    EXPECT_TRUE(ended[static_cast<std::size_t>(r)].has("has waited for 1 s for a message")) << r;
}

/// A call is cancelled at each stage of its transfers.
TEST(nccl_failure, of_a_cancelled_call_ends_every_rank) {
  for (int polls = 0; polls < 200; ++polls) {
    reset(static_cast<std::uint64_t>(polls));
    const auto ended = outcomes(20, [&](spar::threads& control) {
      net_type net(control, {.eager_bytes = 0});
      std::vector<float> x(3000, 1);
      auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
      if (control.rank() == 1) {
        for (int i = 0; i < polls; ++i) net.progress(false);
        call.cancel();
      }
      call.wait();
    });
    for (const outcome& o : ended) EXPECT_TRUE(o.error.empty() || o.has("a call was cancelled")) << o.error;
    if (polls == 0) {
      EXPECT_TRUE(ended[0].has("a call was cancelled") && ended[2].has("a call was cancelled"));
    }
  }
}

/// A rank's program throws while calls of other ranks wait for the rank.
TEST(nccl_failure, of_a_program_ends_every_rank) {
  for (int polls = 0; polls < 50; ++polls) {
    reset(static_cast<std::uint64_t>(polls));
    const auto ended = outcomes(20, [&](spar::threads& control) {
      net_type net(control, {.eager_bytes = 0});
      if (control.rank() == 1) {
        for (int i = 0; i < polls; ++i) net.progress(false);
        throw std::runtime_error("no data");
      }
      reduce_twice(net);
    });
    EXPECT_EQ(ended[1].error, "no data");
    for (const std::size_t r : {0U, 2U}) EXPECT_TRUE(ended[r].has("an exception has left the scope")) << ended[r].error;
  }
}

/// A send that is dropped in a communicator that lives on still arrives, and its buffer lives as long as the transfer.
TEST(nccl_failure, does_not_follow_from_a_dropped_send) {
  for (int polls = 0; polls < 50; ++polls) {
    reset(static_cast<std::uint64_t>(polls));
    const auto ended = outcomes(20, [&](spar::threads& control) {
      net_type net(control);
      std::vector<std::byte> bytes(10'000, std::byte{7});
      if (control.rank() == 0) {
        spar::message_pieces out{{}, {bytes}};
        out.head.lengths[0] = bytes.size();
        const auto sending = net.port().send(out, 1, 0);
        for (int i = 0; i < polls; ++i) net.progress(false);
      } else if (control.rank() == 1) {
        spar::message_buffer in(net.memory());
        const auto receiving = net.port().receive(in, 0, 0);
        while (!receiving.await_ready()) net.progress(true);
        receiving.await_resume();
        const auto got = in.piece<std::byte>(0);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin(), bytes.end()));
      }
    });
    for (const outcome& o : ended) EXPECT_EQ(o.error, "");
  }
}

TEST(nccl_failure, of_a_damaged_announcement_ends_every_rank) {
  for (std::uint64_t bit = 0; bit < 8 * sizeof(spar::detail::nccl_announcement); bit += 37) {
    reset(bit);
    const auto ended = outcomes(20, [&](spar::threads& control) {
      const std::uint64_t message = control.rank() == 1 ? 1 : 1000; // rank 1 first receives the id of the communicator
      spar::faulty bad(control, {{.what = spar::fault::kind::corrupt_payload, .message = message, .bit = bit}});
      spar::nccl net(bad, {.eager_bytes = 0});
      std::vector<float> x(3000, 1);
      spar::allreduce(net, std::span(x), spar::ring{});
    });
    for (const outcome& o : ended) EXPECT_TRUE(o.has("the announcement of an NCCL transfer")) << bit << ": " << o.error;
  }
}

TEST(nccl_failure, of_a_damaged_payload_is_found_by_checksums) {
  reset(1);
  const auto ended = outcomes(20, [&](spar::threads& control) {
    net_type net(control);
    net.set_checksums(true);
    const std::uint64_t message = control.rank() == 1 ? 2 : 1000;
    spar::faulty bad(net, {{.what = spar::fault::kind::corrupt_payload, .message = message, .bit = 12345}});
    std::vector<float> x(9000, 1);
    spar::allreduce(bad, std::span(x), spar::ring{});
  });
  for (const outcome& o : ended) EXPECT_TRUE(o.has("the checksum of a message's payload is wrong")) << o.error;
}

} // namespace
