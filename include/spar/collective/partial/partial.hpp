// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A partial allreduce, which does not wait for late ranks and includes their contributions in a later round (eager-SGD,
// sections 4 and 5). An object on each rank runs all rounds; a round is started by a call on the same rank or by an
// activation from another rank.
#pragma once

#include <spar/collective/basic/allgather.hpp>
#include <spar/collective/partial/activation.hpp>
#include <spar/collective/partial/backlog.hpp>
#include <spar/collective/partial/participants.hpp>
#include <spar/collective/prepare.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/control_subscription.hpp>
#include <spar/runtime/pending.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// Options of a partial collective, equal on all ranks.
struct partial_options {
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max(); ///< a `tau` without a bound
  /// The number of rounds that may run ahead of a rank's calls; the rank keeps the results of these rounds until it
  /// makes the calls. With 0, every round waits for the calls of all ranks. Must be equal on all ranks.
  std::uint64_t tau = 64;
};

namespace detail {

/// The policy of a partial allreduce: the algorithm, the participation, the options of both, and tau must be equal on
/// all ranks.
template <class Algorithm, class Participation>
struct partial_terms {
  static constexpr std::string_view name = "partial";
  const Algorithm* algorithm;
  const Participation* who;
  std::uint64_t tau;

  void options(auto&& f) const { f("algorithm", *algorithm), f("participation", *who), f("tau", tau); }
};

} // namespace detail

/// One rank's part of a partial allreduce. An engine runs one round after the other; the calls provide the input of the
/// rounds and return their results.
///
/// - Call t returns the result of round t, at once if round t has already run. All ranks get the same bits and the same
///   `participants`.
/// - Round r starts on this rank when round r has been activated and this rank has made at least r - tau calls. Which
///   ranks' calls activate a round depends on the participation. When round r starts, the rank contributes all its
///   calls that are in no earlier round, so every call is in exactly one round.
/// - All ranks must make the same number of calls and then call `drain`, which runs a last round of all ranks with all
///   calls that are in no earlier round. A call throws `mismatch` if another rank has drained, or has destroyed its
///   object, after fewer calls. `drain` throws `mismatch` if ranks have made different numbers of calls, or if another
///   rank has destroyed its object without calling `drain`.
/// - While the application computes, rounds make progress only if the rank has a progress_thread or calls `progress()`.
///
/// A rank makes one call at a time: the next call may start when the previous call has ended. The communicator
/// must outlive this object: a program that destroys the communicator first ends with a message that says so. All ranks
/// must create their objects in the same order, just as all ranks must start collectives in the same order.
/// Construction and calls may throw the \ref call_errors.
template <transport Net, class Held, participation Participation, class Algorithm, class Op>
class partial {
 public:
  /// The type of a call's argument: a span of dense values, or a view of a stream.
  using argument = typename Held::argument;
  using result = typename Held::result; ///< the type of a call's result

  /// Called by `partial_allreduce`, which passes its arguments: `n`, the participation `who`, `algorithm`, `options`,
  /// what ranks must agree on (`agreed`), and where the values of calls are kept (`held`). Throws `invalid_argument` if
  /// 2048 names are in use on the communicator, and `mismatch` if another rank has already constructed an object that
  /// differs.
  partial(Net& net, std::uint64_t n, const signature& agreed, Held held, const Participation& who, Algorithm algorithm,
          Op op, const partial_options& options)
      : net_(&net), n_(n), agreed_(agreed), held_(std::move(held)), who_(who), algorithm_(std::move(algorithm)),
        op_(op), tau_(options.tau), activation_(net, who, n, agreed, description_of(terms())),
        subscription_(
            node(), [](void* self, rank_t source, std::string_view text) { as_partial(self).on_message(source, text); },
            this) {
    const detail::rank_lock lock(node().shared());
    if (error_) std::rethrow_exception(error_); // of a message that had arrived before this object subscribed
    if (node().dead()) node().failure().raise_peer_failed();
    name_ = sentence("spar::partial ", subscription_.number());
    static_cast<void>(detail::begin_name(net, {name_}));
    activation_.greet(subscription_.number());
    // The last step, so that nothing throws while the engine waits. nvcc takes the type's [[nodiscard]] for the
    // reference's.
    static_cast<void>(engine_.emplace(rounds(net)));
  }
  partial(const partial&) = delete;
  /// If this rank has not drained, tells the other ranks how many calls this rank has made, so that a rank that makes
  /// more calls, or drains, gets the error `mismatch`. Then waits until the running round, if any, has ended and no
  /// peer reads this object's buffers. In the simulator a destructor cannot wait, so the program must call `drain`
  /// before the destructor runs.
  ~partial() {
    const detail::rank_lock lock(node().shared());
    try {
      if (!drained_ && !node().dead())
        activation_.close(subscription_.number(), detail::round_note::kind::left, calls_ + 1);
      while (running_ && !engine_->done() && !node().dead()) net_->progress(true);
    } catch (...) {
      detail::abort(*net_, std::current_exception());
    }
    engine_.reset();
    detail::await_loans(*net_); // peers may still read this object's buffers
  }

