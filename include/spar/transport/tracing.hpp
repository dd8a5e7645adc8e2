// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A decorator that records when a rank sends, receives, waits and computes, for the trace viewers of Chrome and
// Perfetto (JSON trace event format).
#pragma once

#include <spar/transport/decorator.hpp>

#include <algorithm>
#include <cmath>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// How long a rank computed, and how long it waited for messages and did not compute.
struct traced_seconds {
  double compute = 0; ///< seconds
  double wait = 0;    ///< seconds
};

namespace detail {

/// A send, a receive or a computation of a rank.
struct traced_event {
  enum class kind : std::uint8_t { send, receive, compute };
  kind what{};
  bool ended = false;
  bool cancelled = false;
  std::int64_t begin = 0; // nanoseconds
  std::int64_t waits =
      -1;               // when a coroutine began to wait for the operation, in nanoseconds; -1 if no coroutine waited
  std::int64_t end = 0; // nanoseconds
  rank_t peer = 0;
  tag_t tag = 0;
  std::uint32_t row = 0;    // row of the event in a trace viewer
  std::uint64_t amount = 0; // bytes of a send or receive, entries of a computation
  std::uint64_t flow = 0;   // number of the message, equal in the events of its send and of its receive
};

inline traced_seconds seconds_of(std::span<const traced_event> events) {
  struct edge {
    std::int64_t time; // nanoseconds
    int computes;      // change of the number of computations that run
    int waits;         // change of the number of coroutines that wait
  };
  std::vector<edge> edges;
  for (const traced_event& e : events) {
    if (!e.ended) continue;
    const bool computes = e.what == traced_event::kind::compute;
    if (!computes && e.waits < 0) continue;
    edges.push_back({computes ? e.begin : e.waits, computes ? 1 : 0, computes ? 0 : 1});
    edges.push_back({e.end, computes ? -1 : 0, computes ? 0 : -1});
  }
  std::sort(edges.begin(), edges.end(), [](const edge& a, const edge& b) { return a.time < b.time; });
  traced_seconds total;
  int computes = 0, waits = 0;
  std::int64_t last = 0;
  for (const edge& e : edges) {
    const double seconds = 1e-9 * static_cast<double>(e.time - last);
    if (computes > 0)
      total.compute += seconds;
    else if (waits > 0)
      total.wait += seconds;
    computes += e.computes;
    waits += e.waits;
    last = e.time;
  }
  return total;
}

/// Writes trace events as JSON objects, separated by commas.
class trace_writer {
 public:
  explicit trace_writer(rank_t rank) : rank_(rank) {}

  void name(const char* what, std::uint32_t row, const std::string& text) {
    begin(what, 'M', row);
    text_ += sentence(",\"args\":{\"name\":\"", text, "\"}}");
  }
  void sort_by_rank() {
    begin("process_sort_index", 'M', 0);
    text_ += sentence(",\"args\":{\"sort_index\":", rank_, "}}");
  }
  void event(const traced_event& e) {
    if (e.what == traced_event::kind::compute) {
      complete("compute", e.row, e.begin, e.end);
      text_ += sentence(",\"args\":{\"entries\":", e.amount, "}}");
      return;
    }
    const bool sends = e.what == traced_event::kind::send;
    complete(sentence(sends ? "send to " : "receive from ", e.peer), e.row, e.begin, e.end);
    text_ +=
        sentence(",\"cat\":\"", sends ? "send" : "receive", "\",\"args\":{\"peer\":", e.peer, ",\"bytes\":", e.amount,
                 ",\"collective\":", sequence_of(e.tag), ",\"lane\":", static_cast<unsigned>(lane_of(e.tag)),
                 e.cancelled ? ",\"cancelled\":true}}" : "}}");
    if (e.waits >= 0) {
      complete("wait", e.row, e.waits, e.end);
      text_ += ",\"cat\":\"wait\"}";
    }
    if (e.cancelled) return;
    // A trace viewer attaches an arrow to the event that is running when the arrow ends, so the arrow ends one
    // nanosecond before the receive ends.
    begin("message", sends ? 's' : 'f', e.row);
    time("ts", sends ? e.begin : std::max(e.begin, e.end - 1));
    text_ += sentence(",\"cat\":\"message\",\"id\":", e.flow, sends ? "}" : ",\"bp\":\"e\"}");
  }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  void begin(const std::string& what, char phase, std::uint32_t row) {
    if (!text_.empty()) text_ += ",\n";
    text_ +=
        sentence("{\"name\":\"", what, "\",\"ph\":\"", std::string(1, phase), "\",\"pid\":", rank_, ",\"tid\":", row);
  }
  void time(const char* key, std::int64_t nanoseconds) {
    char number[40];
    std::snprintf(number, sizeof(number), "%.3f", static_cast<double>(nanoseconds) * 1e-3);
    text_ += sentence(",\"", key, "\":", std::string(number));
  }
  void complete(const std::string& what, std::uint32_t row, std::int64_t from, std::int64_t to) {
    begin(what, 'X', row);
    time("ts", from);
    time("dur", to - from);
  }

