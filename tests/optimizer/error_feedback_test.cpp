// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback: nothing is lost between calls, in errors, or when a state is saved and taken over.
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <spar/core/util/crc32c.hpp>
#include <spar/system/published.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spar_test {

namespace {

using reducer = spar::topka<float>;
using vectors = std::vector<std::vector<float>>;

reducer::algorithm_type top(std::uint64_t k) { return {.select = {.k = k}}; }

template <class Reducer>
std::vector<float> residual_of(const Reducer& reduce) {
  return {reduce.residual().begin(), reduce.residual().end()};
}

/// Whole numbers, whose sums are exact.
vectors whole_numbers(spar::rank_t ranks, std::size_t n, std::uint64_t seed) {
  vectors x(static_cast<std::size_t>(ranks), std::vector<float>(n));
  for (std::size_t r = 0; r < x.size(); ++r) {
    std::mt19937_64 random(seed * 1000 + r);
    for (float& value : x[r]) value = static_cast<float>(random() % 41) - 20;
  }
  return x;
}

struct program {
  vectors* x;
  std::vector<std::unique_ptr<reducer>>* reducers;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto r = static_cast<std::size_t>(net.rank());
    auto call = (*reducers)[r]->start(net, std::span<float>((*x)[r]));
    co_await std::move(call);
  }
};

std::vector<std::unique_ptr<reducer>> reducers_of(spar::rank_t ranks, std::uint64_t k) {
  std::vector<std::unique_ptr<reducer>> all;
  for (spar::rank_t r = 0; r < ranks; ++r) all.push_back(std::make_unique<reducer>(top(k)));
  return all;
}

std::vector<float> total(const vectors& all) {
  std::vector<float> sum(all[0].size());
  for (const auto& x : all)
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
  return sum;
}

TEST(error_feedback, sum_and_residuals_are_all_that_was_brought) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : {1, 2, 3, 5}) {
      for (const std::uint64_t k : {0U, 1U, 7U, 60U}) {
        auto reducers = reducers_of(ranks, k);
        std::vector<float> brought(60);
        std::vector<float> reduced(60);
        for (std::uint64_t step = 0; step < 4; ++step) {
          vectors x = whole_numbers(ranks, 60, step);
          const auto new_values = total(x);
          run(where, ranks, program{&x, &reducers});
          for (const auto& mine : x) ASSERT_EQ(mine, x[0]) << "all ranks must have the same result";
          for (std::size_t i = 0; i < 60; ++i) {
            brought[i] += new_values[i];
            reduced[i] += x[0][i];
          }
          vectors kept{reduced};
          for (const auto& r : reducers) kept.emplace_back(r->residual().begin(), r->residual().end());
          ASSERT_EQ(total(kept), brought) << where << ", P = " << ranks << ", k = " << k << ", step " << step;
        }
      }
    }
  }
}

TEST(error_feedback, what_is_kept_is_sent_later) {
  auto reducers = reducers_of(1, 1);
  vectors x{{3, 2, 1}};
  run(mode::sim, 1, program{&x, &reducers});
  EXPECT_EQ(x[0], (std::vector<float>{3, 0, 0}));
  x = {{1, 2, 1}};
  run(mode::sim, 1, program{&x, &reducers});
  EXPECT_EQ(x[0], (std::vector<float>{0, 4, 0}));
  const auto rest = reducers[0]->residual();
  EXPECT_EQ(std::vector<float>(rest.begin(), rest.end()), (std::vector<float>{1, 0, 2}));
}

TEST(error_feedback, out_of_place_leaves_the_input_and_names_the_share) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    reducer reduce(top(1));
    const std::vector<float> x = net.rank() == 0 ? std::vector<float>{0, 5, 1} : std::vector<float>{0, 2, 3};
    const auto result = reduce.reduce(net, std::span<const float>(x));
    EXPECT_EQ(x[1], net.rank() == 0 ? 5 : 2);
    ASSERT_EQ(result.sum.count(), 2U);
    EXPECT_EQ(result.sum.values()[0], 5);
    EXPECT_EQ(result.sum.values()[1], 3);
    ASSERT_EQ(result.contributed.count(), 1U);
    EXPECT_EQ(result.contributed.indices()[0], net.rank() == 0 ? 1U : 2U);
  });
}

