// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How calls end after a deadline, an abort or a cancellation, wherever the values of the calls are.
#pragma once

#include "support/values.hpp"

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace spar_test {

inline constexpr std::size_t sizes[] = {10, 100'000};

/// Returns the text of what `call` throws, or an empty text. Whatever is thrown must be of type `Expected` or
/// peer_failed.
template <class Expected, class Call>
std::string text_of(Call call) {
  try {
    call();
  } catch (const std::exception& e) {
    EXPECT_TRUE(dynamic_cast<const Expected*>(&e) != nullptr || dynamic_cast<const spar::peer_failed*>(&e) != nullptr)
        << e.what();
    return e.what();
  }
  return {};
}

/// Calls `program(net)` on the ranks of a new group: of threads, unless the place has other ranks, perhaps fewer.
template <class Place, class Program>
void in_group(spar::rank_t ranks, bool synchronous, const Program& program) {
  if constexpr (requires { Place::in_group(ranks, synchronous, program); }) {
    Place::in_group(ranks, synchronous, program);
  } else {
    spar::thread_group group{ranks, {.synchronous = synchronous}};
    group.run(program);
  }
}
/// Calls `body(net, n)` on the ranks of four groups: for small and large values, and both kinds of sends.
template <class Place, class Body>
void in_each_group(spar::rank_t ranks, const Body& body) {
  for (const std::size_t n : sizes) {
    for (const bool synchronous : {false, true}) {
      SCOPED_TRACE(testing::Message() << n << " values" << (synchronous ? ", synchronous" : ""));
      in_group<Place>(ranks, synchronous, [&](auto& below) { Place::on(below, [&](auto& net) { body(net, n); }); });
    }
  }
}
/// Makes no call, but answers questions, until another rank has given up.
template <class Net>
void stay_silent(Net& net) {
  while (!net.dead()) {
    net.progress(false);
    std::this_thread::yield();
  }
}
/// An allreduce of n ones. Returns the result.
template <class Net, class Algorithm>
std::vector<float> reduce_ones(Net& net, std::size_t n, const Algorithm& algorithm) {
  call_values<Net> x(net, std::vector<float>(n, 1.0F));
  spar::allreduce(net, x.span(), algorithm);
  return x.read();
}

template <class Place>
void a_silent_rank_is_named() {
  in_each_group<Place>(4, [](auto& net, std::size_t n) {
    if (net.rank() == 2) return stay_silent(net);
    net.set_deadline(0.1);
    const auto call = [&] { (void)reduce_ones(net, n, spar::recursive_doubling{}); };
    const std::string text = text_of<spar::timeout>(call);
    EXPECT_NE(text.find("0.1 s"), std::string::npos) << text;
    // In device memory, the construction of the object for the calls makes calls as well.
    const std::string calls = std::is_same_v<Place, in_host_memory> ? "0)" : "";
    EXPECT_NE(text.find("rank 2 is in no call (calls without a name: " + calls), std::string::npos) << text;
    EXPECT_TRUE(net.dead());
    EXPECT_NE(text_of<spar::peer_failed>(call).find("communicator is dead"), std::string::npos);
  });
}

template <class Place>
void the_deadline_is_not_over_for_a_rank_that_is_only_late() {
  in_each_group<Place>(3, [](auto& net, std::size_t n) {
    net.set_deadline(20);
    if (net.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto sum = reduce_ones(net, n, spar::recursive_doubling{});
    EXPECT_EQ(sum, std::vector<float>(n, static_cast<float>(net.size())));
  });
}

template <class Place>
void an_abort_reaches_those_who_wait_and_those_who_call_later() {
  const std::string reason = "the disk is full" + std::string(200, '!');
  in_each_group<Place>(5, [&](auto& net, std::size_t n) {
    const auto call = [&] { (void)reduce_ones(net, n, spar::recursive_doubling{}); };
    const spar::rank_t failing = net.size() - 2;
    if (net.rank() == failing) abort(net, reason); // of the namespace of the rank
    const std::string text = text_of<spar::peer_failed>(call);
    EXPECT_NE(text.find("rank " + std::to_string(failing)), std::string::npos) << text;
    EXPECT_NE(text.find(reason), std::string::npos) << text;
    EXPECT_EQ(text_of<spar::peer_failed>(call), text);
  });
}

/// Rank 1 cancels a call, which cannot end before rank 2 joins, and drops the handle or waits.
template <class Place>
void a_cancelled_call_ends_on_all_ranks() {
  for (const std::size_t n : sizes) {
    for (const bool synchronous : {false, true}) {
      std::atomic<bool> cancelled = false;
      in_group<Place>(3, synchronous, [&](auto& below) {
        Place::on(below, [&](auto& net) {
          while (net.rank() == 2 && !cancelled && !net.dead()) {
            if constexpr (std::is_same_v<decltype(below), spar::threads&>)
              std::this_thread::yield();
            else
              net.progress(false); // a rank of another process learns of the end by a message
          }
          bool waits = true;
          const std::string text = text_of<spar::peer_failed>([&] {
            call_values<std::remove_reference_t<decltype(net)>> x(net, std::vector<float>(n, 1.0F));
            auto call = spar::start_allreduce(net, x.span(), spar::ring{});
            if (net.rank() == 1) {
              call.cancel();
              cancelled = true;
              waits = n != sizes[0];
            }
            if (waits) call.wait();
          });
          if (waits) {
            EXPECT_NE(text.find("a call was cancelled"), std::string::npos) << text;
          }
        });
      });
    }
  }
}

/// The values of failed calls are freed at once, while other calls, and peers, still use theirs.
template <class Place>
void values_may_be_freed_once_their_call_has_failed() {
  for (const unsigned polls : {0U, 1U, 4U}) {
    in_each_group<Place>(3, [&](auto& net, std::size_t n) {
      using values = call_values<std::remove_reference_t<decltype(net)>>;
      const auto ends = [](auto& call) { (void)text_of<spar::peer_failed>([&] { call.wait(); }); };
      values x(net, std::vector<float>(n, 1.0F));
      {
        values y(net, std::vector<float>(2 * n, 2.0F));
        const auto text = text_of<spar::peer_failed>([&] {
          auto first = spar::start_allreduce(net, x.span(), spar::ring{});
          auto second = spar::start_allreduce(net, y.span(), spar::recursive_doubling{});
          for (unsigned poll = 0; poll < polls; ++poll) (void)first.done();
          if (net.rank() == 1) spar::abort(net, "enough");
          ends(second);
          ends(first);
        });
        (void)text; // the calls may have ended before
      }
      (void)text_of<spar::peer_failed>([&] { (void)reduce_ones(net, n, spar::recursive_doubling{}); });
    });
  }
}

} // namespace spar_test
