// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank sends an encoding that no rank writes, of a codec whose size depends on the values: a receiver finds it
// corrupt, the call ends on all ranks, and no rank gets a wrong sum.
#include "support/collectives.hpp"
#include "support/faults.hpp"
#include "support/ranks.hpp"

#include <spar/storage/packed.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

enum class lie { none, one_byte_less, sixteen_bytes_more, impossible_width, nothing, more_than_the_most, lies };

/// `packed` on a rank whose encodings are wrong. The ranks do not compare `told`, because it is no option.
struct lying : spar::storage::packed {
  lie told = lie::none;

  template <spar::element T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const noexcept {
    return packed::encoded_bytes<T>(count) + (told == lie::more_than_the_most ? 16 : 0);
  }
  template <spar::element T>
  std::size_t encode(std::span<const T> values, std::span<std::byte> out, spar::block_position at) const {
    const std::size_t size = packed::encode(values, out, at);
    switch (told) {
    case lie::one_byte_less:
      return size - 1;
    case lie::sixteen_bytes_more: // there is room, because the values are small
      std::memset(out.data() + size, 0, 16);
      return size + 16;
    case lie::impossible_width:
      out[0] = std::byte{255};
      return size;
    case lie::nothing:
      return 0;
    case lie::more_than_the_most:
      std::memset(out.data() + size, 0, out.size() - size);
      return out.size();
    default:
      return size;
    }
  }
};

/// One call, in which the last rank lies.
template <class Compose>
struct hostile_call {
  Compose compose;
  lie told;
  std::vector<outcome>* first;
  std::vector<outcome>* second;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    for (std::vector<outcome>* const ends : {first, second}) {
      std::vector<std::int32_t> x(1000, net.rank() + 1);
      lying store;
      if (net.rank() + 1 == net.size()) store.told = told;
      try {
        auto pending = spar::start_allreduce(net, std::span(x), compose(net.size(), store));
        co_await pending;
        const std::int32_t sum = net.size() * (net.size() + 1) / 2;
        (*ends)[rank].how = x == std::vector<std::int32_t>(1000, sum) ? ending::right : ending::something_else;
      } catch (...) {
        note_error((*ends)[rank]);
      }
    }
  }
};

template <class Compose>
void expect_corrupt(const char* name, const Compose& compose) {
  for (const spar::rank_t ranks : {2, 3, 4, 6}) {
    for (int told = 0; told < static_cast<int>(lie::lies); ++told) {
      for (const mode where : all_modes) {
        SCOPED_TRACE(testing::Message() << name << ", P = " << ranks << ", lie " << told << ", " << where);
        std::vector<outcome> first(static_cast<std::size_t>(ranks)), second = first;
        run(where, ranks, hostile_call<Compose>{compose, static_cast<lie>(told), &first, &second});
        bool corrupt = false;
        for (std::size_t r = 0; r < first.size(); ++r) {
          if (told == 0) { // the test would find nothing if honest calls failed
            EXPECT_EQ(first[r].how, ending::right) << first[r].text;
            EXPECT_EQ(second[r].how, ending::right) << second[r].text;
            continue;
          }
          corrupt = corrupt || first[r].how == ending::corrupt;
          const ending how = first[r].how;
          EXPECT_TRUE(how == ending::right || how == ending::corrupt || how == ending::peer_failed) << first[r].text;
          EXPECT_EQ(second[r].how, ending::peer_failed) << second[r].text;
        }
        EXPECT_EQ(corrupt, told != 0);
      }
    }
  }
}

template <class Schedule>
auto over_flat(const Schedule& by) {
  return [by](spar::rank_t, const lying& store) { return spar::compose(store, by); };
}

TEST(hostile_sizes, in_a_ring) { expect_corrupt("ring", over_flat(spar::ring{.piece = 300})); }
TEST(hostile_sizes, in_recursive_doubling) {
  expect_corrupt("recursive_doubling", over_flat(spar::recursive_doubling{.piece = 300}));
}
TEST(hostile_sizes, in_rabenseifners_algorithm) { expect_corrupt("rabenseifner", over_flat(spar::rabenseifner{})); }
TEST(hostile_sizes, in_a_split_allgather) { expect_corrupt("dsar_split", over_flat(spar::dsar_split{})); }
TEST(hostile_sizes, in_two_shots) { expect_corrupt("two_shot", over_flat(spar::two_shot{.piece = 300})); }
TEST(hostile_sizes, in_one_shot) { expect_corrupt("one_shot", over_flat(spar::one_shot{.piece = 300})); }
TEST(hostile_sizes, in_flexreduce) {
  std::deque<spar::tree_plans> plans; // by the number of ranks
  for (spar::rank_t ranks = 1; ranks <= 6; ++ranks) plans.emplace_back(two_hosts(ranks));
  expect_corrupt("flexreduce", [&plans](spar::rank_t ranks, const lying& store) {
    return spar::flexreduce(plans[static_cast<std::size_t>(ranks - 1)], store);
  });
}

} // namespace
} // namespace spar_test
