// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The buckets of fused_allreduce and bucketed_feedback: neighbouring tensors that one collective reduces as one vector
// (tensor fusion; Sergeev and Del Balso 2018).
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/link.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/runtime/arguments.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/runtime/tasks/call_error.hpp>
#include <spar/runtime/tasks/task.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// Options of a fused_allreduce or a bucketed_feedback.
struct fusion_options {
  std::size_t bucket_bytes = std::size_t{1} << 20; ///< maximum size, in bytes, of a bucket with more than one tensor
  /// Prefix of the names of the collectives, which no other object on the communicator has. By default, each object has
  /// its own prefix, "fused 0", "fused 1" and so on; all ranks must then create and destroy their objects in the same
  /// order.
  std::string_view name{};
};

namespace detail {

/// The prefix of the names of the collectives of one object, which no other object on the communicator has.
class call_prefix : public link {
 public:
  /// Joins `others`, the ring of all prefixes on the communicator. `owner` is the type of the object. If `text` is
  /// empty, the prefix is the first of "fused 0", "fused 1" and so on that no other object has. Throws
  /// `invalid_argument` if another object has the prefix `text`.
  call_prefix(link& others, const char* owner, std::string_view text) : owner_(owner), text_(text) {
    for (std::size_t number = 0; text.empty() && (number == 0 || other_in(others) != nullptr); ++number)
      text_ = sentence("fused ", number);
    if (const call_prefix* const other = other_in(others); other != nullptr) {
      raise<invalid_argument>({"another ", other->owner_, " on this communicator has the name ", text_,
                               "; give each object a name of its own, or none"});
    }
    join_before(others);
  }
  ~call_prefix() { leave(); }
  /// Whether the communicator still exists, which otherwise has taken all prefixes out of its ring.
  [[nodiscard]] bool has_communicator() const noexcept { return &after() != this; }
  /// Throws `invalid_argument` if the communicator has been destroyed.
  void check_communicator() const {
    if (!has_communicator())
      raise<invalid_argument>({"the communicator of this ", owner_, " has been destroyed; construct another one"});
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  [[nodiscard]] const call_prefix* other_in(link& others) const noexcept {
    for (link* l = &others.after(); l != &others; l = &l->after()) {
      const auto* const other = static_cast<call_prefix*>(l);
      if (other->text_ == text_) return other;
    }
    return nullptr;
  }

  const char* owner_;
  std::string text_;
};

/// The tensors of all buckets, on which all ranks must agree.
class bucket_shape {
 public:
  explicit bucket_shape(std::size_t bucket_bytes) : bucket_bytes_(bucket_bytes), hash_(splitmix(bucket_bytes)) {
    if (bucket_bytes == 0) raise<invalid_argument>({"bucket_bytes is 0; expected at least 1"});
  }
  /// Adds a tensor, which `text` describes. `hash` combines what must be equal on all ranks.
  void add(std::string_view text, std::uint64_t hash) {
    hash_ = splitmix(hash_ ^ hash);
    if (is_cut_) return;
    is_cut_ = text_.size() + 1 + text.size() > most;
    text_.append(text_.empty() ? "" : "+").append(is_cut_ ? "..." : text);
  }
  [[nodiscard]] std::size_t bucket_bytes() const noexcept { return bucket_bytes_; }
  /// The first tensors, `bucket_bytes`, and a digest of all tensors.
  void options(auto&& f) const {
    f("tensors", std::string_view(text_)), f("bucket_bytes", bucket_bytes_), f("digest_of_tensors", hash_);
  }

 private:
  static constexpr std::size_t most = 250; // characters; an error message would cut off the text of other options

  std::string text_;
  bool is_cut_ = false;
  std::size_t bucket_bytes_;
  std::uint64_t hash_;
};

/// The algorithm of a bucket: `Algorithm`, with the tensors of all buckets as options on which ranks must agree.
template <class Algorithm>
struct in_bucket : Algorithm {
  const bucket_shape* shape = nullptr; // outlives the calls

