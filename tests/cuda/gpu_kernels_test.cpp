// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// bench/gpu_kernels.cu with short vectors: its kernels run by fibres, in the streams of a double of the CUDA runtime.
// The times mean nothing.
#include "runtime_double.hpp"

#include "on_host.hpp"

#define main gpu_kernels
#include "../../bench/gpu_kernels.cu"
#undef main

#include <gtest/gtest.h>

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* whole) {
  *free = *whole = std::size_t{1} << 18; // enough for 2^12 values, but not for 2^13
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

namespace {

TEST(gpu_kernels, measures_each_kernel_of_the_page) {
  on_host::put = cuda_double::put;
  std::vector<std::string> words{"gpu_kernels", "28", "1"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  testing::internal::CaptureStdout();
  const int status = gpu_kernels(3, arguments.data());
  const std::string table = testing::internal::GetCapturedStdout();
  on_host::put = nullptr;
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cuda_double::device_allocations(), 0U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  EXPECT_NE(table.find("vectors of 2^12 floats, streams of 2^8 entries"), std::string::npos) << table;
  // A vector of n values is copied in 1 ms, so a kernel's ratio is that of its bytes to those of the copy.
  for (const char* const row : {"copy                                  1.0000        0       1.00 (1.00 .. 1.00)",
                                "fill                                  1.0000        0       0.50 (0.50 .. 0.50)",
                                "add                                   1.0000        0       1.50 (1.50 .. 1.50)",
                                "combine ",
                                "finalize ",
                                "find_any ",
                                "count_reached, 31 probes ",
                                "take_at_least, 1 % ",
                                "take_at_least, residual added ",
                                "largest, 1 % ",
                                "take_largest, 1 % ",
                                "exact top-k, 1 % ",
                                "take_from_buckets, 5 of 512 ",
                                "merge of two ",
                                "merge_many of eight ",
                                "partition by a cut ",
                                "copy_differing, 6 % ",
                                "scatter_assign ",
                                "write_entries, 3 % ",
                                "copy_entries                          1.0000        0       0.25 (0.25 .. 0.25)",
                                "assign_unlisted ",
                                "scatter ",
                                "gather ",
                                "scatter_difference ",
                                "check_indices ",
                                "find_bounds ",
                                "coalesce ",
                                "moments ",
                                "coded: encode ",
                                "coded: decode ",
                                "QSGD, 8 bits: encode ",
                                "QSGD, 8 bits: decode ",
                                "bfloat16: encode ",
                                "bfloat16: decode ",
                                "bfloat16: reduce ",
                                "half: encode ",
                                "half: decode ",
                                "half: reduce                          1.0000        0       1.25 (1.25 .. 1.25)",
                                "zfp, 8 bits: encode ",
                                "zfp, 8 bits: decode ",
                                "count to the host and back "})
    EXPECT_NE(table.find(std::string("\n") + row), std::string::npos) << row << " is not in\n" << table;
}

} // namespace
