// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block codec without `options`, which ranks need to compare it, is rejected in one sentence, also inside a storage.
#include <spar/spar.hpp>

struct halves {
  static constexpr spar::slot fills = spar::slot::storage;
  static constexpr std::string_view name = "halves";
#ifdef POSITIVE_CONTROL
  void options(auto&&) const {}
#endif
  template <spar::element T>
  std::size_t encoded_bytes(std::size_t count) const {
    return count * sizeof(T);
  }
  template <spar::element T>
  void encode(std::span<const T>, std::span<std::byte>, spar::block_position) const {}
  template <spar::element T>
  void decode(std::span<const std::byte>, std::span<T>) const {}
};

void f(spar::threads& net, std::span<float> x) {
  spar::allreduce(net, x, spar::compose(spar::storage::then<spar::storage::coo, halves>{}, spar::ring{}));
}
