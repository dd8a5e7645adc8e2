// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A thread that makes progress on the calls in flight of a rank while the application computes.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/atomic.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/progress.hpp>
#include <spar/runtime/tasks/rank_mutex.hpp>

#include <optional>

#include <sched.h>

namespace spar::inline v0_1 {

/// A communicator on which a progress thread may run while the thread of the application is busy. Rejects the
/// simulator, whose ranks all run on one thread; `nccl`, because the progress thread would have another current CUDA
/// device; and `faulty`, because it would sleep past the end of a delay.
template <class Net>
concept shareable = communicates<Net> && shared_transport<detail::port_type_of<Net>>;

/// How often a progress_thread over MPI polls. Over other transports a progress_thread need not poll.
struct progress_options {
  /// Seconds without a call in flight after which the thread polls less often; infinite: never.
  double idle = 1;
  /// Seconds between polls after `idle`, at most 60; may delay the first message of a call by `pause`.
  double pause = 5e-3;
};

/// Makes progress on a communicator in its own thread, from construction to destruction, so that calls in flight
/// continue while the application computes. The communicator must outlive the progress_thread: a program that
/// destroys the communicator first ends with a message that says so. With in-process ranks, the thread sleeps until
/// another rank sends or receives a message, for at most 0.05 s at a time; over MPI, the thread polls, and yields its
/// core between polls. Only one thread of the application may use the communicator, and that thread waits for calls by
/// `wait()` or `done()`, not in coroutines.
template <shareable Net>
class progress_thread {
 public:
  /// Starts the thread, which makes progress on `of` as often as `options` say. Throws `invalid_argument` if an option
  /// is negative, NaN or too large, if the rank already has a progress thread, or if MPI was not initialised with
  /// MPI_THREAD_MULTIPLE, and `error` if the system cannot start a thread.
  explicit progress_thread(Net& of, const progress_options& options = {})
      : net_(&detail::port_of(of)), options_(options) {
    auto& net = *net_;
    detail::check_number(options.idle, detail::valid::time_limit, "`idle` of progress_options");
    detail::check_number(options.pause, {0, 60, "0 to 60 seconds"}, "`pause` of progress_options");
    if (net.node().shared() != nullptr)
      raise<invalid_argument>({"rank ", net.rank(), " already has a progress thread"});
    net.share();
    shared_.emplace(net.node(), rank_mutex_);
    thread_ = detail::thread([this] { run(); });
  }
  progress_thread(const progress_thread&) = delete;
  /// Stops the thread and waits until it has ended, at most for one poll. Calls in flight stay in flight, and make
  /// progress as without a progress_thread. Throws nothing; the thread that uses the communicator must call it.
  ~progress_thread() {
    stopped_ = true;
    if constexpr (sleeps) net_->wake();
    thread_.join();
  }

 private:
  using port_type = detail::port_type_of<Net>;
  // The maximum duration of a sleep in seconds. Without a maximum, the thread could sleep too long, because nothing
  // wakes the thread when a call begins to wait or the deadline changes.
  static constexpr double longest_sleep = 0.05;
  static constexpr bool sleeps = sleeping_transport<port_type>;

  void run() {
    double rest_from = net_->now() + options_.idle;
    while (!stopped_) {
      double until = 0;
      {
        const detail::rank_lock lock(&rank_mutex_);
        try {
          net_->progress(false);
          until = spar::poll_waits(*net_, net_->now());
        } catch (...) {
          on_progress_error(*net_);
        }
        if (net_->node().busy()) rest_from = net_->now() + options_.idle;
      }
      rank_mutex_.yield_to_waiters();
      if constexpr (sleeps) {
        if (net_->sleep_until(std::min(until, net_->now() + longest_sleep))) continue;
      }
      if (net_->now() < rest_from)
        sched_yield();
      else
        detail::rest(options_.pause);
    }
  }

  /// Makes the application share the rank with this thread, as long as this object exists.
  class sharing {
   public:
    sharing(endpoint& node, detail::rank_mutex& by) noexcept : node_(&node) { node.share(&by); }
    sharing(const sharing&) = delete;
    ~sharing() { node_->share(nullptr); }

   private:
    endpoint* node_;
  };

  port_type* net_;
  progress_options options_;
  detail::rank_mutex rank_mutex_;
  std::optional<sharing> shared_;
  detail::atomic<bool> stopped_ = false;
  detail::thread thread_;
};

} // namespace spar::inline v0_1
