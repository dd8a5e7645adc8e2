// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs in which one allocation of one rank fails, and how they must end on every rank. A program is a class
// template `Program<Net>`: its constructor makes what belongs to one rank, its call operator makes the calls, and
// `check` compares the results.
#pragma once

#include "support/global_allocations.hpp"

#include <spar/spar.hpp>
#include <spar/strided.hpp>
#include <spar/system/eager_sgd.hpp>
#include <spar/system/fused.hpp>
#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spar_test {

/// How a program has ended on a rank.
struct memory_outcome {
  bool failed = false;    // whether an allocation of this rank has failed
  bool no_memory = false; // whether the program ended in std::bad_alloc
  bool dead = false;      // whether the communicator was dead then
  std::string error;      // the text of peer_failed, or of any other exception except std::bad_alloc
};

/// Runs a program, in which the allocation `number` fails unless it is 0, and then one more call.
template <template <class> class Program, class Net>
memory_outcome run_without_memory(Net& net, std::uint64_t number) {
  memory_outcome ended;
  net.set_deadline(20);
  Program<Net> program(net);
  std::vector<double> one(1, 1.0);
  try {
    {
      const failing_allocation failing(number);
      const struct noting {
        ~noting() { ended->failed = failing->failed(); }
        memory_outcome* ended;
        const failing_allocation* failing;
      } at_end{&ended, &failing};
      program();
    }
    spar::allreduce(net, std::span(one), spar::recursive_doubling{});
    EXPECT_EQ(one[0], net.size());
    program.check(static_cast<float>(net.size()));
  } catch (const std::bad_alloc&) {
    ended.no_memory = true;
  } catch (const spar::peer_failed& e) {
    ended.error = e.what();
  } catch (const std::exception& e) {
    ended.error = std::string("expected peer_failed, got: ") + e.what();
  }
  ended.dead = net.dead();
  return ended;
}

/// How the rank `rank` must end if an allocation of the rank `failing` fails, and `died` says whether the communicator
/// of `failing` died. Either all ranks have results, because spar can do without the memory, or `failing` gets
/// std::bad_alloc, and all others get peer_failed with this reason. Calls of `failing` that were in flight beside the
/// failed one, or started later, get peer_failed, too, of which a program may see only the first.
inline void expect_right_end(const memory_outcome& own, int rank, int failing, bool died) {
  const std::string which = "rank " + std::to_string(failing) + (rank == failing ? " (this rank)" : "");
  const std::string reason = which + " failed, so its communicator is dead: std::bad_alloc";
  EXPECT_EQ(own.dead, died) << "rank " << rank;
  EXPECT_FALSE(own.no_memory && rank != failing) << "rank " << rank;
  EXPECT_EQ(own.error, died && !own.no_memory ? reason : "") << "rank " << rank;
}

/// Values 1 of each rank, or their sum.
struct ones : std::vector<float> {
  explicit ones(std::size_t n) : std::vector<float>(n, 1.0F) {}
  void expect(float value) const { EXPECT_EQ(std::count(begin(), end(), value), static_cast<std::ptrdiff_t>(size())); }
};

template <class Net>
struct blocking_calls {
  explicit blocking_calls(Net& its) : net(its) {}
  Net& net;
  ones large{3000}, small{10}, by_name{100};

  void operator()() {
    spar::allreduce(net, large, spar::ring{});
    spar::allreduce(net, small);
    spar::allreduce(net, spar::named{"by name"}, by_name, spar::rabenseifner{});
  }
  void check(float ranks) const { large.expect(ranks), small.expect(ranks), by_name.expect(ranks); }
};

template <class Net>
struct nonblocking_calls {
  explicit nonblocking_calls(Net& its) : net(its) {}
  Net& net;
  ones a{3000}, b{10}, c{2000};

  void operator()() {
    auto first = spar::start_allreduce(net, a, spar::ring{});
    auto second = spar::start_allreduce(net, spar::named{"second"}, b, spar::recursive_doubling{});
    auto third = spar::start_allreduce(net, spar::named{"third"}, c, spar::ring{});
    third.wait();
    first.wait();
    second.wait();
  }
  void check(float ranks) const { a.expect(ranks), b.expect(ranks), c.expect(ranks); }
};

template <class Net>
struct calls_with_checksums : nonblocking_calls<Net> {
  explicit calls_with_checksums(Net& its) : nonblocking_calls<Net>(its) { its.set_checksums(true); }
};