  void options(auto&& f) const {
    Algorithm::options(f);
    if (shape != nullptr) shape->options(f);
  }
};

/// A tensor, which belongs to one bucket.
template <element T>
struct bucketed_tensor {
  std::string label; // in error messages, such as "tensor 3"
  std::size_t bucket;
  std::size_t begin; // offset in the bucket, in values
  std::size_t size;  // in values
  T* values = nullptr;
  bool is_ready = false;
};

template <transport Net, element T, class Reducer>
struct bucket {
  std::string name;                              // of the bucket's collective
  std::size_t first;                             // index of the bucket's first tensor
  std::size_t size = 0;                          // in values
  std::size_t count = 0;                         // number of tensors in the bucket
  buffer<T> values{};                            // empty if the bucket has a single tensor
  std::size_t ready = 0;                         // number of tensors that are ready in this round
  T* reduced = nullptr;                          // the values that the call in flight reduces
  Reducer reducer;                               // what reduces this bucket, with its state
  std::optional<pending_call<Net, void>> call{}; // last: the call ends before the members above are destroyed
};

/// The tensors and their buckets.
template <transport Net, element T, class Reducer>
struct bucket_list {
  bucket_shape shape;
  std::vector<bucketed_tensor<T>> tensors{};
  std::vector<bucket<Net, T, Reducer>> buckets{};

  /// Adds a tensor of `size` values behind the others: to the last bucket, if it has room. `reducer()` returns what
  /// reduces a new bucket.
  template <class MakeReducer>
  void add(const call_prefix& prefix, std::string label, std::size_t size, const MakeReducer& reducer) {
    const std::size_t room = std::max<std::size_t>(1, shape.bucket_bytes() / sizeof(T));
    if (buckets.empty() || buckets.back().size + size > room)
      buckets.push_back(
          {.name = sentence(prefix.text(), "/", buckets.size()), .first = tensors.size(), .reducer = reducer()});
    auto& last = buckets.back();
    tensors.push_back({std::move(label), buckets.size() - 1, last.size, size});
    last.size += size;
    ++last.count;
  }
  /// Allocates the buckets, after the last `add`.
  void allocate(Net& net) {
    for (auto& b : buckets) {
      if (b.count > 1) b.values = buffer<T>(net.memory(), b.size);
    }
  }
  [[nodiscard]] std::span<bucketed_tensor<T>> tensors_of(const bucket<Net, T, Reducer>& of) noexcept {
    return std::span(tensors).subspan(of.first, of.count);
  }
};

/// The rounds of a bucket list: `ready` for each tensor, or `start` for each bucket, then `wait` or `ended`.
template <transport Net, element T, class Reducer>
class bucket_rounds {
 public:
  using list_type = bucket_list<Net, T, Reducer>;
  using bucket_type = bucket<Net, T, Reducer>;

  bucket_rounds(Net& net, const char* owner, const fusion_options& options)
      : net_(&net), prefix_(net.node().prefixes(), owner, options.name), list_{bucket_shape(options.bucket_bytes)} {}
  bucket_rounds(const bucket_rounds&) = delete;
  ~bucket_rounds() { count_requests(false); }

  [[nodiscard]] Net& net() const noexcept { return *net_; }
  [[nodiscard]] const call_prefix& prefix() const noexcept { return prefix_; }
  [[nodiscard]] list_type& list() noexcept { return list_; }
  [[nodiscard]] const list_type& list() const noexcept { return list_; }

  /// Marks tensor `i`, whose values are `x`, as ready. When all tensors of its bucket are ready, calls `start_call(b,
  /// values)`, which starts the collective of the bucket `b`.
  template <class StartCall>
  void ready(std::size_t i, std::span<T> x, const StartCall& start_call) {
    auto& t = list_.tensors[i];
    if (x.size() != t.size) {
      raise<invalid_argument>(
          {t.label, " has ", x.size(), " values; expected ", t.size, ", its size in the constructor"});
    }
    check_not_ready(t);
    prefix_.check_communicator();
    check_arguments(*net_, x);
    t.values = x.data();
    bucket_type& b = list_.buckets[t.bucket];
    if (b.count > 1) std::copy(x.begin(), x.end(), b.values.data() + t.begin);
    if (b.ready + 1 == b.count) start(b, b.count > 1 ? b.values.span() : x, start_call);
    ++b.ready; // after `start`: if `start` throws, the program may call `ready` again for this tensor
    t.is_ready = true;
  }
  /// Marks all tensors of bucket `i` as ready, whose values `x` holds one after the other, and starts its collective.
  template <class StartCall>
  void ready_all(std::size_t i, std::span<T> x, const StartCall& start_call) {
    bucket_type& b = list_.buckets[i];
    if (x.size() != b.size) {
      raise<invalid_argument>({"bucket ", i, " has ", b.size, " values, but the span has ", x.size()});
    }
    const std::span tensors = list_.tensors_of(b);
    for (const auto& t : tensors) check_not_ready(t);
    prefix_.check_communicator();
    check_arguments(*net_, x);
    start(b, x, start_call);
    b.ready = b.count;
    for (auto& t : tensors) {
      t.values = x.data() + t.begin;
      t.is_ready = true;
    }
  }

