// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Instantiates every kernel for the device; ptxas_test.py reads what ptxas says about them. The program prints the
// bytes of shared memory that a block gets at its launch, of which ptxas says nothing.
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/buckets.cuh>
#include <spar/cuda/kernel/coalesce.cuh>
#include <spar/cuda/kernel/coded.cuh>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/cuda/kernel/moments.cuh>
#include <spar/cuda/kernel/padded.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/qsgd.cuh>
#include <spar/cuda/kernel/search.cuh>
#include <spar/cuda/kernel/short_floats.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/kernel/zfp.cuh>
#include <spar/cuda/values/codecs.cuh>
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp> // with the headers above, everything: names must not collide

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace spar::inline v0_1::kernel {

#define SPAR_INSTANTIATE(T, Index)                                                                                     \
  template void start_take_at_least<T, Index>(const T*, const T*, T*, std::uint64_t, magnitude<T>, std::uint64_t,      \
                                              Index*, T*, std::uint64_t, std::uint64_t*, std::uint64_t*,               \
                                              cudaStream_t);                                                           \
  template void start_merge_many<T, Index, sum>(const device_coo<T, Index>*, std::uint64_t, std::uint64_t,             \
                                                std::uint64_t, Index*, T*, sum, std::uint64_t*, std::uint64_t*,        \
                                                std::uint64_t*, cudaStream_t);                                         \
  template void start_merge_many_in<T, Index, sum>(const std::uint64_t*, std::uint64_t, const device_coo<T, Index>*,   \
                                                   std::uint64_t, Index*, T*, sum, std::uint64_t*, std::uint64_t*,     \
                                                   std::uint64_t*, cudaStream_t);                                      \
  template void start_take_at_least<T, Index>(T*, std::uint64_t, const magnitude<T>*, Index*, T*, std::uint64_t,       \
                                              std::uint64_t*, std::uint64_t*, cudaStream_t);                           \
  template void start_merge<T, Index, sum>(device_coo<T, Index>, device_coo<T, Index>, Index*, T*, sum,                \
                                           std::uint64_t*, std::uint64_t*, cudaStream_t);                              \
  template __global__ void detail::fold_repeated<T, Index, sum>(device_coo<T, Index>, sum, Index*, T*, std::uint64_t*, \
                                                                std::uint64_t*);

SPAR_INSTANTIATE(float, std::uint32_t)
SPAR_INSTANTIATE(float, std::uint64_t)
SPAR_INSTANTIATE(double, std::uint32_t)
SPAR_INSTANTIATE(double, std::uint64_t)
SPAR_INSTANTIATE(std::int32_t, std::uint32_t)
SPAR_INSTANTIATE(std::int64_t, std::uint64_t)

#define SPAR_INSTANTIATE_CODED(Dropped, T, Index)                                                                      \
  template void start_encode_coded<Dropped, T, Index>(coo_span<T, Index>, std::uint64_t, std::byte*, std::uint64_t*,   \
                                                      std::uint64_t*, cudaStream_t);                                   \
  template void start_decode_coded<Dropped, T, Index>(std::span<const std::byte>, index_range, std::span<Index>, T*,   \
                                                      std::uint64_t*, std::uint64_t*, cudaStream_t);

SPAR_INSTANTIATE_CODED(0, float, std::uint32_t)
SPAR_INSTANTIATE_CODED(16, float, std::uint64_t)
SPAR_INSTANTIATE_CODED(0, double, std::uint32_t)
SPAR_INSTANTIATE_CODED(0, std::int32_t, std::uint32_t)
SPAR_INSTANTIATE_CODED(0, std::int64_t, std::uint64_t)

#define SPAR_INSTANTIATE_LARGEST(T)                                                                                    \
  template void start_largest<T>(const T*, std::uint64_t, std::uint64_t, cut<T>*, void*, cudaStream_t);                \
  template void start_take_largest<T, std::uint32_t>(T*, std::uint64_t, const cut<T>*, std::uint64_t, std::uint32_t*,  \
                                                     T*, std::uint64_t*, std::uint64_t*, cudaStream_t);                \
  template void start_topk<T, std::uint32_t>(T*, std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t*, T*,      \
                                             cut<T>*, void*, cudaStream_t);

SPAR_INSTANTIATE_LARGEST(float)
SPAR_INSTANTIATE_LARGEST(double)
SPAR_INSTANTIATE_LARGEST(std::int32_t)

template void start_add<float>(const float*, const float*, std::uint64_t, float*, cudaStream_t);
template void start_add<double>(const double*, const double*, std::uint64_t, double*, cudaStream_t);
template void start_combine<float, sum>(const float*, const float*, std::uint64_t, float*, sum, cudaStream_t);
template void start_combine<double, maximum>(const double*, const double*, std::uint64_t, double*, maximum,
                                             cudaStream_t);
template void start_finalize<float, average>(float*, std::uint64_t, std::int64_t, average, cudaStream_t);
template void start_find_any<float, spar::detail::device_codec<storage::as_half>::refuses>(
    const float*, std::uint64_t, std::uint32_t*, spar::detail::device_codec<storage::as_half>::refuses, cudaStream_t);
template void start_fill<float>(float*, std::uint64_t, float, cudaStream_t);
template void start_fill<double>(double*, std::uint64_t, double, cudaStream_t);

#define SPAR_INSTANTIATE_ENTRIES(T, Index)                                                                             \
  template void start_copy_entries<T, Index>(const entry_pieces<T, Index>&, Index*, T*, cudaStream_t);                 \
  template void start_scatter_assign<T, Index>(const Index*, const T*, std::uint64_t, std::uint64_t, T*,               \
                                               cudaStream_t);                                                          \
  template void start_write_entries<T, Index, std::uint64_t>(const Index*, const T*, std::uint64_t, std::uint64_t, T*, \
                                                             std::uint64_t, T, cudaStream_t);                          \
  template void start_write_entries<T, Index, const std::uint64_t*>(                                                   \
      const Index*, const T*, const std::uint64_t*, std::uint64_t, T*, std::uint64_t, T, cudaStream_t);                \
  template void start_list_messages<T, Index>(std::byte*, std::uint64_t, padded_message<T, Index>,                     \
                                              device_coo<T, Index>*, std::uint64_t, std::uint64_t*, std::uint64_t*,    \
                                              cudaStream_t);                                                           \
  template void start_slice<T, Index>(const Index*, const T*, const std::uint64_t*, std::uint64_t,                     \
                                      const std::uint64_t*, std::uint64_t, outgoing_messages<T, Index>, T*,            \
                                      std::uint64_t*, slice_counts*, cudaStream_t);                                    \
  template void start_write_message<T, Index>(const Index*, const T*, const std::uint64_t*, padded_message<T, Index>,  \
                                              std::byte*, std::uint64_t*, cudaStream_t);                               \
  template void start_join_messages<T, Index>(const device_coo<T, Index>*, std::uint64_t, std::uint64_t,               \
                                              const std::uint64_t*, Index*, T*, std::uint64_t*, std::uint64_t*,        \
                                              std::uint64_t*, cudaStream_t);                                           \
  template void start_assign_unlisted<T, Index>(const Index*, const T*, const std::uint64_t*, std::uint64_t,           \
                                                const Index*, const std::uint64_t*, T*, cudaStream_t);                 \
  template void start_partition<T, Index, by_cut_at<T>>(const device_coo<T, Index>*, std::uint64_t, by_cut_at<T>,      \
                                                        Index*, T*, std::uint64_t*, std::uint64_t*, cudaStream_t);     \
  template void start_assign_unlisted<T, Index>(const Index*, const T*, std::uint64_t, const Index*, std::uint64_t,    \
                                                T*, cudaStream_t);                                                     \
  template void start_scatter<T, Index, sum>(const Index*, const T*, std::uint64_t, std::uint64_t, T*, sum,            \
                                             cudaStream_t);                                                            \
  template void start_partition<T, Index, by_cut<T>>(device_coo<T, Index>, std::uint64_t, by_cut<T>, Index*, T*,       \
                                                     Index*, T*, std::uint64_t*, std::uint64_t*, cudaStream_t);        \
  template void start_partition<T, Index, by_cut_at<T>>(device_coo<T, Index>, std::uint64_t, by_cut_at<T>, Index*, T*, \
                                                        Index*, T*, std::uint64_t*, std::uint64_t*, cudaStream_t);     \
  template void start_copy_differing<T, Index>(device_coo<T, Index>, std::uint64_t, T, Index*, T*, std::uint64_t*,     \
                                               std::uint64_t*, cudaStream_t);

SPAR_INSTANTIATE_ENTRIES(float, std::uint32_t)
SPAR_INSTANTIATE_ENTRIES(float, std::uint64_t)
SPAR_INSTANTIATE_ENTRIES(double, std::uint32_t)
SPAR_INSTANTIATE_ENTRIES(double, std::uint64_t)
SPAR_INSTANTIATE_ENTRIES(std::int32_t, std::uint32_t)
SPAR_INSTANTIATE_ENTRIES(std::int64_t, std::uint64_t)

#define SPAR_INSTANTIATE_SEARCH(Index)                                                                                 \
  template void start_find_bounds<Index>(const Index*, std::uint64_t, const std::uint64_t*, std::uint64_t,             \
                                         std::uint64_t*, cudaStream_t);                                                \
  template void start_check_indices<Index>(const Index*, std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t*,  \
                                           cudaStream_t);

SPAR_INSTANTIATE_SEARCH(std::uint32_t)
SPAR_INSTANTIATE_SEARCH(std::uint64_t)

template const moments* start_moments<float>(const float*, std::uint64_t, moments*, cudaStream_t);
template const moments* start_moments<double>(const double*, std::uint64_t, moments*, cudaStream_t);
template const moments* start_moments<std::int64_t>(const std::int64_t*, std::uint64_t, moments*, cudaStream_t);

#define SPAR_INSTANTIATE_BUCKETS(T)                                                                                    \
  template void start_take_from_buckets<T, std::uint32_t>(T*, std::uint64_t, std::uint64_t, std::uint64_t,             \
                                                          std::uint32_t*, T*, std::uint64_t*, std::uint64_t*,          \
                                                          cudaStream_t);

SPAR_INSTANTIATE_BUCKETS(float)
SPAR_INSTANTIATE_BUCKETS(double)
SPAR_INSTANTIATE_BUCKETS(std::int32_t)

#define SPAR_INSTANTIATE_PROBES(T)                                                                                     \
  template void start_count_reached<T>(const T*, std::uint64_t, magnitude_probes<T>, std::uint64_t*, std::uint64_t*,   \
                                       cudaStream_t);

SPAR_INSTANTIATE_PROBES(float)
SPAR_INSTANTIATE_PROBES(double)
SPAR_INSTANTIATE_PROBES(std::int32_t)
SPAR_INSTANTIATE_PROBES(std::int64_t)

template void start_gather<float, std::uint32_t>(const float*, const std::uint32_t*, std::uint64_t, float*,
                                                 cudaStream_t);
template void start_scatter_difference<std::uint32_t>(const std::uint32_t*, const float*, const float*, std::uint64_t,
                                                      float*, cudaStream_t);
template void start_scatter_difference<std::uint64_t>(const std::uint64_t*, const float*, const float*, std::uint64_t,
                                                      float*, cudaStream_t);
template void start_scatter_difference<std::uint32_t>(const std::uint32_t*, const double*, const double*, std::uint64_t,
                                                      double*, cudaStream_t);

#define SPAR_INSTANTIATE_QSGD(Bits, T)                                                                                 \
  template void start_qsgd_encode<Bits, T>(const T*, std::uint64_t, std::uint64_t, std::byte*, std::uint64_t,          \
                                           std::uint64_t, std::uint64_t, cudaStream_t);                                \
  template void start_qsgd_encode<Bits, T>(const T*, std::uint64_t, std::uint64_t, std::byte*, const qsgd_draws&,      \
                                           std::uint64_t, cudaStream_t);                                               \
  template void start_qsgd_decode<Bits, T>(const std::byte*, std::uint64_t, std::uint64_t, T*, cudaStream_t);

SPAR_INSTANTIATE_QSGD(2, float)
SPAR_INSTANTIATE_QSGD(4, float)
SPAR_INSTANTIATE_QSGD(8, float)
SPAR_INSTANTIATE_QSGD(8, double)

#define SPAR_INSTANTIATE_SHORT(Code, T)                                                                                \
  template void start_encode_short<Code, T>(const T*, std::uint64_t, std::uint16_t*, cudaStream_t, std::uint32_t*);    \
  template void start_decode_short<Code, T>(const std::uint16_t*, std::uint64_t, T*, cudaStream_t);                    \
  template void start_reduce_short<Code, T>(const std::uint16_t*, std::uint64_t, T*, sum, cudaStream_t);

SPAR_INSTANTIATE_SHORT(bfloat16_code, float)
SPAR_INSTANTIATE_SHORT(half_code, float)
SPAR_INSTANTIATE_SHORT(half_code, double)

#define SPAR_INSTANTIATE_ZFP(T)                                                                                        \
  template void start_zfp_encode<T>(const T*, std::uint64_t, unsigned, std::uint32_t*, cudaStream_t);                  \
  template void start_zfp_decode<T>(const std::uint32_t*, std::uint64_t, unsigned, T*, cudaStream_t);

SPAR_INSTANTIATE_ZFP(float)
SPAR_INSTANTIATE_ZFP(double)

} // namespace spar::inline v0_1::kernel

