// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Accidents of messages in device memory, below spar: a library damages or loses what rank 1 receives.
#pragma once

#include "places.hpp" // the first header that includes kernels
#include "support/collectives.hpp"
#include "support/faults.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace spar_test {

/// What happens to a message.
enum class accident {
  none,
  entry, ///< of entries: the first index becomes larger than all dimensions
  value, ///< of dense values: the first value changes its sign
  code,  ///< of encoded entries: the distance of the lowest index has more bytes than an index
  lost
};
/// The damaged byte of a payload: the highest one of the index or value, or the lowest one of the code, with which it
/// begins.
constexpr std::size_t damaged_byte(accident what) { return what == accident::code ? 0 : 3; }

/// How two calls of a rank ended, of which only the first has an accident, and the values after the first if it
/// succeeded (empty if another process knows them).
struct two_ends {
  outcome first, second;
  std::vector<float> values;
  std::uint64_t received = 0; // messages in the first call
};

/// Makes two calls on values in device memory. `happen()` plans the accident of the first one on rank 1; `received()`
/// counts the messages that the library below has received on this rank.
template <class Net, class Algorithm>
two_ends make_two_calls(Net& net, std::size_t n, const Algorithm& by, const std::function<void()>& happen,
                        const std::function<std::uint64_t()>& received) {
  two_ends its;
  const cuda_double::stream work;
  const auto blocks = net.memory().live();
  {
    const input mine(net.rank(), n);
    const cuda_double::device_array<float> x(mine.dense);
    spar::on_device gpu(net);
    const std::uint64_t before = received();
    if (net.rank() == 1) happen();
    for (outcome* const call : {&its.first, &its.second}) {
      try {
        spar::allreduce(gpu, spar::device_span(x.data(), n, work), by);
        call->how = ending::right;
        if (call == &its.first) its.values = x.read(work);
      } catch (...) {
        note_error(*call);
      }
      if (call == &its.first) its.received = received() - before;
    }
    EXPECT_EQ(net.dead(), its.second.how != ending::right);
  }
  if (its.second.how == ending::right) {
    EXPECT_EQ(net.memory().live(), blocks); // after a failure, messages may lie unread
  }
  return its;
}

/// Checks how the calls ended on all ranks, by what has happened and whether checksums were on. `clean` is without an
/// accident.
inline void judge_accident(accident what, bool checksums, const std::vector<two_ends>& ranks,
                           const std::vector<two_ends>& clean) {
  const bool damaged = what == accident::entry || what == accident::value || what == accident::code;
  const bool noticed = what != accident::none && !(what == accident::value && !checksums);
  int timeouts = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const two_ends& its = ranks[r];
    SCOPED_TRACE(testing::Message() << "rank " << r << ": " << its.first.text << " | " << its.second.text);
    if (!noticed) {
      EXPECT_EQ(its.first.how, ending::right);
      EXPECT_EQ(its.second.how, ending::right);
      if (r == 1 && !its.values.empty()) {
        EXPECT_EQ(its.values == clean[1].values, what == accident::none);
      }
      continue;
    }
    const auto is_after_accident = [&](ending how) {
      timeouts += how == ending::timeout ? 1 : 0;
      return how == ending::peer_failed || (!damaged && how == ending::timeout);
    };
    EXPECT_TRUE(is_after_accident(its.second.how)) << "a rank did not learn of the failure";
    if (r == 1 && damaged) {
      EXPECT_EQ(its.first.how, ending::corrupt);
    } else if (its.first.how == ending::right) { // before the others
      EXPECT_TRUE(its.values == clean[r].values);
      EXPECT_NE(r, 1U);
    } else {
      EXPECT_TRUE(is_after_accident(its.first.how));
    }
  }
  EXPECT_EQ(timeouts > 0, what == accident::lost);
}

} // namespace spar_test