TEST(error_feedback, averages) {
  auto reducers = reducers_of(4, 2);
  spar::thread_group group{4};
  group.run([](spar::threads& net) {
    reducer reduce(top(1));
    std::vector<float> x{0, 2};
    reduce(net, std::span<float>(x), spar::average{});
    EXPECT_EQ(x, (std::vector<float>{0, 2}));
  });
}

template <class F>
std::string sentence_of(F f) {
  try {
    f();
  } catch (const spar::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(error_feedback, refuses_bad_input_before_anything_is_sent) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    reducer reduce(top(1), {.reject_nan = true});
    std::vector<float> x{1, 2, 3};
    reduce(net, std::span<float>(x));
    const auto before = net.statistics().messages_sent;
    const std::vector<float> residual(reduce.residual().begin(), reduce.residual().end());
    std::vector<float> longer(4);
    EXPECT_EQ(sentence_of([&] { reduce(net, std::span<float>(longer)); }),
              "the vector has length 4, but the residual has length 3");
    x = {1, std::numeric_limits<float>::quiet_NaN(), 2};
    EXPECT_EQ(sentence_of([&] { reduce(net, std::span<float>(x)); }),
              "the value at index 1 is NaN, which the option reject_nan forbids");
    EXPECT_EQ(net.statistics().messages_sent, before);
    EXPECT_EQ(std::vector<float>(reduce.residual().begin(), reduce.residual().end()), residual);
  });
}

TEST(error_feedback, has_one_call_at_a_time) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    reducer reduce(top(1));
    std::vector<float> x{1, 2, 3};
    std::vector<float> y{1, 2, 3};
    auto first = reduce.start(net, std::span<float>(x));
    if (!first.done()) {
      EXPECT_THROW((void)reduce.start(net, std::span<float>(y)), spar::invalid_argument);
      EXPECT_THROW((void)reduce.save(), spar::invalid_argument);
    }
    first.wait();
  });
}

TEST(error_feedback, a_failed_call_changes_nothing) {
  spar::thread_group group{2};
  EXPECT_THROW(group.run([](spar::threads& net) {
    reducer reduce(top(1));
    std::vector<float> x{1, 2, 3};
    reduce(net, std::span<float>(x));
    const std::vector<float> before(reduce.residual().begin(), reduce.residual().end());
    try {
      std::vector<float> another(net.rank() == 0 ? 3 : 4, 1.0F);
      if (net.rank() == 1) reduce.set_residual({});
      reduce(net, std::span<float>(another));
    } catch (const spar::error&) {
      if (net.rank() == 0) {
        EXPECT_EQ(std::vector<float>(reduce.residual().begin(), reduce.residual().end()), before);
      }
      throw;
    }
  }),
               spar::error);
}

TEST(error_feedback, is_saved_loaded_and_taken_over) {
  auto reducers = reducers_of(3, 1);
  vectors x = whole_numbers(3, 20, 1);
  run(mode::sim, 3, program{&x, &reducers});
  vectors kept;
  for (const auto& r : reducers) kept.emplace_back(r->residual().begin(), r->residual().end());

  reducer again(top(1));
  again.load(reducers[1]->save());
  EXPECT_EQ(std::vector<float>(again.residual().begin(), again.residual().end()), kept[1]);

  // A job of two ranks takes over: the residuals of ranks 0 and 2 go to one rank, that of rank 1 to the other.
  reducer first(top(1));
  first.take_over(reducers[0]->save());
  first.take_over(reducers[2]->save());
  first.take_over(reducer(top(1)).save()); // the state of a rank that has made no call
  EXPECT_EQ(std::vector<float>(first.residual().begin(), first.residual().end()), total({kept[0], kept[2]}));
}

TEST(error_feedback, finds_damage_in_what_was_saved) {
  reducer saved(top(1));
  saved.set_residual(std::vector<float>{1, 2, 3});
  const auto bytes = saved.save();
  reducer reduce(top(1));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto damaged = bytes;
    damaged[at] ^= std::byte{0x10};
    EXPECT_THROW(reduce.load(damaged), spar::invalid_argument) << "byte " << at;
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(reduce.load(std::span(bytes).first(size)), spar::invalid_argument) << "cut to " << size;
  }
  EXPECT_TRUE(reduce.residual().empty());
  spar::topka<double> other;
  EXPECT_THROW(other.load(bytes), spar::invalid_argument);
  spar::topkdsa<float> of_another_algorithm;
  EXPECT_THROW(of_another_algorithm.load(bytes), spar::invalid_argument);
  spar::gaussiank<float> of_another_selector;
  EXPECT_THROW(of_another_selector.load(bytes), spar::invalid_argument);
  reducer longer(top(1));
  longer.set_residual(std::vector<float>(4));
  EXPECT_THROW(longer.take_over(bytes), spar::invalid_argument);
}

