// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback in buckets, which start while the program still computes the gradients of other layers (layer-wise
// top-k and DenseOvlp, Ok-Topk, section 5).
#pragma once

#include <spar/core/memory/space.hpp>
#include <spar/core/op.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/crc32c.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/optimizer/saved_state.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/system/bucketing.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// A parameter of a model, such as the weights of one layer.
struct parameter {
  std::string name;                                  ///< unique in the model
  std::size_t size;                                  ///< number of values
  bool operator==(const parameter&) const = default; ///< whether both members are equal
};

namespace detail {

/// What `bucketed_feedback::save` writes for each bucket.
struct saved_bucket {
  std::vector<parameter> parameters;
  std::span<const std::byte> state; // from `save` of the bucket's error_feedback
};

/// Writes a list of buckets as bytes: a magic number, the number of buckets, for each bucket its parameters and its
/// state, and a CRC-32C. Numbers have 64 bits in the machine's byte order, and precede the bytes that they count.
class bucket_writer {
 public:
  explicit bucket_writer(std::uint64_t buckets) { number(magic), number(buckets); }
  void number(std::uint64_t x) { append(&x, sizeof x); }
  void counted(const void* from, std::uint64_t bytes) { number(bytes), append(from, bytes); }
  [[nodiscard]] std::vector<std::byte> finish() && {
    const std::uint32_t checksum = crc32c(out_.data(), out_.size());
    append(&checksum, sizeof checksum);
    return std::move(out_);
  }

  static constexpr std::uint64_t magic = 0x3142'4552'4150'5301;

 private:
  void append(const void* from, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(from);
    out_.insert(out_.end(), first, first + bytes);
  }

  std::vector<std::byte> out_;
};

/// Reads what `bucket_writer` has written. Throws `invalid_argument` if the bytes are damaged.
inline std::vector<saved_bucket> read_buckets(std::span<const std::byte> saved) {
  std::uint32_t checksum = 0;
  const auto refuse = [size = saved.size()] {
    raise<invalid_argument>({"the saved state of ", size, " bytes is damaged, or no bucketed_feedback saved it"});
  };
  if (saved.size() < sizeof checksum) refuse();
  std::span<const std::byte> rest = saved.first(saved.size() - sizeof checksum);
  std::memcpy(&checksum, rest.data() + rest.size(), sizeof checksum);
  if (checksum != crc32c(rest.data(), rest.size())) refuse();
  const auto number = [&] {
    std::uint64_t x = 0;
    if (rest.size() < sizeof x) refuse();
    std::memcpy(&x, rest.data(), sizeof x);
    rest = rest.subspan(sizeof x);
    return x;
  };
  const auto counted = [&] {
    const std::uint64_t bytes = number();
    if (bytes > rest.size()) refuse();
    const auto found = rest.first(bytes);
    rest = rest.subspan(bytes);
    return found;
  };
  if (number() != bucket_writer::magic) refuse();
  std::vector<saved_bucket> all;
  for (std::uint64_t buckets = number(); buckets > 0; --buckets) {
    saved_bucket& b = all.emplace_back();
    for (std::uint64_t parameters = number(); parameters > 0; --parameters) {
      const auto name = counted();
      b.parameters.push_back({std::string(reinterpret_cast<const char*>(name.data()), name.size()), number()});
    }
    b.state = counted();
  }
  if (!rest.empty()) refuse();
  return all;
}

} // namespace detail

/// Error feedback for a model whose gradients become ready one parameter after the other, as in back-propagation. In
/// each step a program calls `ready(name, gradient)` for each parameter, in any order, and then `wait()`, after which
/// the gradients hold their sums:
///
///     spar::bucketed_feedback<spar::mpi, float, spar::ok_topk_allreduce<>, spar::average> gradients(
///         net, parameters, {}, {.select = {.density = 0.01}});
///
/// Neighbouring parameters share a bucket of up to `bucket_bytes` bytes, so list the parameters in the order in which
/// their gradients become ready. Each bucket has an `error_feedback` of its own, with a copy of `algorithm`, and starts
/// when the gradients of all of its parameters are ready. Other buckets are in flight meanwhile; they make progress
/// when the program calls any member or `progress`, and all the time if there is a `progress_thread`. A selector should
/// have a `density`, because a number `k` would apply to each bucket.
///
/// Residuals belong to parameters: `rebuild`, `load` and `take_over` move them to other buckets. If a call fails, the
/// residual and the state of its bucket stay as they were, and so do the gradients of a bucket with several parameters
/// for which the program has called `ready`. Other buckets may have been reduced. After the first step, the rank's pool
/// takes no memory in a step with the same buckets and no more nonzeros, whatever the order of messages. Only the lists
/// of coroutines and of expected messages may still grow, to 2 or 4 times their length, in a step that has more of them
/// at once than any step before. `ready`, `start`, `wait` and `ended` may throw the \ref call_errors.
template <communicates Net, element T, class Algorithm, reduction<T> Op = sum, index_type Index = std::uint32_t>
class bucketed_feedback {
  using reducer_type = error_feedback<T, detail::in_bucket<Algorithm>, Index>;
  using rounds_type = detail::bucket_rounds<detail::port_type_of<Net>, T, reducer_type>;
  using list_type = typename rounds_type::list_type;

