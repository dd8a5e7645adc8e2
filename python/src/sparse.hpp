// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sparse vectors on their way from Python to the C interface and back.
#pragma once

#include "arrays.hpp"
#include "errors.hpp"

#include <spar/spar.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace spar_python {

/// A stream that is freed with this object.
class owned_stream {
 public:
  owned_stream() = default;
  owned_stream(const owned_stream&) = delete;
  ~owned_stream() { static_cast<void>(spar_stream_free(&stream_)); }
  /// Where a function of C returns the stream.
  [[nodiscard]] spar_stream* to() noexcept { return &stream_; }
  [[nodiscard]] spar_vector view() const {
    spar_vector view;
    check(spar_stream_view(stream_, &view));
    return view;
  }

 private:
  spar_stream stream_ = nullptr;
};

/// The entries of a sparse vector of dimension `n` that a caller passes. Indices get 32 bits if n <= 2^32, otherwise
/// 64, whatever the type of the array.
class sparse_entries {
 public:
  /// Sums entries with equal indices, and sorts the entries, unless indices are `ascending`, which the collectives
  /// check. Throws InvalidArgumentError, TypeError or ValueError with the name of the argument.
  sparse_entries(std::int64_t n, nb::handle indices, nb::handle values, bool ascending);

  [[nodiscard]] const spar_vector* view() const noexcept { return &view_; }
  /// The indices and the values of `view`, which spar owns, in new arrays, with the types of these entries.
  [[nodiscard]] nb::tuple copy_of(const spar_vector& view) const { return copy_of(view, indices_.type()); }
  /// The same with indices of the type `index`.
  [[nodiscard]] static nb::tuple copy_of(const spar_vector& view, element index);

 private:
  array indices_, values_;
  call_values x_;
  std::unique_ptr<std::byte[]> own_indices_; // if the caller's have another size
  owned_stream sums_;                        // if the indices do not ascend
  spar_vector view_{};
};

} // namespace spar_python
