// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values with gaps: every layout is packed and unpacked as loops over its indices do it; collectives and error feedback
// give the bits and the messages of the contiguous values, and neither read nor write what is in the gaps.
#include "support/ranks.hpp"

#include <spar/strided.hpp>

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

/// A layout of values in an array of `room` values, as a program would write it: as std::mdspan, which C++20 lacks.
struct layout {
  using element_type = float;
  std::vector<std::size_t> extents;
  std::vector<std::ptrdiff_t> strides;
  std::size_t first = 0; // the place of the first value
  std::size_t room = 0;
  float* base = nullptr;

  [[nodiscard]] float* data_handle() const { return base == nullptr ? nullptr : base + first; }
  [[nodiscard]] std::size_t rank() const { return extents.size(); }
  [[nodiscard]] std::size_t extent(std::size_t d) const { return extents[d]; }
  [[nodiscard]] std::ptrdiff_t stride(std::size_t d) const { return strides[d]; }

  [[nodiscard]] layout in(std::vector<float>& values) const {
    layout own = *this;
    own.base = values.data();
    return own;
  }
  /// The places of the values in the order of their indices, the last of which changes fastest.
  [[nodiscard]] std::vector<std::size_t> places() const {
    std::vector<std::size_t> all{first};
    for (std::size_t d = 0; d < rank(); ++d) {
      std::vector<std::size_t> next;
      for (const std::size_t at : all)
        for (std::size_t i = 0; i < extents[d]; ++i)
          next.push_back(
              static_cast<std::size_t>(static_cast<std::ptrdiff_t>(at) + static_cast<std::ptrdiff_t>(i) * strides[d]));
      all = std::move(next);
    }
    return all;
  }
};

/// A layout of the given extents, with dimensions in a random order in memory, random gaps and random directions.
layout random_layout(std::vector<std::size_t> extents, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  layout its{.extents = extents, .strides = std::vector<std::ptrdiff_t>(extents.size())};
  std::vector<std::size_t> order(extents.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  if (seed % 3 > 0) std::shuffle(order.begin(), order.end(), random);
  std::size_t span = 1; // values from the first to the last one
  for (std::size_t d = order.size(); d-- > 0;) {
    const std::size_t extent = extents[order[d]];
    const std::size_t stride = span + (seed % 2 == 0 ? random() % 4 : 0);
    const bool backwards = random() % 3 == 0;
    its.strides[order[d]] = backwards ? -static_cast<std::ptrdiff_t>(stride) : static_cast<std::ptrdiff_t>(stride);
    if (extent == 0) continue;
    if (backwards) its.first += (extent - 1) * stride;
    span += (extent - 1) * stride;
  }
  its.room = span + 3;
  return its;
}

std::vector<layout> layouts() {
  std::vector<layout> all;
  const std::vector<std::vector<std::size_t>> shapes{{},           {0},      {1},       {40},
                                                     {5, 7},       {7, 0},   {1, 1, 9}, {3, 4, 5},
                                                     {2, 1, 3, 2}, {300, 9}, {9, 300},  {2, 2, 2, 2, 2, 2, 2, 2}};
  for (const auto& shape : shapes)
    for (std::uint64_t seed = 0; seed < 6; ++seed) all.push_back(random_layout(shape, seed));
  return all;
}

/// Values of a rank at the places of `where`, and NaN in the gaps.
std::vector<float> memory_of(const layout& where, spar::rank_t rank) {
  std::vector<float> all(where.room, std::numeric_limits<float>::quiet_NaN());
  std::size_t i = 0;
  for (const std::size_t place : where.places()) {
    const auto mixed = (i + 13 * static_cast<std::size_t>(rank)) * 2654435761U % 1000;
    all[place] = 1 / static_cast<float>(3 + mixed); // the bits of a sum depend on the order of additions
    ++i;
  }
  return all;
}
std::vector<float> packed(const layout& where, const std::vector<float>& memory) {
  std::vector<float> values;
  for (const std::size_t place : where.places()) values.push_back(memory[place]);
  return values;
}
std::vector<float> with_values(const layout& where, std::vector<float> memory, const std::vector<float>& values) {
  std::size_t i = 0;
  for (const std::size_t place : where.places()) memory[place] = values[i++];
  return memory;
}
/// Compares bits: NaN in a gap must stay.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(strided, copies_the_values_of_every_layout) {
  std::size_t contiguous = 0;
  for (const layout& where : layouts()) {
    auto memory = memory_of(where, 0);
    const auto before = memory;
    const spar::strided<float> x(where.in(memory));
    ASSERT_EQ(x.rank(), where.rank());
    ASSERT_EQ(x.size(), where.places().size());
    std::vector<float> values(x.size());
    spar::strided<const float>(x).copy_to(values);
    ASSERT_TRUE(same(values, packed(where, memory)));
    for (float& v : values) v += 1;
    x.copy_from(values);
    ASSERT_TRUE(same(memory, with_values(where, before, values)));
    const auto places = where.places();
    bool in_a_row = true;
    for (std::size_t i = 1; i < places.size(); ++i) in_a_row = in_a_row && places[i] == places[i - 1] + 1;
    ASSERT_EQ(x.is_contiguous(), in_a_row);
    contiguous += in_a_row ? 1 : 0;
    EXPECT_THROW(x.copy_from(std::vector<float>(x.size() + 1)), spar::invalid_argument);
  }
  EXPECT_GT(contiguous, 10U);
}

