// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// tests/cuda/systems.cu, the program that compares all systems on GPUs with the host: over doubles of NCCL and of the
// CUDA runtime, with kernels run by fibres. On vectors of 1003 values, thresholds of Ok-Topk would not serve for all
// steps.
#include "over_nccl.hpp"

#define SPAR_OVER_NCCL
#define main systems
#include "systems.cu"
#undef main

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

class gpu_systems : public over_nccl::on_device_nccl {};

TEST_F(gpu_systems, have_the_bits_of_the_host) {
  for (const char* const number : {"2", "3", "8"}) {
    cuda_double::reset(1);
    nccl_double::reset(1);
    std::vector<std::string> words{"systems", number, "10007"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    testing::internal::CaptureStdout();
    const int status = systems(3, arguments.data());
    const std::string table = testing::internal::GetCapturedStdout();
    EXPECT_EQ(status, 0) << table;
    EXPECT_NE(table.find(number + std::string(" ranks, 0 systems with different bits")), std::string::npos) << table;
    EXPECT_EQ(nccl_double::communicators(), 0U);
    EXPECT_EQ(cuda_double::device_allocations(), 0U);
  }
}

} // namespace
