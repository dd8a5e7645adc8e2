// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The uneven reduce-scatter and all-gather of a plan: FlexReduce_execute (FlexReduce, section III-B, figure 3a), of
// dense values and, beyond the paper, of streams.
#pragma once

#include <spar/collective/flex_plan.hpp>
#include <spar/core/fixed_vector.hpp>
#include <spar/core/task.hpp>
#include <spar/storage/concatenate.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/wire.hpp>
#include <spar/transport/channel.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace spar {

namespace detail {

/// What a rank does for its part of a call in a round of the reduce-scatter: in round s the chain's rank s sends what
/// it has of the subrange to the next one.
template <class Send, class Receive>
void reduce_hop(std::span<const rank_t> chain, std::size_t place, std::size_t round, Send send, Receive receive) {
  if (place == round && round + 1 < chain.size()) send(chain[place + 1]);
  if (place == round + 1) receive(chain[round]);
}

/// And in a round of the all-gather, in which the values go from the root to the chain's first rank and on. The holder
/// in the child of a root that held nothing itself gets them from the root as well.
template <class Send, class Receive>
void gather_hop(std::span<const rank_t> chain, bool root_holds, std::size_t place, std::size_t round, Send send,
                Receive receive) {
  const std::size_t root = chain.size() - 1;
  const std::size_t others = root_holds ? root : root - 1; // ranks 0 to others - 1 pass the values on
  if (place == root) {
    if (round == 0 && others > 0) send(chain[0]);
    if (round == 0 && !root_holds) send(chain[others]);
  } else if (place == others) {
    if (round == 0) receive(chain[root]);
  } else {
    if (round == place) receive(chain[place == 0 ? root : place - 1]);
    if (round == place + 1 && place + 1 < others) send(chain[place + 1]);
  }
}

/// A message that a rank is due in a round. A transport has one receive at a time from each rank, so the second one
/// from a rank has its turn when the first ones of all have arrived.
struct due_message {
  rank_t from;
  std::size_t part; // of this rank's, for which it is
  std::size_t turn;
};
class due_messages {
 public:
  due_messages(pool& memory, std::size_t room) : messages_(memory, room) {}
  void add(rank_t from, std::size_t part) {
    std::size_t turn = 0;
    for (const due_message& earlier : all()) turn += earlier.from == from ? 1 : 0;
    messages_.span()[count_++] = {from, part, turn};
    turns_ = std::max(turns_, turn + 1);
  }
  [[nodiscard]] std::span<const due_message> all() const noexcept { return messages_.span().first(count_); }
  [[nodiscard]] std::size_t turns() const noexcept { return turns_; }

 private:
  buffer<due_message> messages_;
  std::size_t count_ = 0;
  std::size_t turns_ = 0;
};

/// The result of a single rank; or, of no values, one that is alike on all ranks.
template <transport Net, element T, index_type Index>
stream<T, Index> where_nothing_moves(const channel<Net>& net, const stream_view<T, Index>& mine) {
  return net.size() == 1 ? stream<T, Index>::copy(net.memory(), mine) : stream<T, Index>::sparse(net.memory(), 0, 0);
}

} // namespace detail

/// Level by level from the bottom up, the calls of a level side by side, in rounds. In place: what the plan gives a
/// rank is reduced afterwards, the rest is unspecified.
template <transport Net, element T, reduction<T> Op>
task<void> flex_reduce_scatter(channel<Net> net, const flex_plan* plan, std::span<T> x, Op op) {
  plan->check(x.size(), net.size());
  const auto own = [=](const flex_plan::call& c) { return x.subspan(c.range.begin, c.range.size()); };
  for (std::size_t level = 0; level < plan->levels(); ++level) {
    const auto parts = plan->parts(level, net.rank());
    for (std::size_t round = 0; round + 1 < plan->longest_chain(level); ++round) {
      fixed_vector<decltype(net.send(0, encode<T>(x)))> sending(net.memory(), parts.size());
      detail::due_messages due(net.memory(), parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto& call = (*plan)[parts[i]];
        detail::reduce_hop(
            plan->chain(call), parts[i].place, round,
            [&](rank_t to) { sending.emplace_back(net.send(to, encode<T>(own(call)))); },
            [&](rank_t from) { due.add(from, i); });
      }
      for (std::size_t turn = 0; turn < due.turns(); ++turn) {
        fixed_vector<message_buffer> arrived(net.memory(), due.all().size());
        fixed_vector<decltype(net.receive(0, arrived[0]))> receiving(net.memory(), due.all().size());
        for (const auto& d : due.all()) {
          if (d.turn != turn) continue;
          message_buffer& in = arrived.emplace_back(net.memory());
          if (!plan->adds(parts[d.part])) in.place(0, own((*plan)[parts[d.part]]));
          receiving.emplace_back(net.receive(d.from, in));
        }
        std::size_t next = 0;
        for (const auto& d : due.all()) {
          if (d.turn != turn) continue;
          const auto& call = (*plan)[parts[d.part]];
          message_buffer& in = arrived[next];
          co_await receiving[next++];
          const auto partial = in.template piece<T>(0);
          if (partial.size() != call.range.size()) throw corrupt_message("a subrange of a plan has the wrong length");
          if (plan->adds(parts[d.part])) {
            net.compute(partial.size());
            kernel::reduce_left(own(call).data(), partial.data(), partial.size(), op);
          }
          in.release();
        }
      }
      for (auto& s : sending) co_await s;
    }
  }
}

