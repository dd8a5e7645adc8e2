// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sparse vectors of the C interface that spar owns.
#pragma once

#include "arguments.hpp"
#include "communicator.hpp"

#include <spar/storage/sparse_stream.hpp>
#include <spar/system/any/allreduce_object.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace spar::inline v0_1::c {

/// Describes the part of a stream in C.
template <class T, class Index>
spar_vector vector_of(const stream_view<T, Index>& v) noexcept {
  return {.n = signed_of(v.dimension()),
          .count = signed_of(v.count()),
          .indices = v.indices().data(),
          .values = v.values().data(),
          .first = signed_of(v.first()),
          .index_bits = 8 * sizeof(Index),
          .type = static_cast<int>(code_of<T>)};
}

/// A stream.
class stream : public object {
 public:
  static constexpr kind handles = kind::stream;

  [[nodiscard]] virtual spar_vector view() const noexcept = 0;
  virtual void to_dense(void* values, std::int64_t n) const = 0;
};

/// A stream in the memory of a communicator, or in other memory if `on` is null.
template <class T, class Index>
class typed_stream final : public stream {
 public:
  typed_stream(std::shared_ptr<communicator> on, used_operation op, sparse_stream<T, Index> entries) noexcept
      : on_(std::move(on)), op_(std::move(op)), entries_(std::move(entries)) {}

  [[nodiscard]] spar_vector view() const noexcept override { return vector_of(entries_.view()); }
  void to_dense(void* values, std::int64_t n) const override {
    entries_.view().to_dense(checked_array<T>(values, n, "values"), detail::chosen_operation{op_.what});
  }

 private:
  std::shared_ptr<communicator> on_; // whose pool owns the memory
  used_operation op_;
  sparse_stream<T, Index> entries_;
};

/// Returns the handle of a stream.
template <class T, class Index>
spar_stream handle_of(std::shared_ptr<communicator> on, used_operation op, sparse_stream<T, Index> entries) {
  return handle_for<spar_stream>(std::shared_ptr<stream>(
      std::make_shared<typed_stream<T, Index>>(std::move(on), std::move(op), std::move(entries))));
}

} // namespace spar::inline v0_1::c
