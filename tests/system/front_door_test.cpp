// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forms in which users call: containers, spans and streams, an algorithm, an operation, a name, blocking or not,
// with the same order of arguments for every collective; and a network model that the user pins.
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr spar::rank_t ranks = 4;

TEST(front_door, dense_values_come_in_any_contiguous_container) {
  spar::thread_group group(ranks);
  group.run([](spar::threads& net) {
    std::array<float, 3> array{1, 2, 3};
    std::vector<float> vector{1, 2, 3};
    std::vector<float> out(3);
    spar::allreduce(net, array);
    spar::allreduce(net, vector, out);
    spar::allreduce(net, std::span(vector), spar::ring{}, spar::average{});
    EXPECT_EQ(array, (std::array<float, 3>{4, 8, 12}));
    EXPECT_EQ(out, (std::vector<float>{4, 8, 12}));
    EXPECT_EQ(vector, (std::vector<float>{1, 2, 3}));
  });
}

/// Sums of a rank's values in each form of a dense call and of a stream, with the indices `Index`.
template <class T, class Index>
void expect_sums(spar::threads& net) {
  std::vector<T> x(9, 3), sum(9);
  spar::allreduce(net, x, sum);
  spar::allreduce(net, x);
  EXPECT_EQ(x, std::vector<T>(9, 3 * ranks));
  EXPECT_EQ(sum, x);
  spar::broadcast(net, x, 2);
  const std::vector<Index> indices{Index(net.rank()), 8};
  const std::vector<T> entries{1, 2};
  std::vector<T> dense(9);
  spar::allreduce(net, spar::sparse_view(9, indices, entries)).to_dense(dense, spar::sum{});
  EXPECT_EQ(dense, (std::vector<T>{1, 1, 1, 1, 0, 0, 0, 0, 2 * ranks}));
}

TEST(front_door, integers_of_the_same_size_are_the_same_on_the_wire) {
  spar::thread_group group(ranks);
  group.run([](spar::threads& net) {
    if (net.rank() % 2 == 0) {
      expect_sums<unsigned long long, unsigned long>(net);
#if SPAR_ALL_CASES
      expect_sums<long long, unsigned long long>(net);
#endif
    } else {
      expect_sums<unsigned long, unsigned long long>(net);
#if SPAR_ALL_CASES
      expect_sums<long, unsigned long>(net);
#endif
    }
  });
}

TEST(front_door, the_pieces_average_too) {
  spar::thread_group group(ranks);
  group.run([](spar::threads& net) {
    std::vector<float> x(8, static_cast<float>(net.rank()));
    spar::reduce(net, std::span(x), 2, spar::binomial_reduce{}, spar::average{});
    if (net.rank() == 2) {
      EXPECT_EQ(x, std::vector<float>(8, 1.5F));
    }
    std::vector<float> y(8, static_cast<float>(net.rank()));
    spar::reduce_scatter(net, std::span(y), spar::ring_reduce_scatter{}, spar::average{});
    EXPECT_EQ(y[static_cast<std::size_t>(2 * net.rank())], 1.5F);

    const std::vector<std::uint32_t> indices{0, 2, 4, 6};
    const std::vector<float> values(4, static_cast<float>(net.rank()));
    const auto mine = spar::sparse_view(8, indices, values);
    const auto block = spar::reduce_scatter(net, mine, spar::split_reduce_scatter{}, spar::average{});
    ASSERT_EQ(block.count(), 1U);
    EXPECT_EQ(block.values()[0], 1.5F);
    const auto sum = spar::reduce(net, mine, 1, spar::binomial_reduce{}, spar::average{});
    std::vector<float> dense(8, -1);
    sum.to_dense(dense, spar::sum{});
    EXPECT_EQ(std::accumulate(dense.begin(), dense.end(), 0.0F), net.rank() == 1 ? 6.0F : 0.0F);
  });
}

TEST(front_door, a_result_goes_on_as_an_argument) {
  spar::thread_group group(ranks);
  group.run([](spar::threads& net) {
    const std::vector<std::uint32_t> indices{static_cast<std::uint32_t>(net.rank())};
    const std::vector<float> values{1};
    const auto sum = spar::allreduce(net, spar::sparse_view(100, indices, values));
    const auto again = spar::allreduce(net, sum);
    const auto everywhere = spar::broadcast(net, again, 3);
    std::vector<float> dense(100);
    everywhere.to_dense(dense, spar::sum{});
    EXPECT_EQ(dense[0], 4.0F);
    EXPECT_EQ(std::accumulate(dense.begin(), dense.end(), 0.0F), 16.0F);
  });
}