/// The same of a stream: the entries of what the plan gives this rank.
template <transport Net, element T, index_type Index, reduction<T> Op>
task<stream<T, Index>> flex_reduce_scatter(channel<Net> net, const flex_plan* plan, stream_view<T, Index> mine, Op op) {
  plan->check(mine.dimension(), net.size());
  pool& memory = net.memory();
  stream<T, Index> held;
  stream_view<T, Index> have = mine;
  bool moved = false; // `have` is `held`
  for (std::size_t level = 0; level < plan->levels(); ++level) {
    const auto parts = plan->parts(level, net.rank());
    if (parts.empty()) continue; // not below a branch of this level
    const auto slice = [&](const flex_plan::call& c) { return have.slice(c.range.begin, c.range.end); };
    fixed_vector<stream<T, Index>> sums(memory, parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) sums.emplace_back();
    const auto sum_of = [&](std::size_t i) {
      return parts[i].place == 0 ? slice((*plan)[parts[i]]) : std::as_const(sums[i]).view();
    };
    for (std::size_t round = 0; round + 1 < plan->longest_chain(level); ++round) {
      fixed_vector<decltype(net.send(0, encode(mine)))> sending(memory, parts.size());
      detail::due_messages due(memory, parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        detail::reduce_hop(
            plan->chain((*plan)[parts[i]]), parts[i].place, round,
            [&](rank_t to) { sending.emplace_back(net.send(to, encode(sum_of(i)))); },
            [&](rank_t from) { due.add(from, i); });
      }
      for (std::size_t turn = 0; turn < due.turns(); ++turn) {
        fixed_vector<message_buffer> arrived(memory, due.all().size());
        fixed_vector<decltype(net.receive(0, arrived[0]))> receiving(memory, due.all().size());
        for (const auto& d : due.all()) {
          if (d.turn == turn) receiving.emplace_back(net.receive(d.from, arrived.emplace_back(memory)));
        }
        std::size_t next = 0;
        for (const auto& d : due.all()) {
          if (d.turn != turn) continue;
          const auto& call = (*plan)[parts[d.part]];
          message_buffer& in = arrived[next];
          co_await receiving[next++];
          const auto partial = decode<T, Index>(in, call.range);
          if (plan->adds(parts[d.part])) {
            const auto own = slice(call);
            net.compute(partial.count() + own.count());
            sums[d.part] = merge(partial, own, call.range, dense_threshold<T, Index>(call.range.size()), op, memory);
          } else {
            sums[d.part] = stream<T, Index>::copy(memory, partial);
          }
          in.release();
        }
      }
      for (auto& s : sending) co_await s;
    }
    buffer<stream_view<T, Index>> owned(memory, parts.size());
    std::size_t calls = 0;
    index_range range{0, 0};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!plan->is_root(parts[i])) continue;
      const index_range added = (*plan)[parts[i]].range;
      range = {calls == 0 ? added.begin : range.begin, added.end};
      owned.span()[calls++] = sum_of(i);
    }
    auto next = concatenate(std::as_const(owned).span().first(calls), mine.dimension(), range, op.template neutral<T>(),
                            memory);
    held = std::move(next);
    have = held.view();
    moved = true;
  }
  if (!moved) held = detail::where_nothing_moves(net, mine);
  co_return held;
}

