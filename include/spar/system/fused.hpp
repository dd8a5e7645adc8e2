// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Many small tensors in few messages: buckets of tensors, each reduced as one vector.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/system/allreduce.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar {

struct fusion_options {
  std::size_t bucket_bytes = std::size_t{1} << 20; ///< tensors are put together up to this size
  std::string_view name = "fused";                 ///< of its collectives; each fusion on a communicator has its own
};

/// The allreduce of a list of tensors, the gradients of a network's layers for instance, round by round: `ready(i, x)`
/// as tensor i becomes known, in any order and in another one on each rank, then `wait()`. A bucket of tensors that
/// follow each other in the list is reduced by one collective as soon as the last of them is ready. A tensor that fills
/// a bucket by itself is reduced where it lies, others are copied there and back.
template <communicates Net, element T, class Algorithm = sparcml, class Op = sum>
class fused_allreduce {
 public:
  /// `sizes`: how many values each tensor has, the same on every rank. Throws `invalid_argument` for buckets of 0
  /// bytes.
  fused_allreduce(Net& net, std::span<const std::size_t> sizes, const fusion_options& options = {},
                  Algorithm algorithm = {}, Op op = {})
      : net_(&detail::port_of(net)), algorithm_(std::move(algorithm)), op_(op) {
    if (options.bucket_bytes == 0) raise<invalid_argument>({"a fusion's buckets have 0 bytes: no tensor fits"});
    const std::size_t room = std::max<std::size_t>(1, options.bucket_bytes / sizeof(T));
    for (const std::size_t size : sizes) {
      if (buckets_.empty() || buckets_.back().size + size > room) {
        const std::string name = std::string(options.name) + "/" + std::to_string(buckets_.size());
        buckets_.push_back({name, tensors_.size(), 0, 0, {}});
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

  [[nodiscard]] std::size_t buckets() const noexcept { return buckets_.size(); }

  /// Tensor `i` is known: it is borrowed until `wait()` has returned. Throws `invalid_argument` where there is no such
  /// tensor, where it has another length, and where it is ready already.
  void ready(std::size_t i, std::span<T> x) {
    if (i >= tensors_.size()) {
      raise<invalid_argument>({"tensor ", i, " is ready, but there are ", tensors_.size(), " tensors"});
    }
    tensor& t = tensors_[i];
    if (x.size() != t.size) {
      raise<invalid_argument>({"tensor ", i, " has ", x.size(), " values; it was announced with ", t.size});
    }
    if (t.is_ready) raise<invalid_argument>({"tensor ", i, " is ready for the second time in a round"});
    t.values = x.data();
    bucket& b = buckets_[t.bucket];
    if (b.count > 1) std::copy(x.begin(), x.end(), b.values.data() + t.begin);
    if (b.ready + 1 == b.count) start(b);
    ++b.ready; // it has started, or is not complete yet
    t.is_ready = true;
  }

  /// Waits until all tensors hold their sums; then a new round begins. Throws `invalid_argument` where one was not
  /// ready: it can still become so. Throws the error of a call that failed.
  void wait() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].is_ready) raise<invalid_argument>({"tensor ", i, " is not ready, so its round cannot end"});
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
    std::size_t begin; // in the bucket
    std::size_t size;
    T* values;
    bool is_ready = false;
  };
  struct bucket {
    std::string name;
    std::size_t first; // tensor
    std::size_t size;  // values
    std::size_t count; // tensors
    buffer<T> values;
    std::size_t ready = 0;
  };

  void start(bucket& b) {
    T* const values = b.count > 1 ? b.values.data() : tensors_[b.first].values;
    calls_.push_back(start_allreduce(*net_, named{b.name}, std::span<T>(values, b.size), algorithm_, op_));
  }

  detail::port_type_of<Net>* net_;
  Algorithm algorithm_;
  Op op_;
  std::vector<tensor> tensors_;
  std::vector<bucket> buckets_;
  std::vector<pending<Net, void>> calls_; // of this round
};

} // namespace spar
