// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dense allreduce that takes the cheapest of recursive doubling, Rabenseifner's algorithm and the ring.
#pragma once

#include <spar/collective/rabenseifner.hpp>
#include <spar/collective/recursive_doubling.hpp>
#include <spar/collective/ring.hpp>
#include <spar/model/cost.hpp>

#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// All ranks know n, so each makes the same choice by itself.
struct dense {
  static constexpr std::string_view name = "dense";

  template <transport Net, element T, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    const problem call{net.size(), static_cast<double>(x.size()), static_cast<double>(x.size()), sizeof(T), 4};
    const network_model model = net.net().node().network();
    const double by_doubling = seconds_dense_recursive_doubling(model, call);
    const double by_halving = seconds_rabenseifner(model, call);
    // Where latency makes hardly a difference, the ring: on real networks its messages, which go one way on each
    // connection, are faster than exchanges, which the model does not see.
    const double by_ring = 0.99 * seconds_ring(model, call);
    const recursive_doubling doubling;
    const rabenseifner halving;
    const ring around;
    const auto start = [&] {
      if (by_doubling <= by_halving && by_doubling <= by_ring) return doubling(net, x, op);
      return by_halving <= by_ring ? halving(net, x, op) : around(net, x, op);
    };
    auto running = start(); // one wait for all three: each costs every user time to compile
    co_await std::move(running);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