// --- options that change during a run ---

/// A density that grows from call to call, as in a warm-up.
TEST(error_feedback, options_change_between_two_calls_and_the_residual_stays) {
  constexpr std::size_t n = 60;
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      auto reducers = reducers_of(ranks, 1);
      std::vector<float> brought(n);
      std::vector<float> reduced(n);
      std::uint64_t step = 0;
      for (const double density : {0.05, 0.1, 0.5, 1.0}) {
        for (const auto& reduce : reducers) {
          const auto kept = residual_of(*reduce);
          reduce->set_algorithm({.select = {.density = density}});
          EXPECT_EQ(residual_of(*reduce), kept);
          EXPECT_EQ(reduce->algorithm().select.density, density);
        }
        vectors x = whole_numbers(ranks, n, ++step);
        const auto new_values = total(x);
        run(where, ranks, program{&x, &reducers});
        for (const auto& mine : x) ASSERT_EQ(mine, x[0]) << "all ranks must have the same result";
        for (std::size_t i = 0; i < n; ++i) {
          brought[i] += new_values[i];
          reduced[i] += x[0][i];
        }
        vectors kept{reduced};
        for (const auto& reduce : reducers) {
          if (density < 1) {
            ASSERT_EQ(static_cast<double>(reduce->report().selected), density * n);
          }
          kept.push_back(residual_of(*reduce));
        }
        ASSERT_EQ(total(kept), brought) << "density " << density;
      }
      EXPECT_EQ(reduced, brought) << "the sum of all results must be all contributions";
    }
  }
}

TEST(error_feedback, thresholds_and_boundaries_stay_when_options_change) {
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    spar::ok_topk<float> reduce({.select = {.k = 5}});
    std::vector<float> x(50);
    const auto call = [&] {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((7 * i + 1) % 31);
      reduce(net, std::span<float>(x));
    };
    call();
    call();
    const auto before = reduce.current_state();
    EXPECT_EQ(before.by.calls, 2U);
    reduce.set_algorithm({.select = {.k = 10}});
    EXPECT_EQ(reduce.current_state().by.boundaries, before.by.boundaries);
    EXPECT_EQ(reduce.current_state().by.global_threshold, before.by.global_threshold);
    EXPECT_EQ(reduce.current_state().select, before.select);
    call();
    EXPECT_EQ(reduce.current_state().by.calls, 3U);
    EXPECT_GE(reduce.report().selected, 9U); // k, minus the tolerance epsilon
  });
}

/// If only an option or the state of one rank differs, the first message that shows it belongs to another phase of the
/// call, with other elements; the error names the option or the state.
TEST(error_feedback, ranks_with_another_option_or_state_of_ok_topk_get_an_error_that_names_it) {
  for (const bool of_state : {false, true}) {
    std::string text;
    spar::thread_group group{3};
    try {
      group.run([&](spar::threads& net) {
        spar::ok_topk<float> reduce({.select = {.k = 30}, .by = {.tau = 64}});
        const auto initial = reduce.save();
        std::vector<float> x(300);
        for (int call = 0; call < 3; ++call) {
          if (call == 1 && net.rank() == 0) {
            if (of_state)
              reduce.load(initial);
            else
              reduce.set_algorithm({.select = {.k = 30}, .by = {.tau = 1}});
          }
          for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(call + net.rank())) % 97);
          reduce(net, std::span<float>(x));
        }
      });
    } catch (const spar::error& e) {
      text = e.what();
    }
    EXPECT_NE(text.find("ranks disagree on the algorithm's options: rank "), std::string::npos) << text;
    EXPECT_NE(text.find(of_state ? "with digest_of_state=" : "with by.tau="), std::string::npos) << text;
  }
}

/// Selects all nonzeros, and has a state of numbers that are not unsigned: a share, a difference and a floor.
struct with_numbers {
  static constexpr spar::slot fills = spar::slot::selector;
  static constexpr std::string_view name = "with_numbers";

  double share = 0; ///< becomes the state after the first call; not compared as an option

