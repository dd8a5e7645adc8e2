// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compiled library's any_allreduce has the bits, the messages and the errors of spar::allreduce with the same
// composition.
#include "support/message_of.hpp"

#include <spar/any_compose.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/named_codec.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr spar::rank_t all_ranks[] = {1, 2, 3, 4, 5, 7, 8, 13};

/// The bytes of a result, and the traffic of its call on one rank.
struct outcome {
  std::vector<std::byte> bytes;
  std::uint64_t messages = 0;
  std::uint64_t payload = 0;
  std::string error;
  bool operator==(const outcome&) const = default;
};
std::ostream& operator<<(std::ostream& out, const outcome& o) {
  return out << o.bytes.size() << " bytes in " << o.messages << " messages of " << o.payload << " bytes; error '"
             << o.error << "'";
}
using outcomes = std::vector<outcome>; // one for each rank

template <class X>
void append(std::vector<std::byte>& to, std::span<const X> from) {
  const auto bytes = std::as_bytes(from);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// The input of one rank: a vector of n values, of which every `step`-th is an entry of the stream.
template <class T, class Index>
struct input {
  input(std::size_t n, spar::rank_t rank, std::size_t step) : dimension(n) {
    for (std::size_t i = 0; i < n; ++i) {
      dense.push_back(static_cast<T>(static_cast<int>(i * 7 + static_cast<std::size_t>(rank) * 13) % 29 - 14));
      if ((i + static_cast<std::size_t>(rank)) % step != 0) continue;
      indices.push_back(static_cast<Index>(i));
      values.push_back(dense.back());
    }
  }
  std::size_t dimension;
  std::vector<T> dense, values;
  std::vector<Index> indices;
};

/// Runs `call(rank, bytes)` on each rank of a new group of threads, and records what it has done.
template <class Call>
outcomes on_threads(spar::rank_t ranks, const Call& call) {
  outcomes all(static_cast<std::size_t>(ranks));
  spar::thread_group group(ranks);
  try {
    group.run([&](spar::threads& net) {
      outcome& mine = all[static_cast<std::size_t>(net.rank())];
      try {
        call(net, mine.bytes);
      } catch (const spar::error& e) {
        mine.error = e.what();
        throw;
      }
      mine.messages = net.last_call().messages_sent;
      mine.payload = net.last_call().bytes_sent;
    });
  } catch (const spar::error&) { // recorded
  }
  return all;
}

/// Expects that an any_allreduce of `algorithm`, and that of `text`, do what spar::allreduce does with it.
template <class T, class Index, class Algorithm, class Op>
void expect_same(const Algorithm& algorithm, std::string_view text, Op op, std::size_t n, std::size_t step) {
  for (const spar::rank_t ranks : all_ranks) {
    SCOPED_TRACE(testing::Message() << text << ", " << ranks << " ranks, n = " << n << ", 1 of " << step << ", "
                                    << Op::name);
    const auto values = on_threads(ranks, [&](spar::threads& net, std::vector<std::byte>& out) {
      auto x = input<T, Index>(n, net.rank(), step).dense;
      spar::allreduce(net, std::span(x), algorithm, op);
      append(out, std::span<const T>(x));
    });
    const auto streams = on_threads(ranks, [&](spar::threads& net, std::vector<std::byte>& out) {
      const input<T, Index> mine(n, net.rank(), step);
      const auto sum = spar::allreduce(net, spar::sparse_view(n, mine.indices, mine.values), algorithm, op);
      append(out, sum.indices());
      append(out, sum.values());
    });
    for (const auto& reduce : {spar::any_allreduce<T, Index>(text), spar::any_allreduce<T, Index>(algorithm)}) {
      EXPECT_EQ(values, on_threads(ranks, [&](spar::threads& rank, std::vector<std::byte>& out) {
                  spar::any_transport net(rank);
                  auto x = input<T, Index>(n, net.rank(), step).dense;
                  reduce(net, std::span(x), op);
                  append(out, std::span<const T>(x));
                }));
      EXPECT_EQ(values, on_threads(ranks, [&](spar::threads& rank, std::vector<std::byte>& out) {
                  spar::any_transport net(rank);
                  const auto x = input<T, Index>(n, net.rank(), step).dense;
                  std::vector<T> y(n);
                  auto pending = reduce.start(net, x, y, op);
                  auto moved = std::move(pending);
                  moved.wait();
                  EXPECT_EQ(x, (input<T, Index>(n, net.rank(), step).dense));
                  EXPECT_EQ(moved.statistics().messages_sent, net.last_call().messages_sent);
                  append(out, std::span<const T>(y));
                }));
      EXPECT_EQ(streams, on_threads(ranks, [&](spar::threads& rank, std::vector<std::byte>& out) {
                  spar::any_transport net(rank);
                  const input<T, Index> mine(n, net.rank(), step);
                  const auto sum = reduce(net, n, mine.indices, mine.values, op);
                  append(out, sum.indices());
                  append(out, sum.values());
                }));
    }
  }
}

template <class T, class Index, class Op>
void expect_same_of_all(Op op) {
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
    expect_same<T, Index>(spar::sparcml{}, "sparcml", op, n, 50);
    expect_same<T, Index>(spar::ssar_split{}, "ssar_split", op, n, 50);
    expect_same<T, Index>(spar::dsar_split{}, "dsar_split", op, n, 3);
    expect_same<T, Index>(spar::recursive_doubling{}, "rec_doubling", op, n, 5);
    expect_same<T, Index>(spar::gather_and_merge{}, "allgather", op, n, 5);
  }
}

