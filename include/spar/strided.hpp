// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values with gaps between them, such as a block of a matrix: collectives pack them, and selectors see no padding.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/kernel/strided.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

template <class T>
class strided;

/// A multidimensional view of values in memory, such as a std::mdspan with the default accessor, or a `strided`: the
/// value with the indices i_0, i_1, .. is `data_handle()[i_0 * stride(0) + i_1 * stride(1) + ..]`. Rejects views with
/// proxies in place of pointers.
template <class View>
concept strided_view = requires(const View& x) {
  { x.data_handle() } -> std::convertible_to<typename View::element_type*>;
  { x.rank() } -> std::convertible_to<std::size_t>;
  { x.extent(0) } -> std::integral;
  { x.stride(0) } -> std::integral;
};

namespace detail {

/// An integer of any type, as an argument in braces. Throws `invalid_argument` if it has no place in 64 bits.
struct any_integer {
  template <std::integral Number>
  any_integer(Number x) : value(static_cast<std::int64_t>(x)) {
    if (!std::in_range<std::int64_t>(+x)) // by +, a bool or a character is a number
      raise<invalid_argument>({x, " is too large for an extent or a stride; expected at most 2^63 - 1"});
  }
  std::int64_t value;
};

/// Calls `algorithm` with contiguous values in place of a `strided`: packs the values into memory of the pool before,
/// and copies the result back afterwards. The messages are those of contiguous values.
template <class Algorithm>
struct packing {
  static constexpr std::string_view name = Algorithm::name;
  Algorithm algorithm;

  void options(auto&& f) const { algorithm.options(f); }

  template <transport Net, class T, class... Rest>
  auto operator()(channel<Net> net, strided<T> x, Rest... rest) const& {
    using work = decltype(algorithm(net, std::span<T>(), rest...));
    if (x.is_contiguous()) return algorithm(net, std::span<T>(x.data_handle(), x.size()), rest...);
    return packed<work>(net, x, rest...);
  }

 private:
  template <class Work, transport Net, class T, class... Rest>
  Work packed(channel<Net> net, strided<T> x, Rest... rest) const& {
    buffer<std::remove_const_t<T>> values(net.memory(), x.size());
    x.copy_to(values.span());
    auto running = algorithm(net, std::span<T>(values.span()), rest...);
    if constexpr (std::is_const_v<T>) {
      co_return co_await std::move(running);
    } else {
      static_assert(std::same_as<Work, task<void>>);
      co_await std::move(running);
      x.copy_from(std::as_const(values).span());
    }
  }
};

} // namespace detail

/// Values with gaps between them: the value with the indices i_0, i_1, .., each below its extent, is at
/// `base[i_0 * strides[0] + i_1 * strides[1] + ..]`. Up to eight dimensions; strides count values, and may be negative.
/// Collectives on dense values take a `strided` in place of a span, and give the result, bits and messages of the
/// vector of the values in the order of their indices, of which the last changes fastest. What is in the gaps is
/// neither read nor written. A `strided` refers to the values, as a span does.
///
///     spar::strided block(matrix.data() + 5, {rows, 10}, {columns, 1}); // columns 5 to 14 of a matrix
///     spar::allreduce(net, block);
template <class T>
class strided {
 public:
  using element_type = T;                    ///< the type of the values, const if they cannot be written
  using value_type = std::remove_const_t<T>; ///< the type of the values
  static constexpr bool packs_values = true; ///< collectives pack the values

  /// The values with the `extents` and `strides`, of which the first is at `base`. Throws `invalid_argument` if there
  /// are not as many strides as extents, or more than eight; if an extent is negative; if `base` is null, unless there
  /// are no values; if the values do not fit into the memory of a machine; or if two values may be at one address:
  /// each stride, in the order of their sizes, must exceed the distance that all smaller strides span.
  strided(T* base, std::initializer_list<detail::any_integer> extents,
          std::initializer_list<detail::any_integer> strides)
      : base_(base) {
    if (extents.size() != strides.size()) {
      raise<invalid_argument>({"a strided has ", extents.size(), " extents and ", strides.size(),
                               " strides; expected as many strides as extents"});
    }
    for (std::size_t d = 0; d < extents.size(); ++d) add(extents.begin()[d].value, strides.begin()[d].value);
    check_extents();
  }
  /// The values of the multidimensional `view`. Throws `invalid_argument` as above.
  template <strided_view View>
    requires std::convertible_to<typename View::element_type (*)[], T (*)[]>
  strided(const View& view) : base_(view.data_handle()) {
    for (std::size_t d = 0; d < view.rank(); ++d)
      add(detail::any_integer(view.extent(d)).value, detail::any_integer(view.stride(d)).value);
    check_extents();
  }

  /// The first value.
  [[nodiscard]] T* data_handle() const noexcept { return base_; }
  /// The number of dimensions.
  [[nodiscard]] std::size_t rank() const noexcept { return shape_.dimensions; }
  /// The number of indices of dimension `d`.
  [[nodiscard]] std::uint64_t extent(std::size_t d) const noexcept { return shape_.extents[d]; }
  /// The distance, in values, of two values whose indices of dimension `d` differ by one.
  [[nodiscard]] std::int64_t stride(std::size_t d) const noexcept { return shape_.strides[d]; }
  /// The number of values: the product of the extents.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Whether the values are contiguous in memory. A call packs values that are not.
  [[nodiscard]] bool is_contiguous() const noexcept {
    return size_ < 2 || (rows_.dimensions == 1 && rows_.strides[0] == 1);
  }

