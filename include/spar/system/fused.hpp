// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reduces a list of small tensors with few messages: combines neighbouring tensors into buckets, and reduces each
// bucket as one vector (tensor fusion; Sergeev and Del Balso 2018).
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/link.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/runtime/arguments.hpp>
#include <spar/system/collectives.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// Options of a fused_allreduce.
struct fusion_options {
  std::size_t bucket_bytes = std::size_t{1} << 20; ///< maximum size, in bytes, of a bucket with more than one tensor
  /// Prefix of the names of the collectives, which no other `fused_allreduce` on the communicator has. By default, each
  /// object has its own prefix, "fused 0", "fused 1" and so on; all ranks must then create and destroy their
  /// objects in the same order.
  std::string_view name{};
};

namespace detail {

/// The prefix of the names of one fused_allreduce, which no other object on the communicator has.
class fused_prefix : public link {
 public:
  /// Joins `others`, the ring of all prefixes on the communicator. If `text` is empty, the prefix is the first of
  /// "fused 0", "fused 1" and so on that no other object has. Throws `invalid_argument` if another object has the
  /// prefix `text`.
  fused_prefix(link& others, std::string_view text) : text_(text) {
    for (std::size_t number = 0; text.empty() && (number == 0 || is_in(others)); ++number)
      text_ = sentence("fused ", number);
    if (!text.empty() && is_in(others)) {
      raise<invalid_argument>({"another fused_allreduce on this communicator has the name ", text_,
                               "; give each object a name of its own, or none"});
    }
    join_before(others);
  }
  ~fused_prefix() { leave(); }
  /// Whether the communicator still exists, which otherwise has taken all prefixes out of its ring.
  [[nodiscard]] bool has_communicator() const noexcept { return &after() != this; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  [[nodiscard]] bool is_in(link& others) const noexcept {
    for (link* l = &others.after(); l != &others; l = &l->after()) {
      if (static_cast<fused_prefix*>(l)->text_ == text_) return true;
    }
    return false;
  }

  std::string text_;
};

/// The tensors of a fused_allreduce, on which all ranks must agree.
class fused_shape {
 public:
  fused_shape(std::span<const std::size_t> sizes, std::size_t bucket_bytes)
      : bucket_bytes_(bucket_bytes), hash_(splitmix(bucket_bytes)) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      hash_ = splitmix(hash_ ^ sizes[i]);
      if (sizes_.size() < 100)
        sizes_ += sentence(i > 0 ? "+" : "", sizes[i]);
      else if (i + 1 == sizes.size())
        sizes_ += sentence("+... of ", sizes.size());
    }
  }
  void options(auto&& f) const { f("tensors", std::string_view(sizes_)), f("bucket_bytes", bucket_bytes_); }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

 private:
  std::string sizes_; // the first sizes, for error messages
  std::size_t bucket_bytes_;
  std::uint64_t hash_; // of all sizes and of `bucket_bytes_`
};

/// The algorithm of a bucket, with the tensors as options. `shape` must outlive the call.
template <class Algorithm>
struct fused_algorithm {
  static constexpr std::string_view name = Algorithm::name;
  Algorithm algorithm;
  const fused_shape* shape;

  void options(auto&& f) const {
    algorithm.options(f);
    shape->options(f);
  }
  template <transport Net, class... Args>
  auto operator()(channel<Net> net, Args... args) const& {
    return algorithm(net, args...);
  }
};

} // namespace detail

/// Allreduces a list of tensors, such as the gradients of a network's layers, in rounds. In each round a program calls
/// `ready(i, x)` once for each tensor i, as soon as the tensor is computed, and then calls `wait()`. The order of the
/// calls to `ready` may differ between ranks.
///
/// Neighbouring tensors of the list share a bucket of up to `bucket_bytes` bytes. Each bucket is reduced by one
/// collective, as soon as all tensors of the bucket are ready. A tensor that is alone in its bucket is reduced in
/// place; other tensors are copied to the bucket and back. `ready` and `wait` may throw the \ref call_errors. If the
/// communicator is destroyed first, `ready` throws `invalid_argument`.
template <communicates Net, element T, class Algorithm = sparcml, class Op = sum>
class fused_allreduce {
 public:
  /// `sizes` contains the number of values of each tensor, and must be the same on every rank. `algorithm` reduces each
  /// bucket; `options` must be the same on every rank. Throws `invalid_argument` if `bucket_bytes` is 0, or if another
  /// `fused_allreduce` on the communicator has the prefix `name`.
  fused_allreduce(Net& net, std::span<const std::size_t> sizes, const fusion_options& options = {},
                  Algorithm algorithm = {}, Op op = {})
      : net_(&detail::port_of(net)), algorithm_(std::move(algorithm)), op_(op), shape_(sizes, options.bucket_bytes),
        prefix_(net_->node().prefixes(), options.name) {
    if (options.bucket_bytes == 0) raise<invalid_argument>({"bucket_bytes is 0; expected at least 1"});
    const std::size_t room = std::max<std::size_t>(1, options.bucket_bytes / sizeof(T));
    for (const std::size_t size : sizes) {
      if (buckets_.empty() || buckets_.back().size + size > room) {
        buckets_.push_back({sentence(prefix_.text(), "/", buckets_.size()), tensors_.size(), 0, 0, {}});
      }
      bucket& b = buckets_.back();
      tensors_.push_back({buckets_.size() - 1, b.size, size, nullptr});
      b.size += size;
      ++b.count;
    }
    for (bucket& b : buckets_) {
      if (b.count > 1) b.values = buffer<T>(net_->memory(), b.size);
    }
  }
  fused_allreduce(const fused_allreduce&) = delete;