  /// Waits until every tensor holds its result. If collectives failed, throws the error of one of them (see
  /// `call_error`), after the results of the others have been written.
  void wait() {
    check_ready();
    call_error error; // of the first bucket which did not fail just because another call had failed
    for (bucket_type& b : list_.buckets) {
      try {
        check_started(b);
        b.call->wait();
        write_back(b);
      } catch (...) {
        error.note();
      }
      end(b);
    }
    count_requests(false);
    if (error.is_noted()) error.rethrow();
  }
  /// The same for coroutines. Throws `invalid_argument` at once if a tensor is not ready. With a progress thread, the
  /// task throws `error`, and the program may still call `wait()`.
  task<void> ended() {
    prefix_.check_communicator();
    check_ready();
    return await_all(*net_, this);
  }
  /// Makes progress without blocking, and returns whether a collective is in flight.
  bool progress() {
    for (bucket_type& b : list_.buckets) {
      if (b.call && !b.call->done()) return true;
    }
    return false;
  }
  /// Throws `invalid_argument` if a round has begun and not ended.
  void check_idle() const {
    for (const auto& t : list_.tensors) {
      if (t.is_ready)
        raise<invalid_argument>({t.label, " is marked as ready, and its round has not ended; call wait() first"});
    }
  }

 private:
  static void check_not_ready(const bucketed_tensor<T>& t) {
    if (t.is_ready)
      raise<invalid_argument>({t.label, " was marked as ready twice in one round; call wait() before the next round"});
  }
  /// Throws `invalid_argument` if a tensor is not ready. Without a living communicator, the round ends nevertheless.
  void check_ready() const {
    if (!prefix_.has_communicator() || net_->node().dead()) return;
    for (const auto& t : list_.tensors) {
      if (!t.is_ready)
        raise<invalid_argument>({t.label, " is not ready, so wait() cannot end the round; call ready() for it first"});
    }
  }
  /// Sets whether the pool counts the requests of all calls together, to set aside blocks for a whole round.
  void count_requests(bool on) {
    if (counts_ == on || !prefix_.has_communicator()) return;
    endpoint& node = net_->node();
    const rank_lock lock(node.shared());
    if (on)
      node.begin_round();
    else
      node.end_round();
    counts_ = on;
  }
  void check_started(const bucket_type& b) const {
    if (b.call) return;
    prefix_.check_communicator();
    const rank_lock lock(net_->node().shared());
    net_->node().failure().raise_peer_failed();
  }
  template <class StartCall>
  void start(bucket_type& b, std::span<T> x, const StartCall& start_call) {
    count_requests(true);
    or_abort(*net_, [&] { start_call(b, x); });
    b.reduced = x.data();
  }
  void write_back(bucket_type& b) {
    for (auto& t : list_.tensors_of(b)) {
      const T* const from = b.reduced + t.begin;
      if (from != t.values) std::copy(from, from + t.size, t.values);
    }
  }
  void end(bucket_type& b) noexcept {
    b.call.reset();
    b.ready = 0;
    for (auto& t : list_.tensors_of(b)) t.is_ready = false;
  }
  static task<void> await_all(Net&, bucket_rounds* all) {
    for (const bucket_type& b : all->list_.buckets) {
      if (b.call) (void)b.call->await_ready(); // if calls cannot be awaited, throws before the round ends
    }
    call_error error; // of the first bucket which did not fail just because another call had failed
    for (bucket_type& b : all->list_.buckets) {
      try {
        all->check_started(b);
        auto& call = *b.call;
        co_await std::move(call);
        all->write_back(b);
      } catch (...) {
        error.note();
      }
      all->end(b);
    }
    all->count_requests(false);
    if (error.is_noted()) error.rethrow();
  }

  Net* net_;
  call_prefix prefix_;
  list_type list_;
  bool counts_ = false; // whether the pool counts the requests of this round
};

} // namespace detail

} // namespace spar::inline v0_1
