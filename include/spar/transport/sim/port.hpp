// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport of a simulated rank: its clock, its messages and its sleeping coroutines.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/matching.hpp>
#include <spar/runtime/operation.hpp>
#include <spar/transport/sim/deadlock_report.hpp>
#include <spar/transport/sim/network.hpp>

#include <coroutine>
#include <cstdint>
#include <string>
#include <vector>

namespace spar::inline v0_1 {

class simulator;

/// The transport of one rank of a `simulator`, with a clock of virtual time.
class sim_port : public endpoint {
 public:
  sim_port(simulator& engine, rank_t rank, rank_t size, const pool_owner& memory);

  [[nodiscard]] endpoint& node() noexcept { return *this; }
  [[nodiscard]] const endpoint& node() const noexcept { return *this; }
  [[nodiscard]] double now() const noexcept { return clock_; }
  void compute(std::uint64_t entries) noexcept;

 private:
  friend class simulator;
  template <class Ranks>
  friend std::string detail::sim_deadlock_report(Ranks& ranks);

  struct shipment : operation_record {
    shipment* next = nullptr;
    rank_t source = 0; // the sender; the member `peer` is the receiver
    header head;
    buffer<std::byte> payload;
    payload_views pieces{};
    sim_port* sender = nullptr;
    detail::sim_network::way way{};
    int holders = 0; // references from the operation, the event `left`, and the network or the receiver's buffer
  };
  struct expectation : operation_record {
    expectation* next = nullptr;
    message_buffer* into = nullptr;
  };

 public:
  operation<sim_port, shipment> send(const message_pieces& out, rank_t peer, tag_t tag);
  operation<sim_port, expectation> receive(message_buffer& in, rank_t source, tag_t tag);

  void post(const control_message& note, rank_t peer);
  void await(operation_record& r, std::coroutine_handle<> waiting);

  /// For decorators that must act at a later time: the simulator calls `act(context)` at each virtual time that was
  /// passed to `wake_at`.
  void on_alarm(void (*act)(void*), void* context) noexcept {
    alarm_ = act;
    alarm_context_ = context;
  }
  void wake_at(double time);

  auto sleep(double seconds) {
    detail::check_number(seconds, detail::valid::duration, "the duration of a sleep");
    return sleeping(*this, clock_ + seconds);
  }

  /// Outside of simulated programs, processes one event of the simulator; throws `deadlock` if `block` is true and no
  /// event is left. Inside a simulated program, throws `error` if `block` is true, because the program must `co_await`
  /// instead; otherwise does nothing.
  void progress(bool block);

  void abandon(shipment* s) noexcept;
  void abandon(expectation* r) noexcept {
    if (!r->done) matching_.withdraw(r);
    expectations_.recycle(r);
  }

 private:
  void deliver(shipment* s, expectation* r);

  /// Completes the operation `ended` at the time of the current event. If a coroutine awaits the operation, advances
  /// the clock of this rank to the time of the event.
  void complete(operation_record& ended);

  /// If the deadline of the longest-awaited operation has expired at the time of the current event, ends this operation
  /// in `timeout`.
  void check_deadline();

  class sleeping {
   public:
    sleeping(sim_port& net, double until) noexcept : net_(&net), until_(until) {}
    sleeping(const sleeping&) = delete;
    ~sleeping() {
      std::erase_if(net_->sleepers_, [this](const sleeper& s) { return s.program == program_; });
    }
    [[nodiscard]] static bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> program);
    static void await_resume() noexcept {}

   private:
    sim_port* net_;
    double until_;
    std::coroutine_handle<> program_;
  };

  simulator* engine_;
  double clock_ = 0;
  bool deadline_scheduled_ = false;
  bool has_left_ = false; // whether the program of this rank has ended, without an error
  void (*alarm_)(void*) = nullptr;
  void* alarm_context_ = nullptr;
  struct arriving_note {
    double time;
    control_message text;
  };
  std::vector<arriving_note> notes_; // control messages in flight to this rank, with room for the first abort
  rank_t aborted_by_ = -1;           // the rank whose abort came first; later aborts change nothing
  struct sleeper {
    double until;
    std::coroutine_handle<> program;
  };
  std::vector<sleeper> sleepers_;
  pool_requests requests_; // counts the requests of this rank to the memory pool that all ranks share
  detail::slab<expectation> expectations_;
  matching<shipment, expectation> matching_;
};

} // namespace spar::inline v0_1