TEST(strided, takes_braces_of_any_integers) {
  std::vector<int> x{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const std::size_t rows = 3;
  const int columns = 2;
  const spar::strided block(x.data() + 1, {rows, columns}, {std::int64_t{4}, 1});
  std::vector<int> values(6);
  block.copy_to(values);
  EXPECT_EQ(values, (std::vector<int>{1, 2, 5, 6, 9, 10}));
  const spar::strided backwards(x.data() + 11, {x.size()}, {-1});
  EXPECT_EQ(backwards.size(), 12U);
}

std::string refusal(float* base, std::initializer_list<spar::detail::any_integer> extents,
                    std::initializer_list<spar::detail::any_integer> strides) {
  try {
    (void)spar::strided<float>(base, extents, strides);
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST(strided, refuses_what_is_not_a_layout) {
  std::array<float, 100> x{};
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refusal(x.data(), {2, 3}, {3}), "2 extents and 1 strides");
  has(refusal(x.data(), {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}), "more than 8 dimensions");
  has(refusal(x.data(), {2, -3}, {3, 1}), "dimension 1 of a strided is -3");
  has(refusal(nullptr, {2, 3}, {3, 1}), "a strided of 6 values begins at a null pointer");
  has(refusal(x.data(), {2, 3}, {2, 1}), "stride of dimension 0 of a strided is 2, but the dimensions with smaller "
                                         "strides span 3 values");
  has(refusal(x.data(), {3, 2}, {1, -2}), "stride of dimension 1 of a strided is -2");
  has(refusal(x.data(), {2, 3}, {3, 2}), "may be at one address"); // not so, but the check is a sufficient condition
  has(refusal(x.data(), {2}, {0}), "expected a stride of at least 1");
  has(refusal(x.data(), {4, 4}, {1, 1}), "may be at one address");
  constexpr std::int64_t large = std::int64_t{1} << 40;
  has(refusal(x.data(), {large, large}, {large, 1}), "do not fit into memory");
  has(refusal(x.data(), {2, 2}, {std::numeric_limits<std::int64_t>::max(), 1}), "do not fit into memory");
  has(refusal(x.data(), {2}, {std::numeric_limits<std::int64_t>::min()}), "do not fit into memory");
  EXPECT_THROW((void)spar::strided<float>(x.data(), {UINT64_MAX}, {1}), spar::invalid_argument);
  // These are layouts: no values, one value, and strides that play no part.
  EXPECT_EQ(refusal(nullptr, {0, 7}, {0, 0}), "");
  EXPECT_EQ(refusal(x.data(), {0, large, large}, {1, 1, 1}), "");
  EXPECT_EQ(refusal(x.data(), {}, {}), "");
  EXPECT_EQ(refusal(x.data(), {true, char{3}, char32_t{2}}, {char8_t{50}, 5, 1}), "");
  EXPECT_EQ(refusal(x.data(), {1, 5, 1}, {0, 2, std::numeric_limits<std::int64_t>::min()}), "");
}

// --- calls ---

/// Each rank reduces values without gaps, and then the same values with gaps. With `mixed`, ranks with even numbers
/// have no gaps in the second call either, so that both kinds of ranks meet in one call.
template <class Algorithm, class Op>
struct sums {
  const layout* where;
  Algorithm algorithm;
  bool mixed;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto memory = memory_of(*where, net.rank());
    const auto before = memory;
    auto values = packed(*where, memory);
    auto again = values;
    auto call = spar::start_allreduce(net, values, algorithm, Op{});
    co_await std::move(call);
    if (mixed && net.rank() % 2 == 0) {
      auto second = spar::start_allreduce(net, again, algorithm, Op{});
      co_await std::move(second);
      EXPECT_TRUE(same(again, values));
    } else {
      auto second = spar::start_allreduce(net, spar::strided<float>(where->in(memory)), algorithm, Op{});
      co_await std::move(second);
      EXPECT_TRUE(same(memory, with_values(*where, before, values)));
      EXPECT_EQ(second.statistics().messages_sent, call.statistics().messages_sent);
      EXPECT_EQ(second.statistics().bytes_sent, call.statistics().bytes_sent);
    }
  }
};

TEST(strided, sums_have_the_bits_and_messages_of_contiguous_values) {
  const auto all = layouts();
  std::size_t position = 0;
  for (const layout& where : all) {
    for (std::size_t p = 0; p < all_ranks.size(); ++p) {
      for (const mode transport : all_modes) {
        if (!runs_case(16, position++, p, position_of(transport))) continue;
        SCOPED_TRACE(testing::Message() << transport << ", P = " << all_ranks[p] << ", " << where.places().size());
        const bool mixed = position % 3 == 0;
        run(transport, all_ranks[p], sums<spar::ring, spar::average>{&where, {}, mixed});
        // Would select NaN if the selector saw a gap.
        const spar::selector::exact_topk select{.k = where.places().size() / 4};
        const auto top_k = spar::compose(select, spar::ssar_split{});
        run(transport, all_ranks[p], sums<decltype(top_k), spar::sum>{&where, top_k, mixed});
        if (HasFailure()) return;
      }
    }
  }
}

TEST(strided, takes_part_in_every_collective_of_dense_values) {
  const layout where = random_layout({6, 10}, 4);
  const std::size_t n = where.places().size();
  spar::thread_group group(4);
  group.run([&](spar::threads& net) {
    const auto first = memory_of(where, net.rank());
    auto memory = first;
    std::vector<float> values;
    const auto restart = [&] { memory = first, values = packed(where, first); };
    const auto gaps = [&] { return spar::strided<float>(where.in(memory)); };
    const auto check = [&](std::size_t begin, std::size_t end) {
      const auto got = packed(where, memory);
      for (std::size_t i = begin; i < end; ++i) EXPECT_EQ(got[i], values[i]) << i;
      EXPECT_TRUE(same(with_values(where, memory, packed(where, first)), first)) << "a gap has changed";
    };
    restart();
    const std::array<std::uint64_t, 5> bounds{0, 7, 7, 50, n};
    const spar::bounded_ownership owners{bounds};
    spar::reduce_scatter(net, values, owners);
    spar::reduce_scatter(net, gaps(), owners);
    check(owners[net.rank()].begin, owners[net.rank()].end);
    restart();
    spar::allgather(net, values);
    spar::allgather(net, gaps());
    check(0, n);
    restart();
    spar::reduce(net, values, 2);
    spar::reduce(net, spar::named{"reduce"}, gaps(), 2);
    if (net.rank() == 2) check(0, n);
    restart();
    spar::broadcast(net, values, 3);
    spar::start_broadcast(net, gaps(), 3).wait();
    check(0, n);

    // Out of place, from and to values with and without gaps.
    restart();
    std::vector<float> sum(n), second(n);
    auto other = first;
    spar::allreduce(net, values, sum, spar::ring{});
    spar::allreduce(net, gaps(), second, spar::ring{});
    EXPECT_TRUE(same(second, sum));
    EXPECT_TRUE(same(memory, first));
    spar::allreduce(net, gaps(), spar::strided<float>(where.in(other)), spar::ring{});
    EXPECT_TRUE(same(other, with_values(where, first, sum)));
    spar::allreduce(net, values, gaps(), spar::ring{});
    EXPECT_TRUE(same(memory, with_values(where, first, sum)));
    std::vector<float> shorter(n - 1);
    EXPECT_THROW(spar::allreduce(net, shorter, gaps(), spar::ring{}), spar::invalid_argument);
  });
}

TEST(strided, error_feedback_has_a_residual_without_gaps) {
  const layout where = random_layout({6, 10}, 2);
  const std::size_t n = where.places().size();
  spar::thread_group group(3);
  group.run([&](spar::threads& net) {
    const auto top_k = spar::compose(spar::selector::exact_topk{.k = 7}, spar::ssar_split{});
    auto plain = spar::with_error_feedback<float>(top_k), reduce = spar::with_error_feedback<float>(top_k);
    for (int step = 0; step < 4; ++step) {
      auto memory = memory_of(where, net.rank() + step);
      const auto before = memory;
      auto values = packed(where, memory);
      plain(net, std::span(values));
      const spar::strided<float> gaps(where.in(memory));
      if (step == 1)
        reduce.start(net, gaps).wait();
      else if (step == 2)
        reduce.start(net, spar::named{"gaps"}, gaps).wait();
      else
        reduce(net, gaps);
      EXPECT_TRUE(same(memory, with_values(where, before, values)));
      ASSERT_EQ(reduce.residual().size(), n);
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(reduce.residual()[i], plain.residual()[i]);
    }
    // NaN in a gap is no error; NaN among the values is, if the option says so.
    auto strict = spar::with_error_feedback<float>(top_k, {.reject_nan = true});
    auto memory = memory_of(where, 0);
    strict(net, spar::strided<float>(where.in(memory)));
    memory[where.places()[5]] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THROW(strict(net, spar::strided<float>(where.in(memory))), spar::invalid_argument);
    const layout longer = random_layout({61}, 2);
    auto other = memory_of(longer, 0);
    EXPECT_THROW(strict(net, spar::strided<float>(longer.in(other))), spar::invalid_argument);
  });
}

TEST(strided, ranks_with_different_numbers_of_values_disagree) {
  spar::thread_group group(2);
  EXPECT_THROW(group.run([&](spar::threads& net) {
    std::vector<float> memory(40);
    spar::allreduce(net, spar::strided(memory.data(), {10 + net.rank()}, {2}), spar::ring{});
  }),
               spar::mismatch);
}

} // namespace
} // namespace spar_test
