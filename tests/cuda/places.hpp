// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Places in which tests that are written for any transport run: values in device memory, on doubles of the CUDA runtime
// and of NCCL, and messages that stay there or travel through the host.
#pragma once

#include "over_nccl.hpp"
#include "support/values.hpp"

#include <spar/cuda.hpp>
#include <spar/on_device.cuh>
#include <spar/transport/faulty.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace spar_test {

/// The messages that a rank below has counted since the construction, if it is a `faulty`.
class messages_below {
 public:
  /// `lowest` is the rank over which, or over a part of which, the calls work.
  template <class Lowest>
  explicit messages_below(Lowest& lowest) {
    if constexpr (requires { lowest.received(); }) {
      sent_ = [&lowest, before = lowest.sent()] { return lowest.sent() - before; };
      received_ = [&lowest, before = lowest.received()] { return lowest.received() - before; };
    }
  }
  [[nodiscard]] std::uint64_t sent() const { return sent_(); }
  [[nodiscard]] std::uint64_t received() const { return received_(); }

 private:
  std::function<std::uint64_t()> sent_, received_;
};

/// A rank whose calls have their values in device memory, with the port of `on_device`, and with all functions of a
/// rank. Messages travel over `below`.
template <class Below>
class device_rank : public spar::communicator_rank<spar::device_port<spar::detail::port_type_of<Below>>>,
                    public messages_below {
 public:
  template <class Lowest>
  device_rank(Below& below, Lowest& lowest)
      : device_rank::communicator_rank(spar::detail::port_of(below)), messages_below(lowest) {}
};

/// Values in device memory, which a device writes late, and which are freed at the end of the call, even if it failed.
template <class Net>
  requires spar::values_on_device<spar::detail::port_type_of<Net>>
class call_values<Net> {
 public:
  call_values(Net& net, const std::vector<float>& values) : net_(&net), values_(std::vector<float>(values.size(), -1)) {
    values_.write(work_, values);
    order().follow(work_);
  }
  call_values(const call_values&) = delete;
  ~call_values() { net_->port().end_work(); }
  [[nodiscard]] std::span<float> span() { return {values_.data(), values_.size()}; }
  [[nodiscard]] std::vector<float> read() {
    order().precede(work_);
    return values_.read(work_);
  }

 private:
  spar::detail::device_stream& order() { return net_->port().work().order(); }

  Net* net_;
  cuda_double::stream work_;
  cuda_double::device_array<float> values_;
};

/// A rank with values in device memory, whose collectives run on the host.
template <class Net>
class staged_rank : public spar::staged<Net>, public messages_below {
 public:
  template <class Lowest>
  staged_rank(Net& net, Lowest& lowest) : spar::staged<Net>(net), messages_below(lowest) {}
  [[nodiscard]] spar::rank_t rank() const { return this->net().rank(); }
  [[nodiscard]] spar::rank_t size() const { return this->net().size(); }
  [[nodiscard]] double now() const { return this->net().now(); }
  [[nodiscard]] bool dead() const { return this->net().dead(); }
  void set_deadline(double seconds) { this->net().set_deadline(seconds); }
  void set_checksums(bool on) { this->net().set_checksums(on); }
  void progress(bool block) { this->net().progress(block); }
  [[nodiscard]] spar::scheduler& scheduler() const { return spar::detail::port_of(this->net()).scheduler(); }
};
template <class Net>
inline constexpr bool calls_only_block<staged_rank<Net>> = true;
template <class Net>
void abort(staged_rank<Net>& net, const std::string& reason) {
  spar::abort(net.net(), reason);
}
template <class Below>
class call_values<staged_rank<Below>> {
 public:
  call_values(staged_rank<Below>&, const std::vector<float>& values) : values_(values) {}
  [[nodiscard]] spar::device_span<float> span() { return {values_.data(), values_.size(), work_}; }
  [[nodiscard]] std::vector<float> read() { return values_.read(work_); }

 private:
  cuda_double::stream work_;
  cuda_double::device_array<float> values_;
};

/// Payloads in device memory, unless `on_host`: the device writes and reads them in the stream of the values.
template <spar::values_on_device Net>
struct payload_access<Net> {
  static void write(Net& net, bool on_host, std::span<std::byte> to, const std::vector<std::byte>& bytes) {
    const auto copy = [=] { std::copy(bytes.begin(), bytes.end(), to.begin()); };
    if (on_host)
      copy();
    else
      cuda_double::put(net.work().stream(), copy);
  }
  static std::vector<std::byte> read(Net& net, bool on_host, std::span<const std::byte> from) {
    if (on_host) return {from.begin(), from.end()};
    return cuda_double::values_at(from.data(), from.size(), net.work().stream());
  }
};

/// Waits, without progress, until all ranks of a run have called it: a call that fails must not end the construction on
/// another rank.
inline void wait_for_all(spar::rank_t ranks) {
  static std::atomic<int> arrived = 0, runs = 0;
  const int run = runs;
  if (++arrived == ranks) {
    arrived = 0;
    ++runs;
  }
  while (runs == run) std::this_thread::yield();
}