template <class Stream>
concept reads_without_an_operation = requires(const Stream& s, std::span<float> x) { s.to_dense(x); };
static_assert(!reads_without_an_operation<spar::sparse_stream<float>>);
static_assert(!reads_without_an_operation<spar::stream_view<float>>);

/// Reduces streams of `count` entries, and returns the value at an index without an entry: of the result, of its view,
/// and of its copy on another rank. Sets `dense` to whether the result is dense.
template <class Op>
std::array<float, 3> absent_values(spar::threads& net, std::uint32_t count, Op op, bool& dense) {
  std::vector<std::uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0U);
  const std::vector<float> entries(count, 5);
  const auto result = spar::allreduce(net, spar::sparse_view(100, indices, entries), spar::sparcml{}, op);
  const auto copy = spar::broadcast(net, result, 1);
  std::array<std::vector<float>, 3> x;
  x.fill(std::vector<float>(100, -1));
  result.to_dense(x[0], op);
  result.view().to_dense(x[1], op);
  copy.to_dense(x[2], op);
  dense = result.is_dense();
  return {x[0][99], x[1][99], x[2][99]};
}

TEST(front_door, an_absent_entry_reads_as_the_neutral_element_of_sparse_and_dense_results) {
  spar::thread_group group(ranks);
  group.run([](spar::threads& net) {
    const auto check = [&](auto op) {
      const float neutral = op.template neutral<float>();
      bool dense = true;
      EXPECT_EQ(absent_values(net, 4, op, dense), (std::array{neutral, neutral, neutral})) << op.name;
      EXPECT_FALSE(dense);
      EXPECT_EQ(absent_values(net, 60, op, dense), (std::array{neutral, neutral, neutral})) << op.name;
      EXPECT_TRUE(dense);
    };
    check(spar::sum{}), check(spar::average{}), check(spar::product{}), check(spar::minimum{}), check(spar::maximum{});
  });
}

// --- every collective in every form ---

constexpr std::size_t n = 8;
using values = std::vector<float>;

/// `factor` times 1, 2, 3, ...; with `step` 2, every other value is zero.
values multiples(float factor, std::size_t step = 1) {
  values x(n);
  for (std::size_t i = 0; i < n; i += step) x[i] = factor * static_cast<float>(i + 1);
  return x;
}

/// A rank's contribution: rank + 1 times 1, 2, 3, ... as a vector, and every other one of these values as a stream.
struct contribution {
  explicit contribution(spar::rank_t rank) : x(multiples(static_cast<float>(rank + 1))) {
    for (std::uint32_t i = 0; i < n; i += 2) indices.push_back(i), entries.push_back(x[i]);
  }
  [[nodiscard]] auto view() const { return spar::sparse_view(n, indices, entries); }

  values x;
  std::vector<std::uint32_t> indices;
  values entries;
};

values dense_of(const auto& stream) {
  values x(n);
  stream.to_dense(x, spar::sum{});
  return x;
}

/// A block of x, that of a rank unless given, and zeros elsewhere.
values block_of(const values& x, spar::index_range own) {
  values block(n);
  for (std::size_t i = own.begin; i < own.end; ++i) block[i] = x[i];
  return block;
}
values block_of(const values& x, spar::rank_t rank) { return block_of(x, spar::uniform_ownership{n, ranks}[rank]); }

/// Runs a test with (net, call) on each rank. `call(values, arguments...)` blocks in some runs, and starts and waits in
/// others, each with a name and without.
template <class Blocking, class Start, class Test>
void in_each_form(const Blocking& blocking, const Start& start, const Test& test) {
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    const spar::named name{"of this name"};
    test(net, [&](auto&&... args) { return blocking(net, std::forward<decltype(args)>(args)...); });
    test(net, [&](auto&&... args) { return start(net, std::forward<decltype(args)>(args)...).wait(); });
    test(net, [&](auto&&... args) { return blocking(net, name, std::forward<decltype(args)>(args)...); });
    test(net, [&](auto&&... args) { return start(net, name, std::forward<decltype(args)>(args)...).wait(); });
  });
}