 public:
  /// The `parameters`, the `options` and the options of `algorithm` must be the same on every rank. `op` is `sum` or
  /// `average`. Throws `invalid_argument` if there are no parameters, if two have the same name, if `bucket_bytes` is
  /// 0, or if another object on the communicator has the prefix `name`.
  bucketed_feedback(Net& net, std::span<const parameter> parameters, const fusion_options& options = {},
                    Algorithm algorithm = {}, Op op = {})
      : algorithm_(std::move(algorithm)), op_(op), rounds_(detail::port_of(net), "bucketed_feedback", options) {
    adopt(parameters, list_of(parameters, options.bucket_bytes));
  }
  bucketed_feedback(const bucketed_feedback&) = delete;

  /// Marks the parameter `name` as ready, and starts its bucket if all of the bucket's parameters are ready. `gradient`
  /// is borrowed until `wait()` returns or, if it is never called, until this object is destroyed: so declare gradients
  /// before the object. Throws `invalid_argument` if no parameter has this name, if the length of
  /// `gradient` is not that of the parameter, or if the parameter is already ready in this step.
  void ready(std::string_view name, std::span<T> gradient) {
    const std::size_t i = find(name, next_);
    rounds_.ready(i, gradient, [this](auto& b, std::span<T> x) { this->start_call(b, x); });
    next_ = i + 1;
  }
  /// Starts bucket `i`, whose gradients `x` holds one after the other in the order of its parameters; instead of
  /// `ready` for each of them. `x` is reduced in place, and is borrowed until `wait()` returns. Throws
  /// `invalid_argument` if there is no bucket `i`, if `x` has another length, or if a parameter of the bucket is
  /// already ready in this step, as in a bucket that is in flight.
  void start(std::size_t i, std::span<T> x) {
    check_bucket(i);
    rounds_.ready_all(i, x, [this](auto& b, std::span<T> values) { this->start_call(b, values); });
  }
  /// Waits until the gradient of every parameter is reduced; afterwards a new step begins. Throws `invalid_argument` if
  /// a parameter is not ready; the program may then call `ready` and `wait` again. If the communicator is
  /// dead, the step ends even so, and the object can be saved. If buckets failed, throws the error
  /// of one, the cause if this rank knows it, after the results of the others have been written.
  void wait() { rounds_.wait(); }
  /// The same for coroutines, such as the ranks of a simulator: `co_await gradients.ended();`. The object must outlive
  /// the task. Throws `invalid_argument` if a parameter is not ready. If the communicator has a progress thread,
  /// `co_await` throws `error`, and the program may still call `wait()`.
  task<void> ended() { return rounds_.ended(); }
  /// Makes progress without blocking, and returns whether a bucket is in flight. May throw what
  /// `communicator_rank::progress` throws.
  bool progress() { return rounds_.progress(); }

  /// Distributes the parameters to buckets of `bucket_bytes` bytes again, in the order of `parameters`: the same as
  /// before, in any order. All ranks must do so between the same two steps; otherwise their next step ends in
  /// `mismatch`. Residuals stay with their parameters. A bucket that has the same parameters in the same order as one
  /// before keeps its state, that is, thresholds, boundaries and counters; any other bucket begins with a new state, so
  /// its next call finds new thresholds. Throws `invalid_argument`, and changes nothing, if a step has not ended, if
  /// `parameters` are not the same, with the same lengths, or if `bucket_bytes` is 0.
  void rebuild(std::span<const parameter> parameters, std::size_t bucket_bytes) {
    const std::vector<std::byte> saved = save();
    adopt(parameters, restored(parameters, bucket_bytes, saved));
  }
  /// Replaces the composition of every bucket by `algorithm`, as `error_feedback::set_algorithm` does. Throws
  /// `invalid_argument` if a step has not ended.
  void set_algorithm(Algorithm algorithm) {
    rounds_.check_idle();
    algorithm_ = std::move(algorithm);
    for (auto& b : rounds_.list().buckets) b.reducer.set_algorithm(algorithm_of_bucket());
  }

