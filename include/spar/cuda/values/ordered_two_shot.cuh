// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two shots of encoded dense values in the order of a CUDA stream: all ranks know the sizes of all messages.
#pragma once

#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/index_range.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/pieces.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/cuda/values/codecs.cuh>
#include <spar/cuda/values/ordered.cuh>
#include <spar/storage/codec.hpp>
#include <spar/topology/ownership.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::detail {

/// Whether the encoding by `Codec` draws random numbers.
template <class Codec>
concept draws_on_device = requires { typename device_codec<Codec>::draws; };

/// The memory of the calls of `two_shot` on n values, and the calls, with its bits: every rank sends each owner its
/// encoded block, and gathers the encoded sums of all blocks. A block is encoded at once, in one message.
template <element T, class Codec>
class ordered_two_shot {
  using kernels = device_codec<Codec>;

 public:
  ordered_two_shot(rank_t ranks, std::uint64_t n, const Codec& codec)
      : ranks_(ranks), n_(n), codec_(codec), most_(blocks()[0].size()),
        bytes_((codec.template encoded_bytes<T>(most_) + 15) / 16 * 16) {
    if (!sends()) return;
    out_.reserve(static_cast<std::uint64_t>(ranks) * bytes_), in_.reserve(static_cast<std::uint64_t>(ranks) * bytes_);
    sum_.reserve(most_), decoded_.reserve(most_);
    if constexpr (draws_on_device<Codec>) {
      draws_.reserve(1);
      const std::uint64_t none = 0;
      check_cuda(cudaMemcpy(&draws_.data()->calls, &none, sizeof(none), cudaMemcpyHostToDevice), "cudaMemcpy");
      check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // a short copy may still be on its way
    }
  }

  /// Throws `invalid_argument` unless `two_shot`, with pieces of `piece` values, encodes blocks as if at once.
  static void check_piece(rank_t ranks, std::uint64_t n, const Codec& codec, std::uint64_t piece) {
    const std::uint64_t together = kernels::together(codec), grain = grain_of(codec);
    const std::uint64_t whole = std::max<std::uint64_t>(piece / grain, 1) * grain;
    if (whole % together == 0 || whole >= blocks_for(codec, n, ranks)[0].size()) return;
    raise<invalid_argument>({"the schedule two_shot has pieces of ", piece, " values, but the storage ", Codec::name,
                             " encodes ", together,
                             " values together: for calls in a CUDA stream, pieces must be "
                             "multiples, or as large as a block"});
  }

  /// Puts a call into the stream of `x`, which becomes the sum. Sets `*refused` to 1 if the codec cannot encode a
  /// value.
  template <class Net, class Op>
  void operator()(Net& net, device_span<T> x, std::uint32_t* refused, Op op) const {
    const cudaStream_t stream = x.stream;
    const rank_t rank = net.rank();
    const auto block = [&](rank_t r) {
      return std::span<T>(x.data, n_).subspan(blocks().begin(r), blocks()[r].size());
    };
    const auto message = [&](const device_array<std::byte>& of, rank_t r) {
      return of.data() + static_cast<std::size_t>(r) * bytes_;
    };
    if (sends()) {
      if constexpr (draws_on_device<Codec>) kernels::draw(codec_, step_of(0, rank), draws_.data(), stream);
      for (rank_t r = 0; r < ranks_; ++r)
        if (r != rank) encode(block(r), message(out_, r), blocks().begin(r), false, refused, stream);
      net.exchange(out_.data(), in_.data(), bytes_, stream);

      const std::span<T> sum(sum_.data(), block(rank).size());
      for (rank_t r = 0; r < ranks_; ++r)
        add(sum, r, r == rank ? block(rank).data() : nullptr, message(in_, r), op, stream);
      encode(sum, message(in_, rank), blocks().begin(rank), true, refused, stream);
      net.all_gather(in_.data(), bytes_, stream);
      for (rank_t r = 0; r < ranks_; ++r) kernels::decode(codec_, message(in_, r), block(r), stream);
    }
    if constexpr (requires { op.finalize(T{}, ranks_); }) kernel::start_finalize(x.data, n_, ranks_, op, stream);
  }

  /// The bytes that a rank sends in a call.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept {
    return sends() ? 2 * static_cast<std::uint64_t>(ranks_ - 1) * bytes_ : 0;
  }

 private:
  [[nodiscard]] auto blocks() const noexcept { return blocks_for(codec_, n_, ranks_); }
  /// A single rank encodes nothing.
  [[nodiscard]] bool sends() const noexcept { return ranks_ > 1 && n_ > 0; }

  /// Encodes values from the index `first` on; `second` is whether the values are sums.
  void encode(std::span<const T> values, std::byte* out, std::uint64_t first, bool second, std::uint32_t* refused,
              cudaStream_t stream) const {
    if constexpr (draws_on_device<Codec>) {
      kernels::encode(codec_, values, out, first, draws_.data(), second, stream);
    } else if constexpr (encodes_or_refuses<Codec, T>) {
      kernels::encode(codec_, values, out, block_position{}, stream, refused);
    } else {
      if constexpr (requires { typename kernels::refuses; })
        kernel::start_find_any(values.data(), values.size(), refused, typename kernels::refuses{}, stream);
      kernels::encode(codec_, values, out, block_position{}, stream);
    }
  }
  /// Adds what rank r contributes to `sum`: the values `own` of this rank, or those of a message if `own` is null. The
  /// first rank's become the sum.
  template <class Op>
  void add(std::span<T> sum, rank_t r, const T* own, const std::byte* message, Op op, cudaStream_t stream) const {
    if (r == 0) {
      if (own == nullptr) return kernels::decode(codec_, message, sum, stream);
      return start_copy(reinterpret_cast<std::byte*>(sum.data()), reinterpret_cast<const std::byte*>(own),
                        sum.size_bytes(), cudaMemcpyDeviceToDevice, stream);
    }
    if (own == nullptr) {
      if constexpr (adds<Op> && reduces_encoded<Codec, T, Op>)
        return kernels::reduce_left(codec_, message, sum, op, stream);
      kernels::decode(codec_, message, std::span<T>(decoded_.data(), sum.size()), stream);
      own = decoded_.data();
    }
    kernel::start_combine(sum.data(), own, sum.size(), sum.data(), op, stream);
  }

  template <class Of, bool Draws = draws_on_device<Of>>
  struct draws_of {
    using type = std::byte;
  };
  template <class Of>
  struct draws_of<Of, true> {
    using type = typename device_codec<Of>::draws;
  };

  rank_t ranks_;
  std::uint64_t n_;
  Codec codec_;
  std::uint64_t most_;               // the values of the largest block
  std::uint64_t bytes_;              // of a message
  device_array<std::byte> out_, in_; // the messages of all ranks; what owners send is in `in_`, too
  device_array<T> sum_, decoded_;    // of this rank's block
  device_array<typename draws_of<Codec>::type> draws_;
};

} // namespace spar::inline v0_1::detail