TEST(front_door, allreduce_in_every_form) {
  const auto blocking = [](auto&&... args) { return spar::allreduce(std::forward<decltype(args)>(args)...); };
  const auto start = [](auto&&... args) { return spar::start_allreduce(std::forward<decltype(args)>(args)...); };
  in_each_form(blocking, start, [](spar::threads& net, const auto& call) {
    const contribution mine(net.rank());
    values x = mine.x;
    call(x);
    EXPECT_EQ(x, multiples(10));
    x = mine.x;
    call(std::span(x), spar::ring{});
    EXPECT_EQ(x, multiples(10));
    x = mine.x;
    call(x, spar::compose(spar::rabenseifner{}), spar::maximum{});
    EXPECT_EQ(x, multiples(4));
    x = mine.x;
    call(x, spar::selector::nonzeros{}, spar::average{});
    EXPECT_EQ(x, multiples(2.5));
    x = mine.x;
    values out(n);
    call(x, out, spar::recursive_doubling{}, spar::average{});
    EXPECT_EQ(out, multiples(2.5));
    EXPECT_EQ(x, mine.x);

    const auto view = mine.view();
    const auto owned = spar::sparse_stream<float>::copy(net.memory(), view);
    EXPECT_EQ(dense_of(call(view)), multiples(10, 2));
    EXPECT_EQ(dense_of(call(owned, spar::ring{})), multiples(10, 2));
    EXPECT_EQ(dense_of(call(owned, spar::sparcml{}, spar::average{})), multiples(2.5, 2));
    EXPECT_EQ(dense_of(call(view, spar::ssar_split{}, spar::maximum{})), multiples(4, 2));
  });
}

TEST(front_door, reduce_scatter_in_every_form) {
  const auto blocking = [](auto&&... args) { return spar::reduce_scatter(std::forward<decltype(args)>(args)...); };
  const auto start = [](auto&&... args) { return spar::start_reduce_scatter(std::forward<decltype(args)>(args)...); };
  in_each_form(blocking, start, [](spar::threads& net, const auto& call) {
    const contribution mine(net.rank());
    const auto own = [&](const values& x) { return block_of(x, net.rank()); };
    values x = mine.x;
    call(x);
    EXPECT_EQ(own(x), own(multiples(10)));
    x = mine.x;
    call(std::span(x), spar::ring_reduce_scatter{});
    EXPECT_EQ(own(x), own(multiples(10)));
    x = mine.x;
    call(x, spar::ring_reduce_scatter{}, spar::average{});
    EXPECT_EQ(own(x), own(multiples(2.5)));

    const auto view = mine.view();
    const auto owned = spar::sparse_stream<float>::copy(net.memory(), view);
    EXPECT_EQ(dense_of(call(view)), own(multiples(10, 2)));
    EXPECT_EQ(dense_of(call(owned, spar::split_reduce_scatter{})), own(multiples(10, 2)));
    EXPECT_EQ(dense_of(call(owned, spar::split_reduce_scatter{}, spar::average{})), own(multiples(2.5, 2)));
    EXPECT_EQ(dense_of(call(view, spar::split_reduce_scatter{}, spar::maximum{})), own(multiples(4, 2)));

    const std::array<std::uint64_t, ranks + 1> bounds{0, 5, 5, 6, n};
    const spar::bounded_ownership owners{bounds};
    const auto given = [&](const values& all) { return block_of(all, owners[net.rank()]); };
    x = mine.x;
    call(x, owners);
    EXPECT_EQ(given(x), given(multiples(10)));
    x = mine.x;
    call(std::span(x), owners, spar::ring_reduce_scatter{}, spar::average{});
    EXPECT_EQ(given(x), given(multiples(2.5)));
    EXPECT_EQ(dense_of(call(view, owners)), given(multiples(10, 2)));
    EXPECT_EQ(dense_of(call(owned, owners, spar::split_reduce_scatter{})), given(multiples(10, 2)));
    EXPECT_EQ(dense_of(call(owned, owners, spar::ring_reduce_scatter{}, spar::average{})), given(multiples(2.5, 2)));
  });
}