  /// The number of buckets.
  [[nodiscard]] std::size_t buckets() const noexcept { return rounds_.list().buckets.size(); }
  /// The bucket of the parameter `name`. Throws `invalid_argument` if no parameter has this name.
  [[nodiscard]] std::size_t bucket_of(std::string_view name) const { return rounds_.list().tensors[find(name)].bucket; }
  /// The error feedback of bucket `i`, for its `report`, `residual` and `current_state`. Throws `invalid_argument` if
  /// there is no bucket `i`.
  [[nodiscard]] const auto& reducer(std::size_t i) const {
    check_bucket(i);
    return rounds_.list().buckets[i].reducer;
  }
  /// The residual of the parameter `name`; empty before the first step. Throws `invalid_argument` if no parameter has
  /// this name.
  [[nodiscard]] std::span<const T> residual(std::string_view name) const {
    const auto& t = rounds_.list().tensors[find(name)];
    const std::span<const T> all = rounds_.list().buckets[t.bucket].reducer.residual();
    return all.empty() ? all : all.subspan(t.begin, t.size);
  }

  /// Returns the parameters, residuals and states of all buckets as bytes, from which another run with the same number
  /// of ranks can resume, also with other buckets. Throws `invalid_argument` if a step has not ended.
  [[nodiscard]] std::vector<std::byte> save() const {
    rounds_.check_idle();
    const list_type& list = rounds_.list();
    detail::bucket_writer out(list.buckets.size());
    for (const auto& b : list.buckets) {
      out.number(b.count);
      for (std::size_t i = b.first; i < b.first + b.count; ++i) {
        out.counted(parameters_[i].name.data(), parameters_[i].name.size());
        out.number(parameters_[i].size);
      }
      const std::vector<std::byte> state = b.reducer.save();
      out.counted(state.data(), state.size());
    }
    return std::move(out).finish();
  }
  /// Restores what `save` returned, for the same parameters in any buckets; keeps the buckets of this object. States of
  /// buckets are restored as `rebuild` keeps them. Throws `invalid_argument`, and changes nothing, if `saved` is
  /// damaged, if it comes from other parameters, lengths, value types or compositions, or if a step has not ended.
  void load(std::span<const std::byte> saved) {
    rounds_.check_idle();
    adopt(parameters_, restored(parameters_, rounds_.list().shape.bucket_bytes(), saved));
  }
  /// Adds the residuals in `saved`, which a rank of an earlier job saved, to this rank's residuals; the buckets may
  /// differ. Each saved residual must go to exactly one rank of the new job (see `error_feedback::take_over`). Throws
  /// `invalid_argument`, and changes nothing, if `saved` is damaged, if it comes from other parameters, lengths or
  /// value types, or if a step has not ended.
  void take_over(std::span<const std::byte> saved) {
    rounds_.check_idle();
    list_type& list = rounds_.list();
    const residuals theirs(parameters_, detail::read_buckets(saved));
    std::vector<std::vector<T>> sums;
    for (const auto& b : list.buckets) {
      const std::span<const T> mine = b.reducer.residual();
      std::vector<T>& sum = sums.emplace_back(theirs.of(list, b));
      if (sum.empty())
        sum.assign(mine.begin(), mine.end());
      else if (!mine.empty())
        kernel::reduce(sum.data(), mine.data(), mine.size(), spar::sum{});
    }
    for (std::size_t i = 0; i < sums.size(); ++i) list.buckets[i].reducer.set_residual(sums[i]);
  }