template <class Net>
struct calls_on_streams {
  explicit calls_on_streams(Net& its) : net(its) {}
  Net& net;
  std::vector<std::uint32_t> indices{1, 5, 900};
  ones values{3};
  float sum = 0;
  std::uint64_t gathered = 0;

  void operator()() {
    const auto mine = spar::sparse_view(2000, indices, values);
    add(spar::allreduce(net, mine, spar::recursive_doubling{}));
    add(spar::allreduce(net, mine, spar::ssar_split{}));
    add(spar::allreduce(net, mine, spar::dsar_split{}));
    add(spar::allreduce(net, mine));
    gathered = spar::allgather(net, mine).count();
  }
  void add(const spar::sparse_stream<float>& result) { sum += result.values()[result.is_dense() ? 5 : 1]; }
  void check(float ranks) const {
    EXPECT_EQ(sum, 4 * ranks);
    EXPECT_EQ(static_cast<float>(gathered), 3 * ranks);
  }
};

template <class Net>
struct other_collectives {
  explicit other_collectives(Net& its) : net(its) {}
  Net& net;
  ones x{3000}, y{3000}, z{3000};

  void operator()() {
    spar::reduce(net, x, 0);
    spar::broadcast(net, x, 0);
    spar::reduce_scatter(net, y);
    spar::allgather(net, y);
    spar::barrier(net);
    net.set_network(spar::network_model{});
    auto last = spar::start_reduce(net, z, 0);
    last.wait();
    spar::broadcast(net, z, 0);
  }
  void check(float ranks) const { x.expect(ranks), y.expect(ranks), z.expect(ranks); }
};

template <class Net>
struct partial_calls {
  explicit partial_calls(Net& its) : net(its) {}
  Net& net;
  ones x{100}, y{100}, rest{100};

  void operator()() {
    auto reduce = spar::partial_allreduce<float>(net, 100, spar::everyone{}, spar::recursive_doubling{});
    reduce(x);
    auto call = reduce.start(y);
    call.wait();
    reduce.drain(rest);
  }
  void check(float ranks) const { x.expect(ranks), y.expect(ranks), rest.expect(0); }
};

template <class Net>
struct partial_steps {
  explicit partial_steps(Net& its) : net(its) {}
  Net& net;
  ones weights{100}, gradient{100};

  void operator()() {
    spar::eager_sgd<float, Net, spar::solo, spar::recursive_doubling> steps(net, 100);
    steps.step(weights, gradient, 0.5F);
    std::fill(gradient.begin(), gradient.end(), 1.0F);
    steps.step(weights, gradient, 0.5F);
    steps.finish(weights);
  }
  void check(float) const {
    for (const float w : weights) EXPECT_NEAR(w, 0, 1e-5F);
  }
};

template <class Net>
struct feedback_steps {
  explicit feedback_steps(Net& its) : net(its) {}
  Net& net;
  spar::ok_topk<float> reduce{{.select = {.k = 500}}};
  spar::ok_topk<float> of_gaps{{.select = {.k = 500}}, {.reject_nan = true}};
  ones x{500}, y{500}, with_gaps{1000}, weights{500}, gradient{500}, plain{500};

  void operator()() {
    reduce(net, x);
    auto call = reduce.start(net, spar::named{"feedback"}, y);
    call.wait();
    of_gaps(net, spar::strided(with_gaps.data(), {500}, {2}));
    spar::sgd_step(net, weights, gradient, 0.5F, reduce);
    spar::sgd_step(net, weights, plain, 0.5F, spar::ring{});
  }
  void check(float ranks) const {
    x.expect(ranks), y.expect(ranks);
    for (std::size_t i = 0; i < with_gaps.size(); ++i) EXPECT_EQ(with_gaps[i], i % 2 == 0 ? ranks : 1);
    for (const float w : weights) EXPECT_NEAR(w, 0, 1e-5F);
  }
};

template <class Net>
struct fused_calls {
  explicit fused_calls(Net& net) : fused(net, sizes, {.bucket_bytes = 1000, .name = "fused"}) {}
  std::vector<std::size_t> sizes{100, 100, 3000};
  spar::fused_allreduce<Net, float, spar::ring> fused;
  ones x{100}, y{100}, z{3000};

  void operator()() {
    fused.ready(2, z);
    fused.ready(0, x);
    fused.ready(1, y);
    fused.wait();
  }
  void check(float ranks) const { x.expect(ranks), y.expect(ranks), z.expect(ranks); }
};

} // namespace spar_test
