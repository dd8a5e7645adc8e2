// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages of every form between all ranks, wherever their payloads are: what a transport must carry unchanged, and in
// order on each lane.
#pragma once

#include "support/values.hpp"

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace spar_test {

/// How the receiver gets a message: where the transport chooses, in memory of its own, or in places it has chosen.
enum class destination { any, own, chosen };

struct planned_message {
  spar::rank_t from = 0, to = 0;
  std::uint8_t lane = 0;
  bool on_host = false; // even if the values of the call are on a device
  destination where{};
  spar::wire_format format{};
  std::array<std::size_t, spar::max_pieces> sizes{};
  std::uint64_t seed = 0; // of the contents

  [[nodiscard]] std::vector<std::byte> contents(std::size_t piece) const {
    std::mt19937_64 random(seed * spar::max_pieces + piece);
    std::vector<std::byte> bytes(sizes[piece]);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    return bytes;
  }
};

/// The messages of one call. Sizes are near the limits at which transports change the way of a payload.
inline std::vector<planned_message> plan_messages(spar::rank_t ranks, std::uint64_t seed) {
  constexpr std::size_t lengths[] = {0, 1, 15, 16, 17, 100, 399, 400, 401, 1024, 4080, 4095, 4096, 4097, 6000, 20'000};
  std::mt19937_64 random(seed);
  std::vector<planned_message> all;
  while (all.size() < 24) {
    planned_message m{.from = static_cast<spar::rank_t>(random() % static_cast<std::uint64_t>(ranks)),
                      .to = static_cast<spar::rank_t>(random() % static_cast<std::uint64_t>(ranks)),
                      .lane = static_cast<std::uint8_t>(random() % 3),
                      .on_host = random() % 4 == 0,
                      .where = static_cast<destination>(random() % 3),
                      .format = static_cast<spar::wire_format>(1 + random() % 5),
                      .seed = random()};
    if (m.from == m.to) continue; // no rank sends to itself
    const std::size_t pieces = m.where == destination::own ? 1 : 1 + random() % spar::max_pieces;
    for (std::size_t i = 0; i < pieces; ++i) m.sizes[i] = lengths[random() % std::size(lengths)];
    all.push_back(m);
  }
  return all;
}

/// Sends all planned messages of this rank, and checks those that it receives.
struct exchange {
  const std::vector<planned_message>* plan;

  template <spar::transport Net>
  static spar::task<void> send_on(spar::channel<Net> net, spar::rank_t to, spar::payload out) {
    auto sending = net.send(to, out);
    co_await sending;
  }
  template <spar::transport Net>
  static spar::task<void> receive_on(spar::channel<Net> net, spar::rank_t from, spar::message_buffer& in) {
    auto receiving = net.receive(from, in);
    co_await receiving;
  }
  template <spar::transport Net>
  static std::pmr::memory_resource& memory_of(const spar::channel<Net>& net, bool on_host) {
    if (on_host) return net.memory();
    return net.work().memory();
  }

  template <spar::transport Net>
  spar::task<void> operator()(spar::channel<Net> net) const {
    std::vector<spar::buffer<std::byte>> payloads, places;
    std::vector<spar::task<void>> sending;
    for (const planned_message& m : *plan) {
      if (m.from != net.rank()) continue;
      spar::payload out{.format = m.format, .count = m.sizes[0]};
      for (std::size_t i = 0; i < spar::max_pieces; ++i) {
        if (m.sizes[i] == 0) continue;
        auto& bytes = payloads.emplace_back(memory_of(net, m.on_host), m.sizes[i]);
        payload_access<Net>::write(net.net(), m.on_host, bytes.span(), m.contents(i));
        out.pieces[i] = bytes.span();
      }
      const auto lane = net.lane(m.lane);
      sending.push_back(m.on_host ? send_on(lane.on_host(), m.to, out) : send_on(lane, m.to, out));
    }
    for (const planned_message& m : *plan) {
      if (m.to != net.rank()) continue;
      spar::message_buffer in(memory_of(net, m.on_host));
      if (m.where == destination::own) in.expect(m.sizes[0]);
      for (std::size_t i = 0; i < spar::max_pieces && m.where == destination::chosen; ++i) {
        if (m.sizes[i] > 0) in.place(i, places.emplace_back(memory_of(net, m.on_host), m.sizes[i]).span());
      }
      const auto lane = net.lane(m.lane);
      auto receiving = m.on_host ? receive_on(lane.on_host(), m.from, in) : receive_on(lane, m.from, in);
      co_await std::move(receiving);
      EXPECT_EQ(in.head().format, m.format);
      EXPECT_EQ(in.head().count, m.sizes[0]);
      for (std::size_t i = 0; i < spar::max_pieces; ++i) {
        const auto got = payload_access<Net>::read(net.net(), m.on_host, in.template piece<std::byte>(i));
        EXPECT_TRUE(got == m.contents(i)) << "piece " << i << " of " << m.sizes[i] << " bytes, from rank " << m.from
                                          << " to rank " << m.to << ", lane " << static_cast<unsigned>(m.lane);
      }
      if (m.where == destination::chosen && m.sizes[0] > 0) {
        EXPECT_EQ(in.pieces()[0].size(), m.sizes[0]);
      }
    }
    for (auto& s : sending) co_await std::move(s);
  }
};

/// Runs several calls with random messages, without and with checksums.
template <class Place, class Net>
void exchange_messages(Net& below, std::uint64_t seed) {
  Place::on(below, [&](auto& net) {
    for (std::uint64_t call = 0; call < 4; ++call) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", call " << call);
      net.set_checksums(call % 2 == 1);
      const auto plan = plan_messages(net.size(), seed * 10 + call);
      const spar::signature agreed{.element = spar::code_of<float>, .dimension = seed};
      spar::run_collective(net, agreed, exchange{&plan});
    }
  });
}

} // namespace spar_test