TEST(any_allreduce, is_the_allreduce_of_the_composition_for_float) {
  expect_same_of_all<float, std::uint32_t>(spar::sum{});
}
#if SPAR_ALL_CASES // otherwise, c.conformance compares these types with all operations, by fewer compositions
TEST(any_allreduce, is_the_allreduce_of_the_composition_for_int64_and_long_indices) {
  expect_same_of_all<std::int64_t, std::uint64_t>(spar::sum{});
}
#endif
TEST(any_allreduce, takes_the_operations_of_the_library) {
  expect_same<double, std::uint32_t>(spar::sparcml{}, "sparcml", spar::average{}, 1000, 5);
#if SPAR_ALL_CASES
  expect_same<double, std::uint32_t>(spar::sparcml{}, "sparcml", spar::minimum{}, 1000, 5);
  expect_same<double, std::uint32_t>(spar::sparcml{}, "sparcml", spar::maximum{}, 1000, 5);
#endif
  expect_same<std::int32_t, std::uint32_t>(spar::sparcml{}, "sparcml", spar::product{}, 1000, 5);
}

TEST(any_allreduce, takes_an_operation_of_the_program) {
  const float none = 0;
  const spar::own_operation largest{
      .name = "largest magnitude", .neutral = &none, .reduce = [](const void* in, void* inout, std::size_t n, void*) {
        const auto* const from = static_cast<const float*>(in);
        auto* const to = static_cast<float*>(inout);
        for (std::size_t i = 0; i < n; ++i) {
          if (from[i] * from[i] > to[i] * to[i]) to[i] = from[i];
        }
      }};
  const spar::any_allreduce<float> reduce;
  spar::any_group::threads(3).run([&](spar::any_transport& net) {
    std::vector<float> x(100, static_cast<float>(1 - 3 * net.rank()));
    reduce(net, x, largest);
    EXPECT_EQ(x, std::vector<float>(100, -5));
    const std::vector<std::uint32_t> indices{static_cast<std::uint32_t>(net.rank()), 7};
    const std::vector<float> values{2, static_cast<float>(net.rank() - 5)};
    const auto sum = reduce(net, 50, indices, values, largest);
    std::vector<float> all(50);
    sum.to_dense(all, largest);
    EXPECT_EQ(all[2], 2);
    EXPECT_EQ(all[7], -5);
    EXPECT_EQ(all[8], 0);
  });
}