TEST(front_door, allgather_in_every_form) {
  const auto blocking = [](auto&&... args) { return spar::allgather(std::forward<decltype(args)>(args)...); };
  const auto start = [](auto&&... args) { return spar::start_allgather(std::forward<decltype(args)>(args)...); };
  in_each_form(blocking, start, [](spar::threads& net, const auto& call) {
    values x = block_of(multiples(1), net.rank());
    call(x);
    EXPECT_EQ(x, multiples(1));
    x = block_of(multiples(1), net.rank());
    call(std::span(x), spar::ring_allgather{});
    EXPECT_EQ(x, multiples(1));

    const contribution mine(net.rank());
    const auto view = mine.view();
    const auto owned = spar::sparse_stream<float>::copy(net.memory(), view);
    const auto check = [](const spar::gathered<float>& all) {
      ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
      for (std::size_t r = 0; r < all.size(); ++r) {
        EXPECT_EQ(dense_of(all.part(r)), multiples(static_cast<float>(r + 1), 2));
      }
    };
    check(call(view));
    check(call(owned));
    check(call(owned, spar::bruck_allgather{}));
  });
}

TEST(front_door, reduce_in_every_form) {
  const auto blocking = [](auto&&... args) { return spar::reduce(std::forward<decltype(args)>(args)...); };
  const auto start = [](auto&&... args) { return spar::start_reduce(std::forward<decltype(args)>(args)...); };
  in_each_form(blocking, start, [](spar::threads& net, const auto& call) {
    const contribution mine(net.rank());
    for (spar::rank_t root = 0; root < ranks; ++root) {
      const bool here = net.rank() == root;
      const auto expect = [&](const values& x, float factor) {
        if (here) {
          EXPECT_EQ(x, multiples(factor));
        }
      };
      values x = mine.x;
      call(x, root);
      expect(x, 10);
      x = mine.x;
      call(std::span(x), root, spar::binomial_reduce{});
      expect(x, 10);
      x = mine.x;
      call(x, root, spar::binomial_reduce{}, spar::average{});
      expect(x, 2.5);

      const auto view = mine.view();
      const auto owned = spar::sparse_stream<float>::copy(net.memory(), view);
      EXPECT_EQ(dense_of(call(view, root)), here ? multiples(10, 2) : values(n));
      EXPECT_EQ(dense_of(call(owned, root, spar::binomial_reduce{})), here ? multiples(10, 2) : values(n));
      const auto mean = call(owned, root, spar::binomial_reduce{}, spar::average{});
      EXPECT_EQ(dense_of(mean), here ? multiples(2.5, 2) : values(n));
    }
  });
}

TEST(front_door, broadcast_in_every_form) {
  const auto blocking = [](auto&&... args) { return spar::broadcast(std::forward<decltype(args)>(args)...); };
  const auto start = [](auto&&... args) { return spar::start_broadcast(std::forward<decltype(args)>(args)...); };
  in_each_form(blocking, start, [](spar::threads& net, const auto& call) {
    const contribution mine(net.rank());
    for (spar::rank_t root = 0; root < ranks; ++root) {
      const auto factor = static_cast<float>(root + 1);
      values x = mine.x;
      call(x, root);
      EXPECT_EQ(x, multiples(factor));
      x = mine.x;
      call(std::span(x), root, spar::binomial_broadcast{});
      EXPECT_EQ(x, multiples(factor));

      const auto view = mine.view();
      const auto owned = spar::sparse_stream<float>::copy(net.memory(), view);
      EXPECT_EQ(dense_of(call(view, root)), multiples(factor, 2));
      EXPECT_EQ(dense_of(call(owned, root, spar::binomial_broadcast{})), multiples(factor, 2));
    }
  });
}

// --- a pinned network model ---

// With these models, streams use recursive doubling, DSAR and SSAR; dense values use recursive doubling, the ring and
// Rabenseifner's algorithm; and compression pays off or not.
constexpr spar::network_model models[] = {
    {.alpha = 1, .beta = 1e-12, .gamma_sparse = 0, .gamma_dense = 0},
    {.alpha = 5e-7, .beta = 1e-9, .gamma_sparse = 1e-6, .gamma_dense = 0},
    {.alpha = 1e-3, .beta = 1e-9, .gamma_sparse = 1e-5, .gamma_dense = 1e-5},
};

