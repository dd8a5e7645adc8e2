// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank sends an encoding that no rank writes, of a codec whose size depends on the values: a receiver finds it
// corrupt, the call ends on all ranks, and no rank gets a wrong sum.
#include "support/collectives.hpp"
#include "support/faults.hpp"
#include "support/ranks.hpp"

#include <spar/storage/packed.hpp>

#ifdef SPAR_TEST_LIBZFP
#include <spar/storage/zfp_field.hpp>
#endif

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

enum class lie { none, one_byte_less, sixteen_bytes_more, impossible_start, nothing, more_than_the_most, lies };

/// A codec on a rank whose encodings are wrong. The ranks do not compare `told`, because it is no option.
template <class Codec>
struct lying : Codec {
  lie told = lie::none;

  template <spar::element T>
    requires spar::block_codec<Codec, T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const {
    return Codec::template encoded_bytes<T>(count) + (told == lie::more_than_the_most ? 16 : 0);
  }
  template <spar::element T>
  std::size_t encode(std::span<const T> values, std::span<std::byte> out, spar::block_position at) const {
    const std::size_t size = Codec::encode(values, out, at);
    switch (told) {
    case lie::one_byte_less:
      return size - 1;
    case lie::sixteen_bytes_more: // there is room, because the values are small
      std::memset(out.data() + size, 0, 16);
      return size + 16;
    case lie::impossible_start:
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

/// One call on 1000 values of T, in which the last rank lies.
template <class T, class Codec, class Compose>
struct hostile_call {
  Codec codec;
  Compose compose;
  lie told;
  std::vector<outcome>* first;
  std::vector<outcome>* second;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    for (std::vector<outcome>* const ends : {first, second}) {
      std::vector<T> x(1000, static_cast<T>(net.rank() + 1));
      lying<Codec> store{codec};
      if (net.rank() + 1 == net.size()) store.told = told;
      try {
        auto pending = spar::start_allreduce(net, std::span(x), compose(net.size(), store));
        co_await pending;
        const auto sum = static_cast<T>(net.size() * (net.size() + 1) / 2);
        (*ends)[rank].how = x == std::vector<T>(1000, sum) ? ending::right : ending::something_else;
      } catch (...) {
        note_error((*ends)[rank]);
      }
    }
  }
};

template <class T, class Codec, class Compose>
void expect_corrupt_of(const char* name, const Codec& codec, const Compose& compose) {
  for (const spar::rank_t ranks : {2, 3, 4, 6}) {
    for (int told = 0; told < static_cast<int>(lie::lies); ++told) {
      for (const mode where : all_modes) {
        SCOPED_TRACE(testing::Message() << name << ", P = " << ranks << ", lie " << told << ", " << where);
        std::vector<outcome> first(static_cast<std::size_t>(ranks)), second = first;
        const auto of_last = static_cast<lie>(told);
        run(where, ranks, hostile_call<T, Codec, Compose>{codec, compose, of_last, &first, &second});
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

template <class Compose>
void expect_corrupt(const char* name, const Compose& compose) {
  expect_corrupt_of<std::int32_t>(name, spar::storage::packed{}, compose);
#ifdef SPAR_TEST_LIBZFP
  expect_corrupt_of<float>(name, spar::storage::zfp_field{.shape = {5, 10, 20}}, compose);
#endif
}

template <class Schedule>
auto over_flat(const Schedule& by) {
  return [by](spar::rank_t, const auto& store) { return spar::compose(store, by); };
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
  const auto compose = [&plans](spar::rank_t ranks, const auto& store) {
    return spar::flexreduce(plans[static_cast<std::size_t>(ranks - 1)], store);
  };
  expect_corrupt("flexreduce", compose);
}

} // namespace
} // namespace spar_test