TEST(any_allreduce, has_the_errors_of_the_allreduce) {
  const auto expect_same_errors = [](const auto& call, const auto& any_call) {
    const auto expected = on_threads(2, call);
    for (const outcome& mine : expected) EXPECT_NE(mine.error, "");
    EXPECT_EQ(expected, on_threads(2, [&](spar::threads& rank, std::vector<std::byte>&) {
                spar::any_transport net(rank);
                any_call(net);
              }));
  };
  const spar::any_allreduce<float> reduce;
  const std::vector<std::uint32_t> wrong{5, 3};
  const std::vector<float> two{1, 2};
  expect_same_errors([&](auto& net, auto&) { spar::allreduce(net, spar::sparse_view(10, wrong, two)); },
                     [&](auto& net) { reduce(net, 10, wrong, two); });
  std::vector<float> out(3);
  expect_same_errors([&](auto& net, auto&) { spar::allreduce(net, two, out); },
                     [&](auto& net) { reduce(net, two, out); });
}

TEST(any_allreduce, names_the_difference_of_its_calls) {
  const auto errors_of = [](const auto& call) {
    std::vector<std::string> all;
    for (const outcome& mine : on_threads(2, call)) all.push_back(mine.error);
    return all;
  };
  std::vector<float> x(10);
  const auto any_of = [&](auto& rank, std::size_t n, const spar::any_allreduce<float>& reduce, spar::any_operation op) {
    spar::any_transport net(rank);
    std::vector<float> mine(n);
    reduce(net, mine, op);
  };
  const auto of = [&](auto& net, std::size_t n, const auto& algorithm, auto op) {
    std::vector<float> mine(n);
    spar::allreduce(net, std::span(mine), algorithm, op);
  };
  EXPECT_EQ(errors_of([&](auto& net, auto&) { of(net, net.rank() == 0 ? 4 : 5, spar::ring{}, spar::sum{}); }),
            errors_of([&](auto& net, auto&) {
              any_of(net, net.rank() == 0 ? 4 : 5, spar::any_allreduce<float>("ring"), {});
            }));
  EXPECT_EQ(errors_of([&](auto& net, auto&) {
              if (net.rank() == 0)
                of(net, 9, spar::ring{}, spar::sum{});
              else
                of(net, 9, spar::rabenseifner{}, spar::sum{});
            }),
            errors_of([&](auto& net, auto&) {
              any_of(net, 9, spar::any_allreduce<float>(net.rank() == 0 ? "ring" : "rabenseifner"), {});
            }));
  EXPECT_EQ(errors_of([&](auto& net, auto&) {
              if (net.rank() == 0)
                of(net, 9, spar::ring{}, spar::sum{});
              else
                of(net, 9, spar::ring{}, spar::maximum{});
            }),
            errors_of([&](auto& net, auto&) {
              any_of(net, 9, spar::any_allreduce<float>("ring"),
                     net.rank() == 0 ? spar::any_operation(spar::sum{}) : spar::any_operation(spar::maximum{}));
            }));
}

TEST(any_allreduce, is_the_same_call_as_that_of_the_composition) {
  spar::thread_group group(3);
  group.run([](spar::threads& rank) {
    std::vector<float> x(100, 1);
    const std::vector<std::uint32_t> indices{static_cast<std::uint32_t>(rank.rank())};
    const std::vector<float> values{2};
    for (int call = 0; call < 2; ++call) {
      if (rank.rank() == call) {
        spar::allreduce(rank, std::span(x), spar::ring{}, spar::average{});
        EXPECT_EQ(
            spar::allreduce(rank, spar::sparse_view(50, indices, values), spar::sparcml{}, spar::maximum{}).count(),
            3U);
      } else {
        spar::any_transport net(rank);
        spar::any_allreduce<float>("ring")(net, x, spar::average{});
        EXPECT_EQ(spar::any_allreduce<float>()(net, 50, indices, values, spar::maximum{}).values().size(), 3U);
      }
      EXPECT_EQ(x, std::vector<float>(100, 1));
    }
  });
}

TEST(any_transport, sets_the_network_and_leaves) {
  spar::any_group::threads(3).run([](spar::any_transport& net) {
    net.set_network({.alpha = net.rank() == 0 ? 2e-6 : 1});
    EXPECT_EQ(net.network().alpha, 2e-6);
    net.leave();
    std::vector<float> x(3);
    EXPECT_THROW(spar::any_allreduce<float>()(net, x), spar::invalid_argument);
  });
}