namespace {

namespace kernels = spar::kernel::detail;

/// The beginning of the names of kernels, and their bytes.
void print(const char* kernel, std::size_t bytes) { std::printf("%s %zu\n", kernel, bytes); }

} // namespace

int main() {
  print("take<float", sizeof(kernels::take_memory<float>));
  print("take<double", sizeof(kernels::take_memory<double>));
  print("take<int", sizeof(kernels::take_memory<std::int32_t>));
  print("take<int64", sizeof(kernels::take_memory<std::int64_t>));
  print("copy_candidates<float", sizeof(kernels::candidates_memory<float>));
  print("copy_candidates<double", sizeof(kernels::candidates_memory<double>));
  print("copy_candidates<int", sizeof(kernels::candidates_memory<std::int32_t>));
  print("copy_differing<float", sizeof(kernels::differing_memory<float>));
  print("copy_differing<double", sizeof(kernels::differing_memory<double>));
  print("copy_differing<int", sizeof(kernels::differing_memory<std::int32_t>));
  print("copy_differing<int64", sizeof(kernels::differing_memory<std::int64_t>));
  print("divide_candidates<", sizeof(kernels::partition_tile::memory));
  print("fold_repeated<", sizeof(kernels::fold_memory));
  print("add_moments<", sizeof(kernels::moments_grid::memory));
  print("take_from_buckets<", sizeof(kernels::buckets_tile::memory));
  print("find_digit<", sizeof(kernels::digit_grid::memory));
  print("partition<", sizeof(kernels::partition_tile::memory));
  print("write_entries<", sizeof(kernels::written_tile<float>));
  print("assign_unlisted<float,uint32", sizeof(kernels::unlisted_tile<std::uint32_t>));
  print("assign_unlisted<float,uint64", sizeof(kernels::unlisted_tile<std::uint64_t>));
  print("assign_unlisted<double,uint32", sizeof(kernels::unlisted_tile<std::uint32_t>));
  print("assign_unlisted<double,uint64", sizeof(kernels::unlisted_tile<std::uint64_t>));
  print("assign_unlisted<int,uint32", sizeof(kernels::unlisted_tile<std::uint32_t>));
  print("assign_unlisted<int64,uint64", sizeof(kernels::unlisted_tile<std::uint64_t>));
  using coded = kernels::coded_tile;
  print("encode_coded<coded_gaps<uint32>", sizeof(coded::memory<std::uint32_t>));
  print("encode_coded<coded_gaps<uint64>", sizeof(coded::memory<std::uint64_t>));
  print("decode_coded<decoded_gaps<uint32>", sizeof(coded::memory<std::uint32_t>));
  print("decode_coded<decoded_gaps<uint64>", sizeof(coded::memory<std::uint64_t>));
  print("encode_coded<coded_distances<float", sizeof(coded::memory<std::uint32_t>));
  print("encode_coded<coded_distances<double", sizeof(coded::memory<std::uint64_t>));
  print("encode_coded<coded_distances<int", sizeof(coded::memory<std::uint32_t>));
  print("encode_coded<coded_distances<int64", sizeof(coded::memory<std::uint64_t>));
  print("decode_coded<decoded_distances<float", sizeof(coded::memory<std::uint32_t>));
  print("decode_coded<decoded_distances<double", sizeof(coded::memory<std::uint64_t>));
  print("decode_coded<decoded_distances<int", sizeof(coded::memory<std::uint32_t>));
  print("decode_coded<decoded_distances<int64", sizeof(coded::memory<std::uint64_t>));
  print("zfp_encode<", sizeof(kernels::zfp_group::encode_memory));
  print("zfp_decode<", sizeof(kernels::zfp_group::decode_memory));
  print("merge<float,uint32", sizeof(kernels::merge_tile<float, std::uint32_t>::memory));
  print("merge<float,uint64", sizeof(kernels::merge_tile<float, std::uint64_t>::memory));
  print("merge<double,uint32", sizeof(kernels::merge_tile<double, std::uint32_t>::memory));
  print("merge<double,uint64", sizeof(kernels::merge_tile<double, std::uint64_t>::memory));
  print("merge<int,uint32", sizeof(kernels::merge_tile<std::int32_t, std::uint32_t>::memory));
  print("merge<int64,uint64", sizeof(kernels::merge_tile<std::int64_t, std::uint64_t>::memory));
  print("merge_many<float", sizeof(kernels::merge_window_of<float>::memory));
  print("merge_many<double", sizeof(kernels::merge_window_of<double>::memory));
  print("merge_many<int", sizeof(kernels::merge_window_of<std::int32_t>::memory));
  print("merge_many<int64", sizeof(kernels::merge_window_of<std::int64_t>::memory));
  print("count_reached<float", sizeof(kernels::probe_grid::memory<float>));
  print("count_reached<double", sizeof(kernels::probe_grid::memory<double>));
  print("count_reached<int", sizeof(kernels::probe_grid::memory<std::int32_t>));
  print("count_reached<int64", sizeof(kernels::probe_grid::memory<std::int64_t>));
  return 0;
}