  struct state {
    double share = 0;
    int difference = 0;
    float floor = 0;

    void shared_state(auto&& f) { f(share), f(difference); }
    void own_state(auto&& f) { f(floor); }
  };

  static void validate(std::uint64_t) {}
  void options(auto&&) const {}
  template <class Index, class Work, class T, class Prepare>
  auto operator()(Work& work, std::span<T> x, state& now, const Prepare& prepare) const {
    now = {share, -3, 0.5F};
    spar::no_state none;
    return spar::selector::nonzeros{}.operator()<Index>(work, x, none, prepare);
  }
};

TEST(error_feedback, numbers_of_a_state_are_compared_and_saved_exactly) {
  const auto two_calls = [](double other_share) {
    spar::thread_group group{2};
    group.run([&](spar::threads& net) {
      const auto algorithm = spar::compose(with_numbers{.share = net.rank() == 0 ? 0.25 : other_share});
      auto reduce = spar::with_error_feedback<float>(algorithm);
      std::vector<float> x{1, 2, 3};
      reduce(net, std::span<float>(x));
      auto restarted = spar::with_error_feedback<float>(algorithm);
      restarted.load(reduce.save());
      const auto& loaded = restarted.current_state().select;
      EXPECT_EQ(loaded.share, net.rank() == 0 ? 0.25 : other_share);
      EXPECT_EQ(loaded.difference, -3);
      EXPECT_EQ(loaded.floor, 0.5F);
      restarted(net, std::span<float>(x));
    });
  };
  two_calls(0.25);
  EXPECT_THROW(two_calls(0.75), spar::mismatch);
}

TEST(error_feedback, the_digest_of_a_state_has_the_lengths_of_its_vectors) {
  const auto digest = [](const auto&... all) {
    spar::detail::state_digest hash;
    (hash(all), ...);
    return hash.value;
  };
  using vector = std::vector<std::uint64_t>;
  EXPECT_NE(digest(vector{1, 2}, vector{3}), digest(vector{1}, vector{2, 3}));
  EXPECT_NE(digest(vector{}, vector{1}), digest(vector{1}, vector{}));
  EXPECT_EQ(digest(vector{1, 2}, vector{3}), digest(vector{1, 2}, vector{3}));
}

TEST(error_feedback, ranks_that_set_different_options_end_in_mismatch) {
  spar::thread_group group{3};
  EXPECT_THROW(group.run([](spar::threads& net) {
    reducer reduce(top(1));
    std::vector<float> x{1, 2, 3, 4, 5};
    reduce(net, std::span<float>(x));
    const auto before = residual_of(reduce);
    reduce.set_algorithm(top(net.rank() == 1 ? 3 : 2));
    try {
      reduce(net, std::span<float>(x));
      ADD_FAILURE() << "no error";
    } catch (const spar::error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("ranks disagree on the algorithm"), std::string::npos) << text;
      EXPECT_NE(text.find("k=3"), std::string::npos) << text;
      EXPECT_NE(text.find("k=2"), std::string::npos) << text;
      EXPECT_EQ(residual_of(reduce), before);
      throw;
    }
  }),
               spar::mismatch);
}

TEST(error_feedback, options_do_not_change_while_a_call_is_under_way) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    reducer reduce(top(1));
    std::vector<float> x{1, 2, 3};
    auto call = reduce.start(net, std::span<float>(x));
    if (!call.done()) {
      EXPECT_THROW(reduce.set_algorithm(top(2)), spar::invalid_argument);
    }
    call.wait();
    EXPECT_EQ(reduce.algorithm().select.k, 1U);
    EXPECT_EQ(x, (std::vector<float>{0, 0, 6}));
  });
}

// --- saved states of other layouts and parts ---

template <class Value>
void append(std::vector<std::byte>& bytes, std::span<const Value> values) {
  const auto some = std::as_bytes(values);
  bytes.insert(bytes.end(), some.begin(), some.end());
}