float sum_of_ones(spar::any_transport& net) {
  std::vector<float> x(3, 1);
  spar::any_allreduce<float>{}(net, x);
  return x[0];
}

TEST(any_transport, is_divided_between_threads) {
  for (const spar::rank_t ranks : all_ranks) {
    spar::any_group group = spar::any_group::threads(ranks);
    for (int run = 0; run < 2; ++run) {
      group.run([&](spar::any_transport& net) {
        net.set_network({.alpha = 2e-6});
        for (const int colours : {1, 2, 2, 3}) {
          spar::any_transport part = net.split(net.rank() % colours, -net.rank());
          const spar::rank_t before = net.rank() / colours, behind = (ranks - 1 - net.rank()) / colours;
          EXPECT_EQ(part.size(), before + 1 + behind);
          EXPECT_EQ(part.rank(), behind);
          EXPECT_EQ(part.network().alpha, 2e-6);
          EXPECT_EQ(part.hosts().size(), static_cast<std::size_t>(part.size()));
          EXPECT_EQ(sum_of_ones(part), static_cast<float>(part.size()));
          spar::any_transport alone = part.split(part.rank(), 0);
          part = std::move(alone); // ends the part on this rank
          EXPECT_EQ(sum_of_ones(part), 1);
        }
        EXPECT_THROW((void)net.split(-1, 0), spar::invalid_argument);
      });
    }
  }
}

/// A part whose rank is destroyed ends the calls of the others in it, as over MPI and UCX.
TEST(any_transport, leaves_a_part_when_it_is_destroyed) {
  spar::any_group::threads(2).run([](spar::any_transport& net) {
    spar::any_transport part = net.split(0, 0);
    if (net.rank() == 1) return;
    EXPECT_THROW((void)sum_of_ones(part), spar::peer_failed);
    spar::any_transport rest = part.shrink();
    EXPECT_EQ(sum_of_ones(rest), 1);
  });
}

TEST(any_transport, has_no_rank_once_another_object_has_taken_it_over) {
  spar::any_group group = spar::any_group::threads(1);
  spar::any_transport& first = group.rank(0);
  EXPECT_TRUE(first);
  spar::any_transport second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_TRUE(second);
  first = std::move(second);
  EXPECT_FALSE(second);
  EXPECT_EQ(sum_of_ones(first), 1);
  first = std::move(second); // ends the rank
  EXPECT_FALSE(first);
}

TEST(any_transport, shrinks_between_threads) {
  spar::any_group::threads(4).run([](spar::any_transport& net) {
    net.set_deadline(20);
    if (net.rank() == 1) return;
    EXPECT_THROW((void)sum_of_ones(net), spar::peer_failed);
    spar::any_transport rest = net.shrink();
    EXPECT_EQ(rest.rank(), net.rank() == 0 ? 0 : net.rank() - 1);
    EXPECT_EQ(sum_of_ones(rest), 3);
    EXPECT_EQ(rest.deadline(), 20);
    EXPECT_THROW((void)net.shrink(), spar::invalid_argument);
    {
      spar::any_transport part = rest.split(rest.rank() % 2, 0);
      EXPECT_EQ(sum_of_ones(part), rest.rank() == 1 ? 1 : 2);
    }
    if (rest.rank() == 2) return;
    EXPECT_THROW((void)sum_of_ones(rest), spar::peer_failed);
    rest = rest.shrink();
    EXPECT_EQ(sum_of_ones(rest), 2);
  });
}

