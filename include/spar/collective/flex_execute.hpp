// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The uneven reduce-scatter and all-gather of a plan: FlexReduce_execute (FlexReduce, section III-B, figure 3a).
#pragma once

#include <spar/collective/flex_plan.hpp>
#include <spar/core/fixed_vector.hpp>
#include <spar/core/task.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/wire.hpp>
#include <spar/transport/channel.hpp>

#include <cstddef>
#include <span>

namespace spar {

/// Level by level from the bottom up, the calls of a level side by side, in rounds: in round s the chain's rank s sends
/// what it has of the subrange to the next one, which adds its own. In place: what the plan gives a rank is reduced
/// afterwards, the rest is unspecified.
template <transport Net, element T, reduction<T> Op>
task<void> flex_reduce_scatter(channel<Net> net, const flex_plan* plan, std::span<T> x, Op op) {
  const auto own = [=](const flex_plan::call& c) { return x.subspan(c.range.begin, c.range.size()); };
  for (std::size_t level = 0; level < plan->levels(); ++level) {
    const auto parts = plan->parts(level, net.rank());
    for (std::size_t round = 0; round + 1 < plan->longest_chain(level); ++round) {
      fixed_vector<decltype(net.send(0, encode<T>(x)))> sending(net.memory(), parts.size());
      fixed_vector<message_buffer> arrived(net.memory(), parts.size());
      fixed_vector<decltype(net.receive(0, arrived[0]))> receiving(net.memory(), parts.size());
      for (const auto& p : parts) {
        const auto& call = (*plan)[p];
        const auto chain = plan->chain(call);
        if (p.place == round && round + 1 < chain.size()) {
          sending.emplace_back(net.send(chain[round + 1], encode<T>(own(call))));
        }
        if (p.place == round + 1) {
          message_buffer& in = arrived.emplace_back(net.memory());
          const bool adds = p.place + 1 < chain.size() || call.root_holds;
          if (!adds) in.place(0, own(call));
          receiving.emplace_back(net.receive(chain[round], in));
        }
      }
      std::size_t next = 0;
      for (const auto& p : parts) {
        if (p.place != round + 1) continue;
        const auto& call = (*plan)[p];
        message_buffer& in = arrived[next];
        co_await receiving[next++];
        const auto partial = in.template piece<T>(0);
        if (partial.size() != call.range.size()) throw corrupt_message("a subrange of a plan has the wrong length");
        if (p.place + 1 < plan->chain(call).size() || call.root_holds) {
          net.compute(partial.size());
          kernel::reduce_left(own(call).data(), partial.data(), partial.size(), op);
        }
        in.release();
      }
      for (auto& s : sending) co_await s;
    }
  }
}

/// The levels in reverse: each root's values go along its chain, to everyone that had a part in them.
template <transport Net, element T>
task<void> flex_allgather(channel<Net> net, const flex_plan* plan, std::span<T> x) {
  const auto own = [=](const flex_plan::call& c) { return x.subspan(c.range.begin, c.range.size()); };
  for (std::size_t level = plan->levels(); level-- > 0;) {
    const auto parts = plan->parts(level, net.rank());
    for (std::size_t round = 0; round + 1 < plan->longest_chain(level); ++round) {
      fixed_vector<decltype(net.send(0, encode<T>(x)))> sending(net.memory(), 2 * parts.size());
      fixed_vector<message_buffer> arrived(net.memory(), parts.size());
      fixed_vector<decltype(net.receive(0, arrived[0]))> receiving(net.memory(), parts.size());
      for (const auto& p : parts) {
        const auto& call = (*plan)[p];
        const auto chain = plan->chain(call);
        const std::size_t root = chain.size() - 1;
        const std::size_t ring = call.root_holds ? root : root - 1; // ranks 0 to ring - 1 pass the values on
        const auto send = [&](std::size_t to) { sending.emplace_back(net.send(chain[to], encode<T>(own(call)))); };
        const auto receive = [&](std::size_t from) {
          message_buffer& in = arrived.emplace_back(net.memory());
          in.place(0, own(call));
          receiving.emplace_back(net.receive(chain[from], in));
        };
        if (p.place == root) {
          if (round == 0 && ring > 0) send(0);
          if (round == 0 && !call.root_holds) send(ring);
        } else if (p.place == ring) {
          if (round == 0) receive(root);
        } else {
          if (round == p.place) receive(p.place == 0 ? root : p.place - 1);
          if (round == p.place + 1 && p.place + 1 < ring) send(p.place + 1);
        }
      }
      for (auto& r : receiving) co_await r;
      arrived.clear();
      for (auto& s : sending) co_await s;
    }
  }
}

} // namespace spar