 private:
  /// The residuals in a saved state, by parameter.
  class residuals {
   public:
    /// Throws `invalid_argument` if `saved` has other parameters than `own`.
    residuals(std::span<const parameter> own, const std::vector<detail::saved_bucket>& saved) : of_(own.size()) {
      std::vector<bool> found(own.size());
      for (const auto& b : saved) {
        const std::vector<T>& values = states_.emplace_back(detail::from_bytes<T>(b.state).residual);
        std::size_t begin = 0;
        for (const parameter& p : b.parameters) {
          const std::size_t i = index_of(own, p.name);
          if (i == own.size())
            raise<invalid_argument>({"no parameter has the name ", p.name, ", for which there is a residual"});
          if (own[i].size != p.size)
            raise<invalid_argument>(
                {"parameter ", p.name, " has length ", own[i].size, ", but its residual has length ", p.size});
          if (!values.empty() && begin + p.size > values.size())
            raise<invalid_argument>(
                {"the saved residual of ", values.size(), " values is shorter than its parameters"});
          if (!values.empty()) of_[i] = std::span<const T>(values).subspan(begin, p.size);
          begin += p.size;
          found[i] = true;
        }
      }
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (!found[i]) raise<invalid_argument>({"there is no residual of parameter ", own[i].name});
      }
    }
    /// The residual of the bucket `b`; empty if its parameters have none.
    template <class Bucket>
    [[nodiscard]] std::vector<T> of(const list_type& list, const Bucket& b) const {
      std::vector<T> all;
      for (std::size_t i = b.first; i < b.first + b.count; ++i) {
        if (of_[i].empty()) continue;
        all.resize(b.size);
        std::copy(of_[i].begin(), of_[i].end(), all.data() + list.tensors[i].begin);
      }
      return all;
    }

   private:
    std::vector<std::vector<T>> states_;
    std::vector<std::span<const T>> of_; // refers to `states_`; empty for a parameter without a residual
  };

  /// The index of the parameter `name` among `all`, or their number if none has this name. Looks at `from` first.
  static std::size_t index_of(std::span<const parameter> all, std::string_view name, std::size_t from = 0) {
    for (std::size_t tried = 0; tried < all.size(); ++tried) {
      const std::size_t i = (from + tried) % all.size();
      if (all[i].name == name) return i;
    }
    return all.size();
  }
  std::size_t find(std::string_view name, std::size_t from = 0) const {
    const std::size_t i = index_of(parameters_, name, from);
    if (i == parameters_.size())
      raise<invalid_argument>({"no parameter has the name ", name, "; there are ", i,
                               " parameters, of which the first is ", parameters_[0].name});
    return i;
  }
  void check_bucket(std::size_t i) const {
    if (i >= buckets()) raise<invalid_argument>({"bucket ", i, " is out of range: there are ", buckets(), " buckets"});
  }

  detail::in_bucket<Algorithm> algorithm_of_bucket() const { return {algorithm_, &rounds_.list().shape}; }
  list_type list_of(std::span<const parameter> parameters, std::size_t bucket_bytes) {
    rounds_.prefix().check_communicator();
    if (parameters.empty()) raise<invalid_argument>({"there are no parameters; expected at least one"});
    list_type list{detail::bucket_shape(bucket_bytes)};
    for (const parameter& p : parameters) {
      if (&parameters[index_of(parameters, p.name)] != &p)
        raise<invalid_argument>({"two parameters have the name ", p.name, "; names must be unique"});
      list.shape.add(sentence(p.name, ":", p.size), detail::fnv1a(p.name) ^ detail::splitmix(p.size));
      list.add(rounds_.prefix(), sentence("parameter ", p.name), p.size,
               [this] { return reducer_type(algorithm_of_bucket()); });
    }
    list.allocate(rounds_.net());
    return list;
  }
  /// Buckets of `parameters` with the residuals and the states in `saved`.
  list_type restored(std::span<const parameter> parameters, std::size_t bucket_bytes,
                     std::span<const std::byte> saved) {
    const std::vector<detail::saved_bucket> from = detail::read_buckets(saved);
    list_type list = list_of(parameters, bucket_bytes);
    const residuals theirs(parameters, from);
    for (const auto& b : from) detail::check_names(detail::from_bytes<T>(b.state).names, detail::names_of(algorithm_));
    for (auto& b : list.buckets) {
      const std::span<const parameter> own = parameters.subspan(b.first, b.count);
      b.reducer.set_residual(theirs.of(list, b));
      for (const auto& f : from) {
        if (own.size() == f.parameters.size() && std::equal(own.begin(), own.end(), f.parameters.begin()))
          b.reducer.load(f.state);
      }
    }
    return list;
  }
  /// Makes `list`, which consists of `parameters`, the buckets of this object.
  void adopt(std::span<const parameter> parameters, list_type list) {
    std::vector<parameter> kept(parameters.begin(), parameters.end());
    parameters_.swap(kept);
    rounds_.list() = std::move(list);
  }

  template <class Bucket>
  void start_call(Bucket& b, std::span<T> x) {
    b.call.emplace(b.reducer.start(rounds_.net(), named{b.name}, x, op_));
  }

  Algorithm algorithm_;
  Op op_;
  std::vector<parameter> parameters_;
  std::size_t next_ = 0; // index behind the parameter that was ready last, which is probably ready next
  rounds_type rounds_;
};

} // namespace spar::inline v0_1