TEST(front_door, the_models_of_this_test_choose_differently) {
  const spar::call_shape of_stream{ranks, 10'000, 500, 4, 4};
  EXPECT_EQ(spar::choose_sparcml(models[0], of_stream, 4), spar::sparcml_choice::doubling);
  EXPECT_EQ(spar::choose_sparcml(models[1], of_stream, 4), spar::sparcml_choice::dsar);
  EXPECT_EQ(spar::choose_sparcml(models[2], of_stream, 4), spar::sparcml_choice::ssar);
  const auto compression = [](const spar::network_model& model) {
    return spar::cheapest::compression<float>(spar::storage::qsgd<8>{}, model, ranks, 25'000).chosen;
  };
  EXPECT_NE(compression(models[1]), spar::compression_choice::algorithm::plain);
  EXPECT_EQ(compression(models[2]), spar::compression_choice::algorithm::plain);
}

/// The bits of the sums, and the messages of some calls on rank 0.
struct outcome {
  std::vector<unsigned char> bits;
  std::vector<std::uint64_t> messages;
  bool operator==(const outcome&) const = default;
};

template <class Value>
void add_bits(outcome& to, std::span<const Value> some) {
  const std::size_t before = to.bits.size();
  to.bits.resize(before + some.size_bytes());
  std::memcpy(to.bits.data() + before, some.data(), some.size_bytes());
}

/// Makes calls of streams, of dense values and of quantised values with a pinned model, on a network with another
/// model.
outcome calls_by(const spar::network_model& pinned, const spar::network_model& of_network) {
  outcome its;
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    net.set_network(of_network);
    const spar::cheapest by{.pin = pinned};
    const auto value = [&](std::size_t i) { // its sum depends on the order
      return 1 / static_cast<float>(3 + i % 101 + 7 * static_cast<std::size_t>(net.rank()));
    };
    std::vector<std::uint32_t> indices(500);
    values entries(500);
    for (std::uint32_t i = 0; i < indices.size(); ++i) indices[i] = 17 * i, entries[i] = value(i);
    const auto sum = spar::allreduce(net, spar::sparse_view(10'000, indices, entries), by);
    const std::uint64_t of_stream = net.last_call().messages_sent;

    values x(25'000), y(25'000);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = y[i] = value(i);
    spar::allreduce(net, x, by);
    const std::uint64_t of_values = net.last_call().messages_sent;
    spar::allreduce(net, y, spar::compose(spar::storage::qsgd<8>{}, by));
    if (net.rank() != 0) return;
    its.messages = {of_stream, of_values, net.last_call().messages_sent};
    add_bits(its, sum.values());
    add_bits(its, std::span<const float>(x));
    add_bits(its, std::span<const float>(y));
  });
  return its;
}

TEST(front_door, a_pinned_model_chooses_the_same_whatever_the_network_is) {
  std::set<std::vector<unsigned char>> bits;
  std::set<std::vector<std::uint64_t>> messages;
  for (const auto& pinned : models) {
    const outcome first = calls_by(pinned, models[0]);
    for (const auto& of_network : models) EXPECT_EQ(calls_by(pinned, of_network), first);
    bits.insert(first.bits);
    messages.insert(first.messages);
  }
  EXPECT_EQ(bits.size(), std::size(models));
  EXPECT_EQ(messages.size(), std::size(models));
}

TEST(front_door, ranks_that_pin_different_models_end_in_mismatch) {
  spar::network_model nearly = models[1];
  nearly.gamma_sparse *= 1 + 1e-9;
  const auto expect_mismatch = [](const spar::cheapest& most, const spar::cheapest& last, bool dense) {
    spar::thread_group group(ranks);
    EXPECT_THROW(group.run([&](spar::threads& net) {
      try {
        const contribution mine(net.rank());
        const spar::cheapest& by = net.rank() + 1 == ranks ? last : most;
        values x = mine.x;
        if (dense)
          spar::allreduce(net, x, by);
        else
          (void)spar::allreduce(net, mine.view(), by);
        ADD_FAILURE() << "no error";
      } catch (const spar::error& e) {
        EXPECT_NE(std::string(e.what()).find("ranks disagree on the algorithm"), std::string::npos) << e.what();
        throw;
      }
    }),
                 spar::mismatch);
  };
  for (const bool dense : {false, true}) {
    expect_mismatch({.pin = models[0]}, {.pin = models[1]}, dense);
    expect_mismatch({.pin = models[1]}, {.pin = nearly}, dense);
    expect_mismatch({.pin = models[1]}, {}, dense); // an empty pin: the network's own model
    expect_mismatch({}, {.pin = models[1]}, dense);
  }
}

} // namespace