/// Messages stay in the memory of the sender, whose device all ranks share.
struct lent {
  template <class Net, class Body>
  static void on(Net& net, const Body& body) {
    device_rank<Net> gpu(net, net);
    wait_for_all(net.size());
    body(gpu);
  }
};
/// Messages travel through the host.
struct through_the_host {
  static constexpr bool spare_headers = false; // see `setting`
  template <class Net, class Body>
  static void on(Net& net, const Body& body) {
    cuda_double::set_device(net.rank()); // which reaches no other device
    device_rank<Net> gpu(net, net);
    wait_for_all(net.size());
    body(gpu);
  }
  static spar::fault after_start(const spar::fault& planned, spar::rank_t, spar::rank_t) { return planned; }
};
/// The whole vector travels to the host and back.
struct staged_values : through_the_host {
  template <class Net, class Body>
  static void on(Net& net, const Body& body) {
    staged_rank<Net> gpu(net, net);
    body(gpu);
  }
};
/// Messages of more than `EagerBytes` bytes travel by NCCL.
template <std::size_t EagerBytes>
struct by_nccl {
  static constexpr bool spare_headers = true;
  template <class Net, class Body>
  static void on(Net& net, const Body& body) {
    cuda_double::set_device(net.rank());
    spar::nccl over(net, {.eager_bytes = EagerBytes});
    device_rank<spar::nccl<Net>> gpu(over, net);
    wait_for_all(net.size());
    body(gpu);
  }
  /// Rank 0 sends the id of the communicator to all others.
  static spar::fault after_start(const spar::fault& planned, spar::rank_t rank, spar::rank_t ranks) {
    using kind = spar::fault::kind;
    const std::uint64_t sent = rank == 0 ? static_cast<std::uint64_t>(ranks - 1) : 0, received = rank == 0 ? 0 : 1;
    spar::fault moved = planned;
    if (planned.what != kind::corrupt_header && planned.what != kind::corrupt_payload) moved.message += sent;
    if (planned.what != kind::delay && planned.what != kind::drop) moved.message += received;
    return moved;
  }
};
/// The whole vector travels to the host and back, and messages by NCCL.
struct staged_by_nccl : by_nccl<0> {
  template <class Net, class Body>
  static void on(Net& net, const Body& body) {
    cuda_double::set_device(net.rank()); // a release of memory waits for all work of the device
    spar::nccl over(net, {.eager_bytes = 0});
    staged_rank<spar::nccl<Net>> gpu(over, net);
    wait_for_all(net.size());
    body(gpu);
  }
};

/// Makes two calls on each of this rank's communicators, all in flight at the same time, with values in device memory:
/// each gives the bits of the same call on the host. Ranks poll the calls in different orders.
template <class Net>
void compare_calls_in_flight(const std::vector<Net*>& nets, bool lends, std::uint64_t seed) {
  constexpr std::size_t n = 5000;
  const auto start = [](auto& on, std::size_t number, auto values) {
    if (number % 2 == 0) return spar::start_allreduce(on, values, spar::ring{});
    const auto entries = spar::compose(spar::selector::exact_topk{.k = 2000}, spar::recursive_doubling{});
    return spar::start_allreduce(on, values, entries);
  };
  std::vector<std::vector<float>> expected;
  const cuda_double::stream work;
  std::deque<cuda_double::device_array<float>> values;
  std::deque<spar::on_device<Net>> gpus;
  for (Net* const net : nets) {
    for (std::size_t number = 0; number < 2; ++number) {
      auto& x = expected.emplace_back(over_nccl::values_of(nets[0]->rank(), n + values.size()));
      values.emplace_back(std::vector<float>(x.size(), -1)).write(work, x); // the call must wait for it
      start(*net, number, std::span(x)).wait();
    }
    EXPECT_EQ(gpus.emplace_back(*net).lends(), lends);
  }
  cuda_double::stall(work);
  std::vector<spar::pending_on_device<typename spar::on_device<Net>::port_type>> calls;
  for (std::size_t c = 0; c < values.size(); ++c)
    calls.push_back(start(gpus[c / 2], c % 2, spar::device_span(values[c].data(), n + c, work)));
  std::mt19937_64 random(seed * 10 + static_cast<std::uint64_t>(nets[0]->rank()));
  std::vector<std::size_t> order(calls.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t ended = 0; ended < calls.size(); std::this_thread::yield()) {
    std::shuffle(order.begin(), order.end(), random);
    ended = 0;
    for (const std::size_t c : order) ended += calls[c].done() ? 1 : 0;
  }
  for (std::size_t c = 0; c < calls.size(); ++c) {
    calls[c].wait();
    EXPECT_TRUE(values[c].read(work) == expected[c]) << "call " << c;
  }
}

} // namespace spar_test