  rank_t rank_;
  std::string text_;
};

} // namespace detail

/// Records each send and receive, from its start until the rank notices its end, and the time for which a coroutine
/// waits for the operation. Also records each computation. An algorithm reports a computation only after the work, so
/// the computation is recorded as starting when a send, receive, computation or call last began or ended on this rank.
/// Forwards all functions to the wrapped transport, which must outlive this object. Times are virtual in the simulator.
/// The ranks of a `thread_group` share a clock. Over MPI, times come from MPI_Wtime, whose zero may differ between
/// ranks: Open MPI 4.1 counts from the first call of MPI_Wtime in each process.
///
/// A trace viewer shows each rank as a process with several rows. The first row of a rank contains its computations.
/// Each send or receive is in the first free row below, so that the operations in a row do not overlap. Arrows lead
/// from sends to receives.
template <transport Net>
class tracing_port : public observing_port<Net> {
  using observing_port<Net>::inner;

 public:
  using observing_port<Net>::rank;

  explicit tracing_port(Net& net) : observing_port<Net>(net) {}
  tracing_port(const tracing_port&) = delete;

  void record(bool on) noexcept { records_ = on; }
  void clear() noexcept {
    cleared_ += events_.size();
    events_.clear();
    taken_.assign(taken_.size(), false);
  }

  [[nodiscard]] traced_seconds seconds() const { return detail::seconds_of(events_); }
  [[nodiscard]] std::string events() const {
    detail::trace_writer out(rank());
    out.name("process_name", 0, sentence("rank ", rank()));
    out.sort_by_rank();
    out.name("thread_name", 0, "compute");
    for (std::uint32_t row = 1; row <= taken_.size(); ++row) out.name("thread_name", row, "messages");
    for (const auto& e : events_) {
      if (e.ended) out.event(e);
    }
    return std::move(out).text();
  }

  void compute(std::uint64_t entries) {
    inner().compute(entries);
    if (!records_) return;
    const std::int64_t begin = std::max(seen_, nanoseconds(inner().node().calls().last_activity()));
    events_.push_back({.what = kind::compute, .ended = true, .begin = begin, .end = clock(), .amount = entries});
    seen_ = events_.back().end;
  }

  auto send(const message_pieces& out, rank_t peer, tag_t tag) {
    const std::size_t event = records_ ? begin(kind::send, peer, tag) : none;
    if (event != none) find(event)->amount = out.head.payload_bytes();
    return traced<decltype(inner().send(out, peer, tag))>(inner().send(out, peer, tag), *this, event, nullptr);
  }

  auto receive(message_buffer& in, rank_t peer, tag_t tag) {
    const std::size_t event = records_ ? begin(kind::receive, peer, tag) : none;
    return traced<decltype(inner().receive(in, peer, tag))>(inner().receive(in, peer, tag), *this, event, &in);
  }

 private:
  using kind = detail::traced_event::kind;
  static constexpr std::size_t none = static_cast<std::size_t>(-1); // of an operation that is not recorded

  template <class Inner>
  class traced : public forwarding_awaiter<Inner> {
    using base = forwarding_awaiter<Inner>;

   public:
    traced(Inner inner, tracing_port& net, std::size_t event, const message_buffer* in) noexcept
        : base(std::move(inner)), net_(event == none ? nullptr : &net), event_(event), in_(in) {}
    traced(traced&& other) noexcept
        : base(std::move(other)), net_(std::exchange(other.net_, nullptr)), event_(other.event_), in_(other.in_) {}
    ~traced() {
      if (net_ != nullptr) net_->end(event_, true);
    }
    void await_suspend(std::coroutine_handle<> waiting) const {
      if (detail::traced_event* const e = net_ != nullptr ? net_->find(event_) : nullptr) e->waits = net_->clock();
      base::await_suspend(waiting);
    }
    void await_resume() const {
      base::await_resume();
      if (net_ == nullptr) return;
      detail::traced_event* const e = net_->find(event_);
      if (e != nullptr && in_ != nullptr) e->amount = in_->head().payload_bytes();
      net_->end(event_, false);
    }