  /// Makes the next call and waits for its result. Dense values are replaced by the result; a stream is borrowed until
  /// the call has ended. Throws `invalid_argument`, and does not count the call, if the dimension of `x` is not n, if
  /// the stream is malformed, if the algorithm does not accept the values, if the previous call has not ended, or after
  /// `drain`. Throws `mismatch` if another rank has drained, or has destroyed its partial allreduce, after fewer calls.
  result operator()(const argument& x) { return start(x).wait(); }
  /// Starts the next call, with the values `x`, as a non-blocking call and returns its handle, on which the program
  /// calls `wait()` or `done()`. Throws `invalid_argument` where a blocking call does.
  pending<Net, result> start(const argument& x) { return begin(x, false); }

  /// Runs the last round and returns the sum of all calls that are in no earlier round. All ranks must call `drain`
  /// after their last call. If `x` is dense, the sum overwrites its values; if `x` is a stream, only its dimension is
  /// used. Throws `mismatch` if ranks have made different numbers of calls, and `invalid_argument` if the dimension of
  /// `x` is not n, if the previous call has not ended, or if the rank has drained before.
  result drain(const argument& x) { return start_drain(x).wait(); }
  /// Starts `drain(x)` as a non-blocking call and returns its handle. Throws `invalid_argument` where `drain` does.
  pending<Net, result> start_drain(const argument& x) { return begin(x, true); }

  /// Processes the messages that have arrived, without waiting. A program without a progress thread calls `progress()`
  /// repeatedly while it computes. Returns whether a round is running; other ranks may be waiting for this rank while a
  /// round runs, so the program should call `progress()` again soon.
  bool progress() {
    const detail::rank_lock lock(node().shared());
    net_->progress(false);
    return running_;
  }