/// The layout in which spar saved states before it had compositions.
std::vector<std::byte> of_version_1(const std::vector<std::uint64_t>& words, const std::vector<float>& residual) {
  const std::uint64_t hash_of_name = 0x0123'4567'89ab'cdef;
  const std::array<std::uint64_t, 2> front{0x3146'4552'4150'5301, hash_of_name};
  const std::array<spar::element_code, 8> element{spar::code_of<float>}; // the other codes are zero
  const std::array<std::uint64_t, 2> sizes{residual.size(), words.size()};
  std::vector<std::byte> bytes;
  append<std::uint64_t>(bytes, front);
  append<spar::element_code>(bytes, element);
  append<std::uint64_t>(bytes, sizes);
  append<std::uint64_t>(bytes, words);
  append<float>(bytes, residual);
  const std::array checksum{spar::crc32c(bytes.data(), bytes.size())};
  append<std::uint32_t>(bytes, checksum);
  return bytes;
}

TEST(error_feedback, of_an_earlier_layout_only_the_residual_is_taken) {
  const auto bytes = of_version_1({7, 8, 9}, {1, -2, 3, 0.5F});
  spar::ok_topk<float> reduce({.select = {.k = 1}});
  const auto fresh = reduce.save();
  const std::string sentence = sentence_of([&] { reduce.load(bytes); });
  EXPECT_NE(sentence.find("has an old layout"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("take_over()"), std::string::npos) << sentence;
  EXPECT_EQ(reduce.save(), fresh) << "a rejected state must change nothing";

  reduce.take_over(bytes);
  EXPECT_EQ(residual_of(reduce), (std::vector<float>{1, -2, 3, 0.5F}));
  EXPECT_EQ(reduce.current_state().by.calls, 0U);
  reduce.take_over(bytes); // of a second rank of the earlier job
  EXPECT_EQ(residual_of(reduce), (std::vector<float>{2, -4, 6, 1}));
  reduce.take_over(of_version_1({}, {})); // of a rank that had made no call
  EXPECT_EQ(residual_of(reduce), (std::vector<float>{2, -4, 6, 1}));

  spar::ok_topk<float> again;
  again.load(reduce.save()); // in today's layout
  EXPECT_EQ(residual_of(again), (std::vector<float>{2, -4, 6, 1}));

  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto damaged = bytes;
    damaged[at] ^= std::byte{0x10};
    EXPECT_THROW(reduce.take_over(damaged), spar::invalid_argument) << "byte " << at;
  }
  EXPECT_THROW(spar::ok_topk<double>().take_over(bytes), spar::invalid_argument);
  EXPECT_EQ(residual_of(reduce), (std::vector<float>{2, -4, 6, 1}));
}

/// The error of loading a state of `from` into `to`, which can nevertheless take over its residual.
template <class To, class From>
std::string refusal(const From& from, const To& to) {
  auto saved = spar::with_error_feedback<float>(from);
  saved.set_residual(std::vector<float>{1, 2, 3});
  auto reduce = spar::with_error_feedback<float>(to);
  const std::string sentence = sentence_of([&] { reduce.load(saved.save()); });
  EXPECT_TRUE(reduce.residual().empty());
  reduce.take_over(saved.save());
  EXPECT_EQ(residual_of(reduce), residual_of(saved));
  return sentence;
}

TEST(error_feedback, a_state_of_other_parts_is_refused_with_the_names_of_both) {
  using spar::selector::exact_topk;
  const spar::topka_allreduce topka;
  EXPECT_EQ(refusal(topka, spar::gaussiank_allreduce()),
            "the state was saved by the reducer exact_topk, coo, flat, gather_and_merge; this reducer is "
            "gaussian, coo, flat, gather_and_merge");
  EXPECT_EQ(refusal(spar::topkdsa_allreduce(), topka),
            "the state was saved by the reducer exact_topk, coo, flat, split_allgather; this reducer is "
            "exact_topk, coo, flat, gather_and_merge");
  EXPECT_EQ(refusal(spar::ok_topk_allreduce<>(), spar::compose(exact_topk{}, spar::balanced_owners{})),
            "the state was saved by the reducer threshold_reuse, coo, flat, balanced_owners; this reducer is "
            "exact_topk, coo, flat, balanced_owners");
  EXPECT_EQ(refusal(spar::compose(exact_topk{}, spar::recursive_doubling{}),
                    spar::compose(exact_topk{}, spar::storage::qsgd<4>{}, spar::recursive_doubling{})),
            "the state was saved by the reducer exact_topk, coo, flat, recursive_doubling; this reducer is "
            "exact_topk, qsgd4, flat, recursive_doubling");
  reducer other_options(top(3));
  EXPECT_NO_THROW(other_options.load(reducer(top(1)).save()));
}

} // namespace
} // namespace spar_test
