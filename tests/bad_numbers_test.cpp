// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every number that a program passes is checked where it enters: for NaN, infinities and its range. An option that adds
// a number to the library adds a row to a table of this test, unless the parts in support/models.hpp have an option of
// the same name.
#include "support/models.hpp"

#include <spar/collective/topk/cheapest_owners.hpp>
#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/optimizer/sgd.hpp>
#include <spar/runtime/progress_thread.hpp>
#include <spar/spar.hpp>
#include <spar/storage/zfp.hpp>
#include <spar/system/eager_sgd.hpp>
#include <spar/topology/tree.hpp>
#include <spar/transport/faulty.hpp>
#include <spar/transport/sim.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();

/// Returns the text of the `invalid_argument` that `call` throws, or nothing if `call` throws nothing.
template <class Call>
std::optional<std::string> refusal(const Call& call) {
  try {
    call();
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return std::nullopt;
}

/// A number that a program passes: what its error says, how to pass it, valid values and, beside NaN, invalid values.
struct real {
  const char* name;
  std::function<void(double)> pass;
  std::vector<double> valid;
  std::vector<double> invalid;
};

using reals = std::vector<double>;
const reals no_duration = {-1, -1e-300, infinite, -infinite};
const reals no_limit = {-1, -1e-300, -infinite};
const reals no_bandwidth = {0, -1, 1e-320, infinite, -infinite};
const reals no_share = {-0.1, 1.1, infinite, -infinite};
const reals durations = {0, 1e-6};
const reals limits = {0, 1, infinite};
const reals bandwidths = {1e-3, 1e12};

void simulate(const spar::simulator_options& options) { spar::simulator(2, options); }

void simulate_tree(const spar::network_tree::node& link) {
  simulate({.tree = {.nodes = {{}, link, link}, .at = {1, 2}}});
}

void build(const spar::tree_link& all, const std::optional<spar::tree_link>& one = {}) {
  (void)spar::tree(spar::tree_node{.links = all, .children = {{.rank = 0, .link = one}, {.rank = 1}}});
}

void set_network(const spar::network_model& network) {
  spar::thread_group group(1);
  group.rank(0).set_network(network);
}

template <class Step>
void step(double rate, const Step& with) {
  spar::thread_group group(1);
  std::array<float, 2> weights{}, gradient{1, 2};
  with(group.rank(0), std::span(weights), std::span(gradient), static_cast<float>(rate));
}

std::vector<real> all_reals() {
  std::vector<real> all = {
      {"deadline",
       [](double x) {
         spar::thread_group group(1);
         group.rank(0).set_deadline(x);
       },
       limits, no_limit},
      {"sleep",
       [](double x) {
         spar::simulator engine(1);
         (void)engine.rank(0).sleep(x);
       },
       durations, no_duration},
      {"idle",
       [](double x) {
         spar::thread_group group(1);
         spar::progress_thread polls(group.rank(0), {.idle = x});
       },
       limits, no_limit},
      {"pause",
       [](double x) {
         spar::thread_group group(1);
         spar::progress_thread polls(group.rank(0), {.pause = x});
       },
       {0, 60},
       {-1, 61, infinite, -infinite}},
      {"latency", [](double x) { simulate({.latency = x}); }, durations, no_duration},
      {"overhead", [](double x) { simulate({.overhead = x}); }, durations, no_duration},
      {"compute", [](double x) { simulate({.compute = x}); }, durations, no_duration},
      {"jitter", [](double x) { simulate({.jitter = x}); }, durations, no_duration},
      {"bandwidth", [](double x) { simulate({.bandwidth = x}); }, bandwidths, no_bandwidth},
      {"latency", [](double x) { simulate_tree({.latency = x}); }, durations, no_duration},
      {"bandwidth", [](double x) { simulate_tree({.bandwidth = x}); }, bandwidths, no_bandwidth},
      {"latency", [](double x) { build({.latency = x}); }, durations, no_duration},
      {"bandwidth", [](double x) { build({.bandwidth = x}); }, bandwidths, no_bandwidth},
      {"latency", [](double x) { build({}, spar::tree_link{.latency = x}); }, durations, no_duration},
      {"bandwidth", [](double x) { build({}, spar::tree_link{.bandwidth = x}); }, bandwidths, no_bandwidth},
      {"epsilon",
       [](double x) { spar::selector::threshold_reuse{.k = 1, .epsilon = x}.validate(9); },
       {0, 0.99},
       {-0.1, 1, infinite, -infinite}},
      {"dense_from", [](double x) { spar::recursive_doubling{.dense_from = x}.validate(9); }, limits, no_limit},
      {"seconds",
       [](double x) {
         spar::thread_group group(1);
         spar::faulty net(group.rank(0), {{.what = spar::fault::kind::delay, .seconds = x}});
       },
       limits, no_limit},
      {"learning rate",
       [](double x) {
         step(x, [](auto& net, auto weights, auto gradient, float rate) {
           spar::sgd_step(net, weights, gradient, rate, spar::ring{});
         });
       },
       {0, 1, -1},
       {infinite, -infinite}},
      {"learning rate",
       [](double x) {
         step(x, [](auto& net, auto weights, auto gradient, float rate) {
           spar::topka<float> reduce{{.select = {.k = 1}}};
           spar::sgd_step(net, weights, gradient, rate, reduce);
         });
       },
       {0, 1, -1},
       {infinite, -infinite}},
      {"learning rate",
       [](double x) {
         step(x, [](auto& net, auto weights, auto gradient, float rate) {
           spar::eager_sgd<float, spar::threads, spar::solo, spar::ring> by(net, 2);
           by.step(weights, gradient, rate);
         });
       },
       {0, 1, -1},
       {infinite, -infinite}},
      {"rate",
       [](double x) { (void)spar::storage::zfp{.rate = x}.encoded_bytes<float>(9); },
       {4, 32},
       {3.9, 33, -8, infinite, -infinite}},
  };
  for_each_model(all_selectors, [&]<class Selector>(const model<Selector>&) {
    if constexpr (requires(Selector by) { by.density; }) {
      const auto pass = [](double x) {
        Selector by;
        by.k = 0;
        by.density = x;
        by.validate(9);
      };
      all.push_back({"density", pass, {0, 1}, no_share});
    }
  });
  using parameter = double spar::network_model::*;
  const std::pair<const char*, parameter> parameters[] = {
      {"alpha", &spar::network_model::alpha},
      {"beta", &spar::network_model::beta},
      {"gamma_sparse", &spar::network_model::gamma_sparse},
      {"gamma_dense", &spar::network_model::gamma_dense},
      {"gamma_coded", &spar::network_model::gamma_coded},
      {"alpha_shared", &spar::network_model::alpha_shared},
  };
  for (const auto& [name, which] : parameters) {
    const auto model = [which = which](double x) {
      spar::network_model network;
      network.*which = x;
      return network;
    };
    all.push_back({name, [model](double x) { set_network(model(x)); }, durations, no_duration});
    all.push_back({name, [model](double x) { spar::cheapest{.pin = model(x)}.validate(9); }, durations, no_duration});
    all.push_back(
        {name, [model](double x) { spar::cheapest_owners{.pin = model(x)}.validate(9); }, durations, no_duration});
  }
  return all;
}

TEST(bad_numbers, NaN_infinities_and_numbers_out_of_range_are_refused_where_they_enter) {
  for (const real& number : all_reals()) {
    SCOPED_TRACE(number.name);
    for (const double x : number.valid) EXPECT_EQ(refusal([&] { number.pass(x); }), std::nullopt) << x;
    reals wrong = number.invalid;
    wrong.insert(wrong.end(), {nan, -nan});
    for (const double x : wrong) {
      const auto why = refusal([&] { number.pass(x); });
      ASSERT_TRUE(why.has_value()) << x << " is accepted";
      EXPECT_NE(why->find(number.name), std::string::npos) << *why;
      EXPECT_NE(why->find(spar::sentence(x)), std::string::npos) << *why << " does not contain " << x;
      EXPECT_NE(why->find("expected "), std::string::npos) << *why;
    }
  }
}

/// A whole number that a program passes: what its error says, how to pass it, valid and invalid values.
struct whole {
  const char* name;
  std::function<void(int)> pass;
  std::vector<int> valid;
  std::vector<int> invalid;
};

/// How to pass a number that `set` writes to a part.
template <class Part, class Set>
auto passes(Set set) {
  return [set](int x) {
    Part part;
    if constexpr (requires { part.k; }) part.k = 1;
    if constexpr (requires { part.bucket; }) part.bucket = 9;
    set(part, static_cast<std::uint64_t>(x)); // -1 becomes the largest number
    part.validate(9);
  };
}

TEST(bad_numbers, whole_numbers_out_of_range_are_refused_where_they_enter) {
  const auto count = [](int x) { return static_cast<std::uint64_t>(x); }; // -1 becomes the largest number
  std::vector<whole> all = {
      {"size", [](int x) { spar::thread_group(x, {}); }, {1, 2}, {0, -1}},
      {"size", [](int x) { spar::simulator(x, {}); }, {1, 2}, {0, -1}},
      {"rank", [](int x) { (void)spar::thread_group(2).rank(x); }, {0, 1}, {-1, 2}},
      {"rank", [](int x) { (void)spar::simulator(2).rank(x); }, {0, 1}, {-1, 2}},
      {"cores", [](int x) { simulate({.cores = x}); }, {0, 9}, {-1}},
      {"ranks_per_host", [](int x) { simulate({.ranks_per_host = x}); }, {1, 9}, {0, -1}},
      {"rank", [](int x) { (void)spar::tree(spar::tree_node{.children = {{.rank = x}}}); }, {0}, {-2, 1}},
      {"root",
       [](int x) {
         spar::thread_group group(1);
         std::array<float, 2> values{};
         spar::broadcast(group.rank(0), std::span(values), x);
       },
       {0},
       {-1, 1}},
      {"buckets", [&](int x) { spar::selector::bucket_topk{.k = 0, .bucket = count(x)}.validate(9); }, {1, 99}, {0}},
      {"period", [&](int x) { spar::selector::threshold_reuse{.k = 1, .period = count(x)}.validate(9); }, {1, 9}, {0}},
      {"parts", [&](int x) { spar::recursive_doubling{.parts = count(x)}.validate(9); }, {1, 8}, {0, -1, 9}},
      {"tau", [&](int x) { spar::cheapest_owners{.tau = count(x)}.validate(9); }, {1, -1}, {0}},
      {"quorum", [](int x) { spar::quorum{.q = x}.validate(4); }, {1, 4}, {0, -1, 5}},
      {"bucket_bytes",
       [&](int x) {
         spar::thread_group group(1);
         const std::array<std::size_t, 1> sizes{2};
         const spar::fused_allreduce<spar::threads, float> fused(
             group.rank(0), sizes, {.bucket_bytes = static_cast<std::size_t>(x), .name = "a"});
       },
       {1, 9},
       {0}},
      {"threads",
       [](int x) { (void)spar::storage::zfp{.threads = x}.encoded_bytes<float>(9); },
       {1, 256},
       {0, -1, 257}},
  };
  for_each_model(all_selectors, [&]<class Selector>(const model<Selector>&) {
    if constexpr (requires(Selector by) { by.k; })
      all.push_back({"k", passes<Selector>([](Selector& by, std::uint64_t k) { by.k = k; }), {0, 9}, {-1, 10}});
    if constexpr (requires(Selector by) { by.threads; }) {
      const auto set = [](Selector& by, std::uint64_t threads) { by.threads = static_cast<int>(threads); };
      all.push_back({"threads", passes<Selector>(set), {1, 256}, {0, -1, 257}});
    }
  });
  for_each_model(all_schedules, [&]<class Schedule>(const model<Schedule>&) {
    if constexpr (requires(Schedule by) { by.piece; })
      all.push_back({"piece", passes<Schedule>([](Schedule& by, std::uint64_t n) { by.piece = n; }), {1, 9}, {0}});
    if constexpr (requires(Schedule by) { by.tau; })
      all.push_back({"tau", passes<Schedule>([](Schedule& by, std::uint64_t tau) { by.tau = tau; }), {1, -1}, {0}});
  });
  for (const whole& number : all) {
    SCOPED_TRACE(number.name);
    for (const int x : number.valid) EXPECT_EQ(refusal([&] { number.pass(x); }), std::nullopt) << x;
    for (const int x : number.invalid) {
      const auto why = refusal([&] { number.pass(x); });
      ASSERT_TRUE(why.has_value()) << x << " is accepted";
      EXPECT_NE(why->find(number.name), std::string::npos) << *why;
      EXPECT_NE(why->find("expected "), std::string::npos) << *why;
    }
  }
}

/// A selector whose k and density nobody has set would select nothing for ever.
TEST(bad_numbers, a_k_that_is_not_set_is_refused_and_k_0_selects_nothing) {
  using namespace spar::selector;
  const auto refused = []<class Selector>(const Selector& select, std::uint64_t n) {
    Selector with_0;
    with_0.k = 0;
    const auto why = refusal([&] { select.validate(n); });
    ASSERT_TRUE(why.has_value()) << select.name;
    EXPECT_NE(why->find("k"), std::string::npos) << *why;
    EXPECT_NE(why->find("expected"), std::string::npos) << *why;
    EXPECT_EQ(refusal([&] { with_0.validate(n); }), std::nullopt);
    EXPECT_EQ(with_0.bounds(n).most, 0U);
    EXPECT_EQ(spar::description_of(select), spar::description_of(with_0)); // ranks compare what they do
  };
  for (const std::uint64_t n : {0U, 1U, 1000U}) {
    for_each_model(all_selectors, [&]<class Selector>(const model<Selector>&) {
      if constexpr (requires(Selector by) { by.k; }) refused(Selector{}, n);
    });
  }
  EXPECT_EQ(refusal([] { exact_topk{.density = 0.5}.validate(4); }), std::nullopt);
  EXPECT_EQ(refusal([] { exact_topk{.k = 0, .density = 0.5}.validate(4); }), std::nullopt);

  const auto refused_system = [](const auto& system) {
    EXPECT_TRUE(refusal([&] { system.template validate<float>(1000, 2, spar::sum{}); }).has_value());
  };
  refused_system(spar::topka_allreduce{});
  refused_system(spar::topkdsa_allreduce{});
  refused_system(spar::gaussiank_allreduce{});
  refused_system(spar::gtopk_allreduce{});
  refused_system(spar::ok_topk_allreduce<>{});

  spar::thread_group group(2);
  group.run([](spar::threads& net) {
    spar::topka<float> reduce;
    std::vector<float> x(10, 1);
    EXPECT_TRUE(refusal([&] { reduce(net, std::span(x)); }).has_value());
    EXPECT_EQ(net.statistics().messages_sent, 0U);
    spar::topka<float> nothing{{.select = {.k = 0}}};
    nothing(net, std::span(x));
    EXPECT_EQ(x, std::vector<float>(10, 0));
  });
}

} // namespace
} // namespace spar_test
