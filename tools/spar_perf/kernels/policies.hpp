// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Policies with their types erased, so that checking and measuring them is compiled once: selectors, codecs and
// operations on values of type float with 32-bit indices.
#pragma once

#include <spar/core/memory/pool.hpp>
#include <spar/core/op.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/kernel/merge.hpp>
#include <spar/storage/storage.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace spar::perf {

using entries = coo_span<float, std::uint32_t>;

struct selector_policy {
  /// Moves entries out of a vector; keeps the state of the selector from call to call.
  using calls = std::function<sparse_stream<float>(std::span<float>, pool&)>;

  std::string name;
  std::function<void(std::uint64_t n)> validate;
  std::function<std::optional<selector::topk_bounds>(std::uint64_t n)>
      bounds;                   ///< nothing if the selector has no bounds
  std::function<calls()> start; ///< with a new state
  /// The first call of `start()` on values that `prepare` computes in `x`: those of `from`.
  std::function<sparse_stream<float>(std::span<const float> from, std::span<float> x, pool&)> prepared;
  bool ranks_values = true;
};

struct stream_policy {
  std::string name;
  double error = 0; ///< |decoded - value| / the largest |value|; 0 if the codec is exact
  std::function<std::size_t(index_range, std::size_t count)> bound;
  std::function<std::size_t(entries, index_range, std::span<std::byte>)> encode;
  std::function<void(std::span<const std::byte>, index_range, entry_room<float, std::uint32_t>)> decode;
};

struct block_policy {
  std::string name;
  double error = 0; ///< |decoded - value| / the largest |value| of the block; 0 if the codec is exact
  std::function<std::size_t(std::size_t count)> bytes;
  std::function<bool(std::span<const float>)> can_encode;
  std::function<void(std::span<const float>, std::span<std::byte>, block_position)> encode;
  std::function<void(std::span<const std::byte>, std::span<float>)> decode;
};

struct merge_policy {
  std::string name;
  float neutral = 0;
  std::function<float(float, float)> apply;
  std::function<std::size_t(entries, entries, std::uint32_t* indices, float* values)>
      merge; ///< returns the entries written
};

template <class Selector>
selector_policy erased_selector(std::string name, Selector select) {
  static_assert(selects<Selector, float, std::uint32_t>,
                "this is not a selector: a selector has fills, name, validate(n) and options(f), and a call operator "
                "(work, std::span<float>, state&, prepare) that returns an awaitable sparse_stream<float>");
  return {std::move(name),
          [select](std::uint64_t n) { select.validate(n); },
          [select](std::uint64_t n) -> std::optional<selector::topk_bounds> {
            if constexpr (selector_with_bounds<Selector>)
              return select.bounds(n);
            else
              return std::nullopt;
          },
          [select]() -> selector_policy::calls {
            const auto now = std::make_shared<state_of<Selector>>();
            return [select, now](std::span<float> x, pool& memory) { return spar::select(select, x, memory, *now); };
          },
          [select](std::span<const float> from, std::span<float> x, pool& memory) {
            state_of<Selector> now;
            scheduler none_suspended(memory);
            host_work work(none_suspended);
            const auto prepare = [from, x](std::size_t begin, std::size_t end) noexcept {
              std::copy(from.data() + begin, from.data() + end, x.data() + begin);
            };
            return sparse_stream<float>(
                select.template operator()<std::uint32_t>(work, x, now, prepare).await_resume());
          },
          spar::ranks_values<Selector>};
}

/// The relative error that a codec that rounds states, or else `given`.
template <class Codec>
double stated_error(const Codec& codec, double given) {
  if constexpr (requires { codec.template relative_error<float>(); })
    return codec.template relative_error<float>();
  else
    return given;
}

/// `error` is the relative error of a codec that rounds and does not state it.
template <class Codec>
stream_policy erased_stream_codec(std::string name, Codec codec, double error) {
  return {std::move(name), Codec::exact ? 0 : stated_error(codec, error),
          [codec](index_range range, std::size_t count) {
            return codec.template bound<float, std::uint32_t>(range, count);
          },
          [codec](entries from, index_range range, std::span<std::byte> to) { return codec.encode(from, range, to); },
          [codec](std::span<const std::byte> from, index_range range, entry_room<float, std::uint32_t> to) {
            codec.decode(from, range, to);
          }};
}

/// `error` is the relative error of a codec that does not state it.
template <class Codec>
block_policy erased_block_codec(std::string name, Codec codec, double error) {
  return {
      std::move(name),
      stated_error(codec, error),
      [codec](std::size_t count) { return codec.template encoded_bytes<float>(count); },
      [codec](std::span<const float> values) {
        try {
          return detail::can_encode(codec, values);
        } catch (const invalid_argument&) {
          return false;
        }
      },
      [codec](std::span<const float> from, std::span<std::byte> to, block_position at) { codec.encode(from, to, at); },
      [codec](std::span<const std::byte> from, std::span<float> to) { codec.decode(from, to); }};
}

template <class Op>
merge_policy erased_operation(std::string name, Op op) {
  static_assert(reduction<Op, float>,
                "this is not an operation: an operation has a name, neutral<T>() and a call operator on two values");
  return {std::move(name), op.template neutral<float>(), [op](float a, float b) { return op(a, b); },
          [op](entries left, entries right, std::uint32_t* indices, float* values) {
            return kernel::merge(left, right, indices, values, op);
          }};
}

} // namespace spar::perf