   private:
    tracing_port* net_;
    std::size_t event_;
    const message_buffer* in_;
  };

  /// The event with this number; null if `clear` has forgotten it.
  [[nodiscard]] detail::traced_event* find(std::size_t event) noexcept {
    return event < cleared_ ? nullptr : &events_[event - cleared_];
  }
  [[nodiscard]] static std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
  [[nodiscard]] std::int64_t clock() { return nanoseconds(inner().now()); }

  std::size_t begin(kind what, rank_t peer, tag_t tag) {
    const auto free = std::find(taken_.begin(), taken_.end(), false);
    const auto row = static_cast<std::uint32_t>(free - taken_.begin() + 1);
    if (free == taken_.end())
      taken_.push_back(true);
    else
      *free = true;
    const bool sends = what == kind::send;
    const std::uint64_t number = (sends ? sent_ : received_)[{peer, tag}]++;
    seen_ = clock();
    events_.push_back({.what = what,
                       .begin = seen_,
                       .peer = peer,
                       .tag = tag,
                       .row = row,
                       .flow = flow_of(sends ? rank() : peer, sends ? peer : rank(), tag, number)});
    return cleared_ + events_.size() - 1;
  }

  void end(std::size_t event, bool cancelled) {
    detail::traced_event* const e = find(event);
    if (e == nullptr || e->ended) return;
    e->ended = true;
    e->cancelled = cancelled;
    e->end = seen_ = clock();
    taken_[e->row - 1] = false;
  }

  /// A number that identifies a message, equal on the sender and the receiver. The number has 53 bits, because every
  /// JSON reader preserves integers of this size.
  [[nodiscard]] static std::uint64_t flow_of(rank_t source, rank_t destination, tag_t tag,
                                             std::uint64_t number) noexcept {
    std::uint64_t hash = 0;
    for (const std::uint64_t part : {static_cast<std::uint64_t>(source), static_cast<std::uint64_t>(destination),
                                     static_cast<std::uint64_t>(tag), number}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29;
    }
    return hash >> 11;
  }

  bool records_ = true;
  std::size_t cleared_ = 0;                  // number of events that `clear` has forgotten
  std::vector<detail::traced_event> events_; // in the order in which the events started
  std::vector<bool> taken_;                  // taken_[i]: whether row i + 1 contains an operation in flight
  std::int64_t seen_ = 0;                    // when the last event began or ended, in nanoseconds
  std::map<std::pair<rank_t, tag_t>, std::uint64_t> sent_;
  std::map<std::pair<rank_t, tag_t>, std::uint64_t> received_;
};

/// Records a timeline of the wrapped rank, see `tracing_port`. The wrapped communicator must outlive this object.
template <communicates Net>
class tracing : public communicator_rank<tracing_port<detail::port_type_of<Net>>> {
 public:
  /// Wraps the rank `net` and begins to record.
  explicit tracing(Net& net) : tracing::communicator_rank(detail::port_of(net)) {}

  /// Turns the recording on (the default) or off. An operation that starts while the recording is off is not recorded.
  void record(bool on) noexcept { this->port().record(on); }
  /// Forgets the events so far, also those of operations in flight.
  void clear() noexcept { this->port().clear(); }
  /// How long this rank computed and waited in the events that have ended so far.
  [[nodiscard]] traced_seconds seconds() const { return this->port().seconds(); }
  /// The events that have ended so far, as JSON objects separated by commas. `trace_file` joins the events of several
  /// ranks into the content of a trace file.
  [[nodiscard]] std::string events() const { return this->port().events(); }
};

/// Returns the content of a trace file for the viewers of Chrome and Perfetto. `ranks` contains the results of
/// `tracing::events()` on one or more ranks.
inline std::string trace_file(std::span<const std::string> ranks) {
  std::string all = "[\n";
  for (const std::string& events : ranks) {
    if (&events != ranks.data()) all += ",\n";
    all += events;
  }
  return all + "\n]\n";
}

} // namespace spar::inline v0_1