  /// For spar's other headers: the transport of this rank.
  [[nodiscard]] Net& transport() const noexcept { return *net_; }
  /// The algorithm with its state, such as a residual. A round may change the state until `drain` has ended.
  [[nodiscard]] const Algorithm& algorithm() const noexcept { return algorithm_; }
  /// The number of calls that this rank has made.
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }
  /// The number of control messages that this rank has sent to start rounds and to report calls.
  [[nodiscard]] std::uint64_t activations_sent() const {
    const detail::rank_lock lock(node().shared()); // locked, because a progress thread may be sending control messages
    return activation_.messages();
  }

 private:
  [[nodiscard]] endpoint& node() const noexcept { return net_->node(); }
  [[nodiscard]] static partial& as_partial(void* self) noexcept { return *static_cast<partial*>(self); }

  /// Suspends a coroutine, without a deadline, until `wake` is called on the operation record `r`, or until the
  /// communicator fails.
  class idly {
   public:
    idly(endpoint& node, operation_record& r) noexcept : node_(&node), record_(&r) {}
    idly(const idly&) = delete;
    ~idly() { record_->forget(); }
    [[nodiscard]] static bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiting) const noexcept { node_->waits().await_idly(*record_, waiting); }
    static void await_resume() noexcept {}

   private:
    endpoint* node_;
    operation_record* record_;
  };

  /// The data of a round on this rank: the contribution and the result (`share`), the participants and the statistics.
  struct finished {
    typename Held::share share;
    participants who;
    statistics cost;
    finished* next = nullptr;
  };

  // Functions that start and run the calls of the application.

  void check_call(const argument& x) const {
    node().check_open();
    if (drained_)
      raise<invalid_argument>(
          {"a partial allreduce has been drained after ", calls_, " calls, so no further call is allowed"});
    if (calling_)
      raise<invalid_argument>(
          {"the previous call of a partial allreduce has not ended; wait for its end before the next call"});
    if (Held::dimension(x) != n_) {
      raise<invalid_argument>(
          {"a partial allreduce was called with dimension ", Held::dimension(x), "; expected ", n_});
    }
    detail::check_call<typename Held::value_type, typename Held::index_type>(*net_, algorithm_, op_, n_, x);
    if constexpr (requires { algorithm_.check_values(x); }) algorithm_.check_values(x);
  }

  pending<Net, result> begin(const argument& x, bool last) {
    const detail::rank_lock lock(node().shared());
    check_call(x);
    try {
      call_record& record = node().calls().acquire();
      pending<Net, result> handle(*net_, record, call(*net_, x, &record, last));
      net_->progress(false); // starts the round now if possible; does not wait
      return handle;
    } catch (...) {
      abort_and_rethrow(*net_);
    }
  }

  task<result> call(Net&, argument x, call_record* record, bool last) {
    const end_of_call end(*this);
    const std::uint64_t round = calls_ + 1;
    const bool alive = !node().dead();
    if (alive) {
      try {
        if (last)
          begin_drain(round);
        else
          begin_call(x, round);
      } catch (...) { // report the error, because other ranks may wait for this call
        give_up();
        throw;
      }
      waiting_ = started_ < round ? &x : nullptr;
      engine_wait_.wake(node().scheduler());
    }
    // If the round fails, the call waits for the error of the engine, for two reasons: the error is the root cause, and
    // the engine may use `x` until the error is set.
    const auto in_time = [&] { return alive && ended_ >= round; };
    while (!in_time() && (running_ || !error_)) {
      idly wait(node(), call_wait_);
      co_await wait;
    }
    if (!in_time()) std::rethrow_exception(error_);
    finished* const next = results_.pop_front();
    finished ended = std::move(*next);
    finished_.recycle(next);
    record->cost = ended.cost;
    co_return Held::deliver(ended.share, ended.who, x);
  }
  class end_of_call {
   public:
    explicit end_of_call(partial& reducer) noexcept : reducer_(&reducer) { reducer_->calling_ = true; }
    end_of_call(const end_of_call&) = delete;
    ~end_of_call() {
      reducer_->calling_ = false;
      reducer_->waiting_ = nullptr;
    }

   private:
    partial* reducer_;
  };

  void begin_call(const argument& x, std::uint64_t round) {
    calls_ = round;
    check_closing();
    if (started_ >= round) {
      if (held_.empty()) oldest_held_ = round;
      held_.add(x);
    }
    activation_.call(subscription_.number(), round);
  }

  void begin_drain(std::uint64_t round) {
    if (activation_.started() >= round) {
      raise<mismatch>({"rank ", net_->rank(), " has drained a partial allreduce after ", calls_,
                       " calls, but another rank has made call ", activation_.started(),
                       "; expected the same number of calls on every rank"});
    }
    drained_ = true;
    check_closing();
    activation_.close(subscription_.number(), detail::round_note::kind::drained, round);
  }

  /// Throws `mismatch` if another rank has drained, or has destroyed its partial allreduce, after fewer calls than this
  /// rank has made. Once this rank has drained, also throws if `activation_.closing()` says that a rank has drained
  /// after a different number of calls, or has destroyed its partial allreduce.
  void check_closing() {
    const detail::round_note& note = activation_.closing();
    const bool drains = note.what == detail::round_note::kind::drained;
    if (note.round == 0 || (drained_ ? drains && note.round == calls_ + 1 : note.round > calls_)) return;
    const char* what =
        drains ? " has drained a partial allreduce after " : " has destroyed its partial allreduce after ";
    raise<mismatch>({"rank ", note.who, what, note.round - 1, " calls, but rank ", net_->rank(),
                     drained_ ? " has drained after " : " has made ", calls_,
                     "; expected the same number of calls on every rank"});
  }
  /// Reports the current exception to this rank's calls, and to all other ranks by an abort.
  void give_up() noexcept {
    if (!error_) error_ = std::current_exception(); // stored first, because `abort` wakes the waiting calls
    detail::abort(*net_, error_);
  }

  void on_message(rank_t source, std::string_view text) {
    if (node().dead()) return;
    try {
      activation_.on_message(source, text);
      check_closing();
    } catch (...) {
      give_up();
    }
    engine_wait_.wake(node().scheduler());
  }

  // Functions of the engine, which runs the rounds.

  [[nodiscard]] bool is_due(std::uint64_t round) const noexcept {
    if (drained_ && round == calls_ + 1) return true;
    return activation_.started() >= round && (round <= calls_ || round - calls_ <= tau_);
  }

  task<void> rounds(Net& net) {
    try {
      for (std::uint64_t round = 1; !drained_ || round <= calls_ + 1; ++round) {
        while (!is_due(round) && !node().dead()) {
          idly wait(node(), engine_wait_);
          co_await wait;
        }
        if (node().dead()) node().failure().raise_peer_failed();
        started_ = round;
        running_ = true;
        finished& next = *finished_.acquire();
        contribute(next, round);
        call_record call;
        call.name = &node().name_call({name_});
        const bool last = drained_ && round == calls_ + 1;
        const channel<Net> calls(net, call, signature_of_round(last));
        const one_round reduce{terms()};
        co_await detail::drive_named(calls, &call, reduce, this, &next);
        next.cost = call.cost;
        results_.push_back(&next);
        ended_ = round;
        running_ = false;
        call_wait_.wake(node().scheduler());
      }
    } catch (...) {
      give_up();
    }
    running_ = false;
    if (error_) call_wait_.wake(node().scheduler());
  }

  /// Called when a round starts: collects this rank's contribution, which is the backlog and the waiting call, if any.
  void contribute(finished& next, std::uint64_t round) {
    next.who = participants(round, net_->size(), net_->memory());
    const argument* const call = drained_ ? nullptr : waiting_;
    const bool fresh = call != nullptr;
    if (!held_.empty())
      next.who.set(net_->rank(), fresh ? presence::fresh : presence::stale, round - oldest_held_);
    else if (fresh)
      next.who.set(net_->rank(), presence::fresh, 0);
    next.share = held_.take(call);
    waiting_ = nullptr;
  }

  using terms_type = detail::partial_terms<Algorithm, Participation>;
  [[nodiscard]] terms_type terms() const noexcept { return {&algorithm_, &who_, tau_}; }

  struct one_round : terms_type {
    task<void> operator()(channel<Net> net, partial* reducer, finished* next) const& {
      const bruck_allgather gather;
      co_await gather(net.template with_element<std::int32_t>(), next->who.marks());
      co_await Held::reduce(net, reducer->algorithm_, next->share, reducer->op_);
      Held::finalize(next->share, reducer->op_, net.size());
    }
  };

  [[nodiscard]] signature signature_of_round(bool last) const noexcept {
    signature agreed = agreed_;
    if (last) agreed.digest = detail::splitmix(agreed.digest);
    return agreed;
  }

  Net* net_;
  std::uint64_t n_;
  signature agreed_;
  Held held_;
  Participation who_;
  Algorithm algorithm_;
  Op op_;
  std::uint64_t tau_;
  detail::activation<Net, Participation> activation_;
  std::string name_;

  std::uint64_t calls_ = 0;
  std::uint64_t started_ = 0;         // the number of the last round that has started on this rank
  std::uint64_t ended_ = 0;           // the number of the last round that has ended on this rank
  std::uint64_t oldest_held_ = 0;     // the number of the oldest call in the backlog, if the backlog is not empty
  const argument* waiting_ = nullptr; // the argument of a call whose round has not started, or null
  detail::slab<finished> finished_;
  detail::record_queue<finished> results_; // the results of rounds that no call has returned yet
  bool calling_ = false;
  bool running_ = false;
  bool drained_ = false;
  std::exception_ptr error_;
  operation_record engine_wait_;
  operation_record call_wait_;
  std::optional<task<void>> engine_;
  detail::control_subscription subscription_; // the last member, because it lets other ranks use all others
};

} // namespace spar::inline v0_1
