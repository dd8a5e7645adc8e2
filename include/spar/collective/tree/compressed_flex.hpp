// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The reduce-scatter and the all-gather of a FlexReduce plan (FlexReduce, section III-B) for dense values that a block
// codec compresses. Compression is part of the collective (Zhou et al., section III-D): the all-gather encodes each sum
// only once.
#pragma once

#include <spar/collective/tree/flex_cells.hpp>
#include <spar/collective/tree/flex_execute.hpp>
#include <spar/collective/tree/flex_level.hpp>
#include <spar/collective/wire/block_coder.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/topology/flex_plan.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace spar::inline v0_1 {

namespace detail {

/// The `Work` of flex_execute for a compressed reduce-scatter of dense values: every hop up the tree encodes a partial
/// sum, and the receiver decodes the partial sum and adds its own values. Adds the rounding errors of this rank's
/// encodings to `residual`, unless `residual` is empty. With `Adds` false, the receiver only decodes: an all-gather by
/// a lossless codec, in which a rank encodes again what it forwards.
template <transport Net, element T, class Codec, class Op, bool Adds = true>
class flex_coded_sum : public flex_dense<T> {
  using base = flex_dense<T>;

 public:
  flex_coded_sum(channel<Net> net, const flex_plan& plan, std::span<T> x, const Codec& codec, Op op,
                 residual_view<T> residual) noexcept
      : base(plan, x), net_(net), coder_(net, codec), op_(op), residual_(residual) {}
  ready<> begin_level(std::span<const flex_plan::part> parts) {
    rooms_.emplace(net_.memory(), parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) rooms_->emplace_back();
    ++level_;
    return base::begin_level(parts);
  }
  answer<Net, payload> outgoing(std::size_t part) {
    // A different `step` at each hop, so that a codec with random rounding draws different random numbers.
    const std::uint64_t step = level_ << 24 | static_cast<std::uint64_t>(net_.rank());
    const std::uint64_t first = base::range(part).begin;
    const std::span<const T> own = base::values(part);
    return after(net_, coder_.message(own, first, step, (*rooms_)[part]), [this, own, first](const payload& message) {
      coder_.keep_error(message, own, first, residual_, net_.work().memory());
      return message;
    });
  }
  ready<std::uint64_t> take(const flex_message& m, const message_buffer& in) const {
    const std::span<T> own = base::values(m.part);
    const payload received = coder_.template arrived<T>(in, own.size());
    if (!Adds || !base::adds(m.part)) {
      coder_.decode(received, own);
      return ready<std::uint64_t>(0);
    }
    buffer<T> partial(net_.work().memory(), own.size());
    coder_.reduce_left(received, own, op_, partial.span());
    return ready<std::uint64_t>(own.size());
  }
  void end_level() noexcept { rooms_.reset(); }

 private:
  channel<Net> net_;
  block_coder<Net, Codec> coder_;
  Op op_;
  residual_view<T> residual_;
  std::optional<fixed_vector<buffer<std::byte>>> rooms_; // for each chain of this rank, the encoded message
  std::uint64_t level_ = 0;
};

/// The `Work` of flex_execute for a compressed all-gather of dense values: forwards encoded cells down the tree
/// unchanged. A cell is a range of values that its owner encodes separately.
class flex_encoded_copy : public flex_work {
 public:
  flex_encoded_copy(const flex_plan& plan, const encoded_cells& cells, std::span<std::byte> all) noexcept
      : flex_work(plan), cells_(&cells), all_(all) {}
  [[nodiscard]] ready<payload> outgoing(std::size_t part) const {
    return ready<payload>(
        {wire_format::block_coded, range(part).size(), {std::span<const std::byte>(cells_->bytes(all_, range(part)))}});
  }
  void place(const flex_message& m, message_buffer& in) const { in.place(0, cells_->bytes(all_, range(m.part))); }

 private:
  const encoded_cells* cells_;
  std::span<std::byte> all_;
};

} // namespace detail

/// A reduce-scatter of the dense values `x`, in place, whose messages `codec` encodes. Afterwards the range that the
/// plan assigns to this rank holds the sum, and the rest of `x` is unspecified. Adds the rounding errors of this rank's
/// encodings to `residual`, unless `residual` is empty. Throws `invalid_argument` if the plan is for another number of
/// values or of ranks.
template <transport Net, element T, class Codec, reduction<T> Op>
task<void> flex_reduce_scatter(channel<Net> net, const flex_plan* plan, std::span<T> x, Op op, const Codec* codec,
                               residual_view<T> residual = {}) {
  plan->check_shape(x.size(), net.size());
  detail::flex_coded_sum<Net, T, Codec, Op> work(net, *plan, x, *codec, op, residual);
  co_await detail::flex_execute(net, plan, true, &work);
}

/// An all-gather of the dense values `x`, in place: each owner encodes its values once, and the encoded bytes travel
/// down the levels of the plan. All ranks, including the owner, use the decoded values, so all ranks get the same bits.
/// Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty. Throws
/// `invalid_argument` if the codec cannot encode the values, or if the plan is for another number of values or of
/// ranks.
template <transport Net, element T, class Codec>
task<void> flex_allgather(channel<Net> net, const flex_plan* plan, std::span<T> x, const Codec* codec,
                          residual_view<T> residual = {}) {
  plan->check_shape(x.size(), net.size());
  const auto bytes_of = [&](std::uint64_t values) { return codec->template encoded_bytes<T>(values); };
  const detail::encoded_cells cells(*plan, net.memory(), bytes_of);
  buffer<std::byte> all(net.work().memory(), cells.bytes());
  const block_coder coder(net, *codec);
  const index_range own = (*plan)[net.rank()];
  // Greater than all steps of the reduce-scatter, so that a codec with random rounding draws different random numbers.
  const std::uint64_t step = (plan->levels() + 1) << 24;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const index_range cell = cells[c];
    if (cell.begin < own.begin || cell.end > own.end || cell.size() == 0) continue;
    const std::span<const T> values = x.subspan(cell.begin, cell.size());
    const std::span<std::byte> bytes = cells.bytes(all.span(), cell);
    co_await coder.encode(values, cell.begin, bytes, step);
    coder.keep_error({wire_format::block_coded, values.size(), {bytes}}, values, cell.begin, residual,
                     net.work().memory());
  }
  detail::flex_encoded_copy work(*plan, cells, all.span());
  co_await detail::flex_execute(net, plan, false, &work);
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const index_range cell = cells[c];
    coder.decode(std::span<const std::byte>(cells.bytes(all.span(), cell)), x.subspan(cell.begin, cell.size()));
  }
}

/// The same by a lossless codec, whose encodings vary in size: a rank decodes the values, and encodes again what it
/// forwards.
template <transport Net, element T, class Codec>
  requires detail::varies_in_size<Codec, T>
task<void> flex_allgather(channel<Net> net, const flex_plan* plan, std::span<T> x, const Codec* codec,
                          residual_view<T> residual = {}) {
  plan->check_shape(x.size(), net.size());
  const sum nothing_to_add{};
  detail::flex_coded_sum<Net, T, Codec, sum, false> work(net, *plan, x, *codec, nothing_to_add, residual);
  co_await detail::flex_execute(net, plan, false, &work);
}

} // namespace spar::inline v0_1