TEST(any_transport, names_the_transport_that_cannot_grow_or_shrink) {
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  spar::any_group threads = spar::any_group::threads(1), simulated = spar::any_group::simulated(1);
  expect(test::message_of<spar::invalid_argument>([&] { (void)threads.rank(0).grow(); }),
         "no grow: it is a rank of threads");
  expect(test::message_of<spar::invalid_argument>([&] { (void)simulated.rank(0).grow(); }),
         "no grow: it is a rank of sim");
  expect(test::message_of<spar::invalid_argument>([&] { (void)simulated.rank(0).shrink(); }),
         "no shrink: it is a rank of sim");
  expect(test::message_of<spar::invalid_argument>([&] { (void)simulated.rank(0).split(0, 0); }),
         "no split: it is a rank of sim");
  spar::thread_group group(1);
  spar::any_transport net(group.rank(0));
  expect(test::message_of<spar::invalid_argument>([&] { (void)net.shrink(); }),
         "no shrink: it refers to a rank of the program");
}

TEST(any_allreduce, runs_in_the_simulator) {
  const spar::any_allreduce<double> reduce;
  for (const spar::rank_t ranks : all_ranks) {
    spar::any_group group = spar::any_group::simulated(ranks);
    std::vector<std::vector<double>> x(static_cast<std::size_t>(ranks), std::vector<double>(10, 2));
    std::vector<spar::any_pending<void>> calls;
    for (spar::rank_t r = 0; r < ranks; ++r)
      calls.push_back(reduce.start(group.rank(r), x[static_cast<std::size_t>(r)]));
    for (auto& call : calls) call.wait();
    for (const auto& sum : x) EXPECT_EQ(sum, std::vector<double>(10, 2.0 * ranks));
    EXPECT_THROW((void)group.rank(ranks), spar::invalid_argument);
    EXPECT_THROW(group.run([](spar::any_transport&) {}), spar::invalid_argument);
  }
}

TEST(any_allreduce, is_the_allreduce_that_a_text_names) {
  const auto coded = spar::storage::coded<>{};
  const auto qsgd = spar::storage::named_codec("qsgd:8");
  expect_same<float, std::uint32_t>(spar::compose(coded, spar::cheapest{}), "sparcml+coded", spar::sum{}, 1000, 50);
  expect_same<float, std::uint32_t>(spar::compose(qsgd, spar::ring{}), "ring+qsgd:8", spar::average{}, 1000, 5);
  expect_same<float, std::uint32_t>(
      spar::compose(spar::storage::then<spar::storage::coo, spar::storage::named_codec>{{}, qsgd}, spar::dsar_split{}),
      "dsar_qsgd8", spar::sum{}, 1000, 5);
  expect_same<double, std::uint32_t>(spar::rabenseifner{}, "by=rabenseifner", spar::sum{}, 1000, 5);
}

TEST(any_allreduce, reduces_over_a_tree) {
  const std::vector<spar::rank_t> hosts{0, 0, 2, 2, 2};
  for (const char* const text : {"flexreduce", "tree_dense", "tree_sparcml", "flexreduce+qsgd:8"}) {
    SCOPED_TRACE(text);
    const spar::any_allreduce<float> reduce(text, hosts);
    spar::any_group::threads(5).run([&](spar::any_transport& net) {
      std::vector<float> x(1000, 1);
      reduce(net, x);
      EXPECT_EQ(x, std::vector<float>(1000, 5));
    });
    EXPECT_THROW(spar::any_allreduce<float>{text}, spar::invalid_argument);
  }
  EXPECT_THROW(spar::any_allreduce<float>("blueconnect", hosts), spar::invalid_argument);
}

TEST(any_allreduce, refuses_names_and_types) {
  EXPECT_THROW(spar::any_allreduce<float>("rings"), spar::invalid_argument);
  EXPECT_THROW(spar::any_allreduce<std::int32_t>("ring+qsgd:8"), spar::invalid_argument); // not for integers
  EXPECT_THROW((spar::any_allreduce<float, std::uint64_t>("sparcml+coded")), spar::invalid_argument);
  spar::any_group::threads(2).run([](spar::any_transport& net) {
    std::vector<float> x(10, 1);
    EXPECT_THROW(spar::any_allreduce<float>("ring+qsgd:8")(net, x, spar::maximum{}), spar::invalid_argument);
    EXPECT_THROW(spar::any_allreduce<float>("topka:0.1")(net, x, spar::maximum{}), spar::invalid_argument);
  });
  EXPECT_THROW(spar::any_group::threads(0), spar::invalid_argument);
}

} // namespace
