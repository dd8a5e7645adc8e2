// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes a sparse stream of entries in any order that are in device memory, such as the gradient of an embedding.
// Compile with nvcc, which here includes CUB's sort.
#pragma once

#include <spar/cuda/kernel/coalesce.cuh>
#include <spar/on_device.cuh>
#include <spar/storage/coalesce.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// The entries in device memory, or the given indices on the host if one of them is out of range.
template <class T, class Index>
struct coalesced_on_device {
  sparse_stream<T, Index> entries;
  buffer<Index> wrong;
};

template <class T, class Index, class Op>
task<coalesced_on_device<T, Index>> coalesce_by(device_work& work, kernel::device_coo<T, Index> from, std::uint64_t n,
                                                Op op) {
  coalesced_on_device<T, Index> result;
  result.entries = sparse_stream<T, Index>::sparse(work.memory(), n, from.count);
  if (from.count == 0) co_return result;
  buffer<std::byte> memory(work.memory(), kernel::coalesce_bytes<T, Index>(from.count, n));
  buffer<kernel::coalesced_entries> found(work.memory(), 1);
  kernel::start_coalesce(from, n, result.entries.indices().data(), result.entries.values().data(), op, found.data(),
                         memory.data(), work.stream());
  const kernel::coalesced_entries of_device = co_await work.number(std::as_const(found).data());
  if (of_device.out_of_range != 0) {
    result.wrong = buffer<Index>(work.lists(), from.count);
    co_await work.download(result.wrong.span(), from.indices);
  } else {
    result.entries.shrink(of_device.count);
  }
  co_return result;
}

} // namespace detail

/// Returns the sparse stream of dimension n, in device memory, whose entries are `(indices[e], values[e])`, like
/// `coalesce` on the host, with the same bits, except those of NaN: the indices may have any order and may repeat, and
/// the values of an index are reduced by `op` in the order in which they are given, starting with the first.
/// `allreduce(on, sum.view(), stream)` takes the stream. One thread reduces the entries of an index, so an index with
/// very many entries takes long.
///
/// `indices` are integers of 32 or 64 bits, signed or not, and `values` are as many numbers of 4 or 8 bytes, in device
/// memory. They are read after all work that is now in `stream`; work that is put into `stream` afterwards sees the
/// result, whose memory belongs to `on`, which must outlive it. No other rank takes part. Waits for the device once.
/// Throws `invalid_argument` if the lengths differ, if an index is negative or at least n, if an unsigned integer of
/// the width of the indices cannot represent n - 1, if the arrays or the stream are not those of the device of `on`, if
/// this device is not the current one, or if the communicator has a progress thread. If CUDA fails, aborts the
/// communicator and throws `cuda_error`. Throws the \ref call_errors, because the rank makes progress on its calls
/// while it waits.
template <communicates Net, class Int, element T, reduction<T> Op = sum>
[[nodiscard]] auto coalesce(on_device<Net>& on, std::uint64_t n, std::span<const Int> indices,
                            std::span<const T> values, cudaStream_t stream, Op op = {}) {
  static_assert(std::is_integral_v<Int>, "the indices must be integers of 32 or 64 bits");
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "there are kernels for values of 4 or 8 bytes only");
  using Index = std::make_unsigned_t<Int>;
  if constexpr (detail::expect_index<Index>()) {
    if (indices.size() != values.size())
      raise<invalid_argument>({"there are ", indices.size(), " indices, but ", values.size(), " values"});
    detail::check_dimension<Index>(n);
    const auto order = on.begin_entries(indices, values, stream);
    const kernel::device_coo<T, Index> from{reinterpret_cast<const Index*>(indices.data()), values.data(),
                                            values.size()};
    detail::coalesced_on_device<T, Index> result;
    order.run([&] {
      result = detail::or_abort(on.transport(), [&] {
        return run_until_done(on.transport(), detail::coalesce_by(on.transport().work(), from, n, op));
      });
    });
    const std::span<const Index> wrong = std::as_const(result.wrong).span();
    if (!wrong.empty())
      detail::check_unsorted_indices<Int>({reinterpret_cast<const Int*>(wrong.data()), wrong.size()}, n);
    return sparse_stream<T, Index, cuda>(std::move(result.entries));
  }
}
/// The same, by `on` in the order of `stream`, for spans `indices` and `values` that could be written, such as
/// `std::span(pointer, count)`.
template <communicates Net, class Int, class T, class Op = sum>
  requires(!std::is_const_v<Int> || !std::is_const_v<T>)
[[nodiscard]] auto coalesce(on_device<Net>& on, std::uint64_t n, std::span<Int> indices, std::span<T> values,
                            cudaStream_t stream, Op op = {}) {
  return coalesce(on, n, std::span<const Int>(indices), std::span<const T>(values), stream, op);
}

} // namespace spar::inline v0_1
