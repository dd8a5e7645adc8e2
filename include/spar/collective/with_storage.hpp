// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An algorithm for streams together with the storage that its calls are given.
#pragma once

#include <spar/core/task.hpp>
#include <spar/storage/storage.hpp>
#include <spar/transport/channel.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace spar {

/// Called like the algorithm, but without a storage: `with_storage<dsar_split, storage::qsgd<4>>{}`.
template <class Algorithm, class Storage>
struct with_storage {
  static constexpr std::string_view name = Algorithm::name;

  Algorithm algorithm{};
  Storage store{};

  /// Throws `invalid_argument` for a bad option of the algorithm or of the block codec.
  template <element T, index_type Index, class Op>
  void validate(const stream_view<T, Index>& mine, const Op& op) const {
    if constexpr (requires { algorithm.validate(mine, op); }) algorithm.validate(mine, op);
    if constexpr (storage_policy<Storage, T, Index>) (void)storage::blocks_of(store).template encoded_bytes<T>(1);
  }
  void validate_ranks(rank_t ranks) const {
    if constexpr (requires { algorithm.validate_ranks(ranks); }) algorithm.validate_ranks(ranks);
  }
  /// Of the algorithm's options, and of both codecs' names and options where they are not the usual ones.
  [[nodiscard]] std::uint64_t agreed() const {
    std::uint64_t sum = 0;
    if constexpr (requires { algorithm.agreed(); }) sum = algorithm.agreed();
    const auto streams = storage::streams_of(store);
    if constexpr (!std::same_as<storage::streams_type<Storage>, storage::coo>) {
      sum += detail::mix(detail::agreed_by_codec(streams));
      streams.options([&](std::string_view, std::uint64_t value) { sum = detail::mix(sum + value); });
    }
    if constexpr (!storage::plain_blocks<Storage>) sum += detail::agreed_by_codec(storage::blocks_of(store));
    return sum;
  }

  template <transport Net, element T, index_type Index, reduction<T> Op>
    requires storage_policy<Storage, T, Index>
  task<stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op,
                                    std::span<T> residual = {}) const& {
    return algorithm(net, mine, op, store, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