  /// The number of buckets, each of which one collective reduces.
  [[nodiscard]] std::size_t buckets() const noexcept { return buckets_.size(); }

  /// Marks tensor `i` as computed. `x` holds the tensor's values and is borrowed until `wait()` returns. Throws
  /// `invalid_argument` if there is no tensor `i`, if the length of `x` differs from `sizes[i]` of the constructor, if
  /// `x` is in device memory and the program uses CUDA, if the device of the communicator is not the current one, or if
  /// tensor `i` is already marked as ready in this round.
  void ready(std::size_t i, std::span<T> x) {
    if (i >= tensors_.size()) {
      raise<invalid_argument>({"tensor ", i, " is out of range: there are ", tensors_.size(), " tensors"});
    }
    tensor& t = tensors_[i];
    if (x.size() != t.size) {
      raise<invalid_argument>(
          {"tensor ", i, " has ", x.size(), " values; expected ", t.size, ", its size in the constructor"});
    }
    if (t.is_ready)
      raise<invalid_argument>(
          {"tensor ", i, " was marked as ready twice in one round; call wait() before the next round"});
    if (!prefix_.has_communicator())
      raise<invalid_argument>({"the communicator of this fused_allreduce has been destroyed; construct another one"});
    detail::check_arguments(*net_, x);
    t.values = x.data();
    bucket& b = buckets_[t.bucket];
    if (b.count > 1) std::copy(x.begin(), x.end(), b.values.data() + t.begin);
    if (b.ready + 1 == b.count) start(b);
    ++b.ready; // after `start`: if `start` throws, the program may call `ready` again for this tensor
    t.is_ready = true;
  }

  /// Waits until every tensor holds its result; afterwards a new round begins. Throws `invalid_argument` if a tensor is
  /// not ready; the program may then mark the tensor as ready and call `wait()` again. If the collective of a bucket
  /// failed, throws the error of the collective.
  void wait() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].is_ready)
        raise<invalid_argument>(
            {"tensor ", i, " is not ready, so wait() cannot end the round; call ready() for the tensor first"});
    }
    for (bucket& b : buckets_) b.ready = 0;
    for (tensor& t : tensors_) t.is_ready = false;
    std::vector<pending<Net, void>> calls = std::exchange(calls_, {});
    for (auto& call : calls) call.wait();
    for (const tensor& t : tensors_) {
      const bucket& b = buckets_[t.bucket];
      if (b.count > 1) std::copy(b.values.data() + t.begin, b.values.data() + t.begin + t.size, t.values);
    }
  }

 private:
  struct tensor {
    std::size_t bucket;
    std::size_t begin; // offset in the bucket, in values
    std::size_t size;  // in values
    T* values;
    bool is_ready = false;
  };
  struct bucket {
    std::string name;
    std::size_t first;     // index of the bucket's first tensor in `tensors_`
    std::size_t size;      // in values
    std::size_t count;     // number of tensors in the bucket
    buffer<T> values;      // empty if the bucket has a single tensor
    std::size_t ready = 0; // number of tensors that are ready in this round
  };

  void start(bucket& b) {
    const std::span<T> x(b.count > 1 ? b.values.data() : tensors_[b.first].values, b.size);
    detail::or_abort(*net_, [&] {
      calls_.reserve(buckets_.size()); // not after the start of the call, whose handle would then be lost
      auto call = detail::allreduce_forms{}(*net_, x, algorithm_, op_);
      if constexpr (!std::same_as<decltype(call), detail::rejected_call>) {
        call.agreed.digest = detail::splitmix(call.agreed.digest ^ shape_.hash());
        using algorithm = detail::fused_algorithm<decltype(call.algorithm)>;
        calls_.push_back(
            start_collective(*net_, named{b.name}, call.agreed, algorithm{std::move(call.algorithm), &shape_}, x, op_));
      }
    });
  }

  detail::port_type_of<Net>* net_;
  Algorithm algorithm_;
  Op op_;
  detail::fused_shape shape_;
  detail::fused_prefix prefix_;
  std::vector<tensor> tensors_;
  std::vector<bucket> buckets_;
  std::vector<pending<Net, void>> calls_; // the calls of this round, one per bucket that is complete
};

} // namespace spar::inline v0_1
