// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A view of a residual: where a call puts the rounding errors of its encodings and the entries that are not in the
// result.
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/element.hpp>
#include <spar/core/op.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/kernel/dense.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

namespace detail {

/// A change of `count` values of a residual that is not in host memory: those at `indices` or, if `indices` is null,
/// from the index `begin` on. The arrays are where the streams of the call are, on the host or on a device. They are
/// valid only while the change is made, or put into the stream of the device.
template <element T>
struct residual_change {
  enum class kind : std::uint8_t {
    assign,          ///< a value of the residual becomes values[e]
    assign_unlisted, ///< the same, unless its index is one of the ascending indices `listed`
    add,             ///< values[e] is added
    add_error        ///< values[e] - decoded[e] is added, rounded once, if it is finite
  };

  kind what;
  const void* indices; // distinct; of the index type of the call, which has `index_bytes` bytes
  std::size_t index_bytes;
  std::uint64_t begin;
  const T* values;
  const T* decoded; // null unless `what` is add_error
  std::size_t count;
  const void* listed = nullptr; // of the type of `indices`
  std::size_t listed_count = 0;
};

} // namespace detail

/// Refers to a residual of n values: to dense values in host memory, or to values in other memory, which a function of
/// their owner changes. An empty view refers to no residual; what a call puts there is lost.
template <element T>
class residual_view {
 public:
  using change = detail::residual_change<T>; ///< what is done to values of a residual in other memory

  residual_view() = default;
  /// Refers to dense values in host memory.
  residual_view(std::span<T> values) noexcept : values_(values) {}
  /// A residual that `make(self, values, change)` changes, in the order of the calls. `self` must outlive the view.
  residual_view(void (*make)(void* self, std::span<T> values, const change& what), void* self,
                std::span<T> values = {}) noexcept
      : values_(values), make_(make), self_(self) {}

  /// Whether the view refers to no residual.
  [[nodiscard]] bool empty() const noexcept { return values_.empty() && make_ == nullptr; }

  /// Replaces the values at the indices of `entries` by the values of `entries`.
  template <index_type Index>
  void assign(coo_span<T, Index> entries) const {
    if (make_ != nullptr) return put(kind::assign, entries, nullptr);
    if (!values_.empty()) kernel::scatter_assign(entries, 0, values_.data());
  }
  /// The same for the entries whose index is not one of the ascending indices `listed`; only for a residual in memory
  /// of a device.
  template <index_type Index>
  void assign_unlisted(coo_span<T, Index> entries, std::span<const Index> listed) const {
    if (make_ == nullptr) return;
    make_(self_, values_,
          {kind::assign_unlisted, entries.indices.data(), sizeof(Index), 0, entries.values.data(), nullptr,
           entries.size(), listed.data(), listed.size()});
  }
  /// Adds the values of `entries`.
  template <index_type Index>
  void add(coo_span<T, Index> entries) const {
    if (make_ != nullptr) return put(kind::add, entries, nullptr);
    if (!values_.empty()) kernel::scatter(entries, 0, values_.data(), sum{});
  }
  /// Adds the rounding errors exact - decoded of an encoding; `decoded` points to one value for each of `exact`.
  template <index_type Index>
  void add_error(coo_span<T, Index> exact, const T* decoded) const {
    if (make_ != nullptr) return put(kind::add_error, exact, decoded);
    if (values_.empty()) return;
    kernel::scatter_difference(values_.data(), exact.indices.data(), exact.values.data(), decoded, exact.size());
  }
  /// Adds the rounding errors exact[i] - decoded[i] to the value at the index `begin` + i.
  void add_error(std::uint64_t begin, std::span<const T> exact, const T* decoded) const {
    if (make_ != nullptr)
      return make_(self_, values_, {kind::add_error, nullptr, 0, begin, exact.data(), decoded, exact.size()});
    if (!values_.empty()) kernel::add_difference(values_.data() + begin, exact.data(), decoded, exact.size());
  }

 private:
  using kind = typename change::kind;

  template <class Index>
  [[gnu::cold]] void put(kind what, coo_span<T, Index> entries, const T* decoded) const {
    make_(self_, values_,
          {what, entries.indices.data(), sizeof(Index), 0, entries.values.data(), decoded, entries.size()});
  }

  std::span<T> values_;
  void (*make_)(void* self, std::span<T> values, const change& what) = nullptr;
  void* self_ = nullptr;
};

} // namespace spar::inline v0_1
