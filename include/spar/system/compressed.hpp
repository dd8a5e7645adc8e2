// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compressed allreduce that compresses where that pays (Zhou et al.).
#pragma once

#include <spar/collective/compressed_recursive_doubling.hpp>
#include <spar/collective/compressed_ring.hpp>
#include <spar/model/compressed_cost.hpp>
#include <spar/system/dense.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar {

/// Of dense values: the compressed ring or compressed recursive doubling where the model expects it to be faster than
/// the best allreduce without compression, else that one. All ranks know n and the model, so all choose alike;
/// `choice` tells what and why.
template <class Codec>
struct compressed {
  static constexpr std::string_view name = "compressed";

  Codec codec{};

  template <element T>
  [[nodiscard]] compression_choice choice(const network_model& model, rank_t ranks, std::size_t n) const {
    const problem call{ranks, static_cast<double>(n), static_cast<double>(n), sizeof(T), 4};
    return {model, call, model_of<T>(codec, model)};
  }
  [[nodiscard]] std::uint64_t agreed() const noexcept { return detail::agreed_by_codec(codec); }
  /// Throws `invalid_argument` for a bad option.
  template <element T, class Op>
  void validate(std::span<T>, const Op&) const {
    (void)codec.template encoded_bytes<T>(1);
  }

  /// In place. `residual`, where there is one, gets what this rank's encodings lose.
  template <transport Net, element T, reduction<T> Op>
    requires block_codec<Codec, T>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op, std::span<T> residual = {}) const& {
    const auto chosen = choice<T>(net.net().node().network(), net.size(), x.size()).chosen;
    const dense plain;
    const compressed_ring<Codec> ring{codec};
    const compressed_recursive_doubling<Codec> doubling{codec};
    const auto start = [&] {
      switch (chosen) {
      case compression_choice::algorithm::compressed_ring:
        return ring(net.with_algorithm(ring.name, ring.agreed()), x, op, residual);
      case compression_choice::algorithm::compressed_doubling:
        return doubling(net.with_algorithm(doubling.name, doubling.agreed()), x, op, residual);
      default:
        return plain(net.with_algorithm(plain.name), x, op);
      }
    };
    auto running = start();
    co_await std::move(running);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