  /// Copies the values to `out`. Throws `invalid_argument` if `out` has another length.
  void copy_to(std::span<value_type> out) const {
    check_length(out.size());
    if (size_ > 0) kernel::pack_strided<value_type>(base_, rows_, out.data());
  }
  /// Copies the values `in` to the places of these values. Throws `invalid_argument` if `in` has another length.
  void copy_from(std::span<const value_type> in) const
    requires(!std::is_const_v<T>)
  {
    check_length(in.size());
    if (size_ > 0) kernel::unpack_strided<value_type>(in.data(), rows_, base_);
  }

  /// For spar's other headers: returns `algorithm` so that it packs the values.
  template <class Algorithm>
  [[nodiscard]] static detail::packing<Algorithm> packing(Algorithm algorithm) {
    return {std::move(algorithm)};
  }

 private:
  static constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max() / sizeof(T) / 2; // values

  void add(std::int64_t extent, std::int64_t stride) {
    if (shape_.dimensions == kernel::max_dimensions) {
      raise<invalid_argument>({"a strided has more than ", kernel::max_dimensions, " dimensions; expected at most ",
                               kernel::max_dimensions});
    }
    if (extent < 0) {
      raise<invalid_argument>(
          {"the extent of dimension ", shape_.dimensions, " of a strided is ", extent, "; expected 0 or more"});
    }
    shape_.extents[shape_.dimensions] = static_cast<std::uint64_t>(extent);
    shape_.strides[shape_.dimensions++] = stride;
  }

  /// Counts the values, checks that they have different addresses, and joins dimensions to long rows.
  void check_extents() {
    size_ = 1;
    for (std::size_t d = 0; d < rank(); ++d)
      if (extent(d) == 0) size_ = 0;
    if (size_ == 0) return;
    for (std::size_t d = 0; d < rank(); ++d) {
      if (__builtin_mul_overflow(size_, extent(d), &size_) || size_ > most) raise_too_large();
    }
    if (base_ == nullptr) {
      raise<invalid_argument>(
          {"a strided of ", size_, " values begins at a null pointer; expected a pointer to values"});
    }
    check_addresses();
    for (std::size_t d = 0; d < rank(); ++d) {
      if (extent(d) == 1) continue;
      if (rows_.dimensions > 0) {
        const std::size_t before = rows_.dimensions - 1;
        if (rows_.strides[before] == stride(d) * static_cast<std::int64_t>(extent(d))) { // no gap between the rows
          rows_.extents[before] *= extent(d);
          rows_.strides[before] = stride(d);
          continue;
        }
      }
      rows_.extents[rows_.dimensions] = extent(d);
      rows_.strides[rows_.dimensions++] = stride(d);
    }
  }
  /// Visits the dimensions in the order of the sizes of their strides.
  void check_addresses() const {
    std::array<bool, kernel::max_dimensions> seen{};
    std::uint64_t span = 0, below = 0, above = 0; // distances of the first value and the others, in values
    for (std::size_t visited = 0; visited < rank(); ++visited) {
      std::size_t next = rank();
      for (std::size_t d = 0; d < rank(); ++d)
        if (!seen[d] && (next == rank() || magnitude(d) < magnitude(next))) next = d;
      seen[next] = true;
      if (extent(next) == 1) continue;
      if (magnitude(next) <= span) {
        raise<invalid_argument>({"the stride of dimension ", next, " of a strided is ", stride(next),
                                 ", but the dimensions with smaller strides span ", span + 1,
                                 " values, so that two values may be at one address; expected a stride of at least ",
                                 span + 1});
      }
      std::uint64_t reach = 0;
      if (__builtin_mul_overflow(magnitude(next), extent(next) - 1, &reach) || reach > most || span + reach > most)
        raise_too_large();
      span += reach;
      (stride(next) < 0 ? below : above) += reach;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(base_);
    if (below * sizeof(T) > address || above > (UINTPTR_MAX - address) / sizeof(T)) raise_too_large();
  }
  [[nodiscard]] std::uint64_t magnitude(std::size_t d) const noexcept {
    return stride(d) < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(stride(d))
                         : static_cast<std::uint64_t>(stride(d));
  }
  [[noreturn, gnu::cold]] static void raise_too_large() {
    raise<invalid_argument>({"the values of a strided do not fit into memory: their addresses, extents times strides "
                             "times ",
                             sizeof(T), " bytes, overflow"});
  }
  void check_length(std::size_t length) const {
    if (length != size_)
      raise<invalid_argument>(
          {"a strided of ", size_, " values is copied from or to ", length, " values; expected ", size_, " values"});
  }

  T* base_;
  std::size_t size_ = 0;
  kernel::strided_shape shape_{}; // as the caller gave it
  kernel::strided_shape rows_{};  // the same values with as few dimensions as possible
};

/// \cond
template <class T>
strided(T*, std::initializer_list<detail::any_integer>, std::initializer_list<detail::any_integer>) -> strided<T>;
template <strided_view View>
strided(const View&) -> strided<typename View::element_type>;
/// \endcond

} // namespace spar::inline v0_1