/// The levels in reverse: each root's values go along its chain, to everyone that had a part in them. In place.
template <transport Net, element T>
task<void> flex_allgather(channel<Net> net, const flex_plan* plan, std::span<T> x) {
  plan->check(x.size(), net.size());
  const auto own = [=](const flex_plan::call& c) { return x.subspan(c.range.begin, c.range.size()); };
  for (std::size_t level = plan->levels(); level-- > 0;) {
    const auto parts = plan->parts(level, net.rank());
    for (std::size_t round = 0; round + 1 < plan->longest_chain(level); ++round) {
      fixed_vector<decltype(net.send(0, encode<T>(x)))> sending(net.memory(), 2 * parts.size());
      detail::due_messages due(net.memory(), parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto& call = (*plan)[parts[i]];
        detail::gather_hop(
            plan->chain(call), call.root_holds, parts[i].place, round,
            [&](rank_t to) { sending.emplace_back(net.send(to, encode<T>(own(call)))); },
            [&](rank_t from) { due.add(from, i); });
      }
      for (std::size_t turn = 0; turn < due.turns(); ++turn) {
        fixed_vector<message_buffer> arrived(net.memory(), due.all().size());
        fixed_vector<decltype(net.receive(0, arrived[0]))> receiving(net.memory(), due.all().size());
        for (const auto& d : due.all()) {
          if (d.turn != turn) continue;
          message_buffer& in = arrived.emplace_back(net.memory());
          in.place(0, own((*plan)[parts[d.part]]));
          receiving.emplace_back(net.receive(d.from, in));
        }
        for (auto& r : receiving) co_await r;
      }
      for (auto& s : sending) co_await s;
    }
  }
}

/// The same of streams: from the entries of what the plan gives each rank to all; where a range turns dense, absent
/// entries become `absent`.
template <transport Net, element T, index_type Index>
task<stream<T, Index>> flex_allgather(channel<Net> net, const flex_plan* plan, stream_view<T, Index> mine, T absent) {
  plan->check(mine.dimension(), net.size());
  pool& memory = net.memory();
  stream<T, Index> held;
  stream_view<T, Index> have = mine;
  bool moved = false; // `have` is `held`
  for (std::size_t level = plan->levels(); level-- > 0;) {
    const auto parts = plan->parts(level, net.rank());
    if (parts.empty()) continue;
    fixed_vector<stream<T, Index>> got(memory, parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) got.emplace_back();
    const auto all_of = [&](std::size_t i) {
      const auto& range = (*plan)[parts[i]].range;
      return plan->is_root(parts[i]) ? have.slice(range.begin, range.end) : std::as_const(got[i]).view();
    };
    for (std::size_t round = 0; round + 1 < plan->longest_chain(level); ++round) {
      fixed_vector<decltype(net.send(0, encode(mine)))> sending(memory, 2 * parts.size());
      detail::due_messages due(memory, parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto& call = (*plan)[parts[i]];
        detail::gather_hop(
            plan->chain(call), call.root_holds, parts[i].place, round,
            [&](rank_t to) { sending.emplace_back(net.send(to, encode(all_of(i)))); },
            [&](rank_t from) { due.add(from, i); });
      }
      for (std::size_t turn = 0; turn < due.turns(); ++turn) {
        fixed_vector<message_buffer> arrived(memory, due.all().size());
        fixed_vector<decltype(net.receive(0, arrived[0]))> receiving(memory, due.all().size());
        for (const auto& d : due.all()) {
          if (d.turn == turn) receiving.emplace_back(net.receive(d.from, arrived.emplace_back(memory)));
        }
        std::size_t next = 0;
        for (const auto& d : due.all()) {
          if (d.turn != turn) continue;
          message_buffer& in = arrived[next];
          co_await receiving[next++];
          got[d.part] = stream<T, Index>::copy(memory, decode<T, Index>(in, (*plan)[parts[d.part]].range));
          in.release();
        }
      }
      for (auto& s : sending) co_await s;
    }
    buffer<stream_view<T, Index>> held_before(memory, parts.size());
    std::size_t calls = 0;
    index_range range{0, 0};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& call = (*plan)[parts[i]];
      if (plan->is_root(parts[i]) && !call.root_holds) continue; // it had nothing of this one on the level below
      range = {calls == 0 ? call.range.begin : range.begin, call.range.end};
      held_before.span()[calls++] = all_of(i);
    }
    auto next = concatenate(std::as_const(held_before).span().first(calls), mine.dimension(), range, absent, memory);
    held = std::move(next);
    have = held.view();
    moved = true;
  }
  if (!moved) held = detail::where_nothing_moves(net, mine);
  co_return held;
}

} // namespace spar
