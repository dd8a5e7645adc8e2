// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls on device memory with arguments of the host, or of another device: each is refused before anything is sent.
#pragma once

#include "runtime_double.hpp"

#include <spar/core/error.hpp>
#include <spar/cuda/device_span.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace spar_test {

/// The message of the exception that `call()` throws, which must be an `invalid_argument`; empty if it throws none.
template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const spar::invalid_argument& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an invalid_argument: " << error.what();
    return error.what();
  }
  return {};
}

/// Makes calls `call(x)` of an object of device 0 that is named `owner`, first with what the object must refuse, and
/// then one that must work: it sums one float of each rank. Called by all ranks.
template <class Call>
void refuses_other_devices(spar::rank_t ranks, const std::string& owner, Call call) {
  std::vector<float> on_host(10);
  const cuda_double::device_array<float> x(std::vector<float>(10, 1));
  const cuda_double::stream own;
  cuda_double::set_device(3);
  {
    const cuda_double::stream other;
    cuda_double::set_device(0);
    EXPECT_EQ(refusal_of([&] { call(spar::device_span(on_host.data(), 10, own)); }),
              "the 10 values of a spar::device_span are in host memory; expected device memory");
    EXPECT_EQ(refusal_of([&] { call(spar::device_span(x.data(), 10, other)); }),
              "the CUDA stream is of device 3, but the current device is 0");
    cuda_double::set_device_of_memory(3);
    EXPECT_EQ(refusal_of([&] { call(spar::device_span(x.data(), 10, own)); }),
              "the 10 values of a spar::device_span are in memory of device 3, but the current device is 0");
    cuda_double::set_device_of_memory(-1);
    cuda_double::set_device(3);
    EXPECT_EQ(refusal_of([&] { call(spar::device_span(x.data(), 10, other)); }),
              "the current device is 3, but this " + owner +
                  " was made for device 0; expected cudaSetDevice(0) before "
                  "the call");
    cuda_double::set_device(0);
  }
  call(spar::device_span(x.data(), 10, own));
  EXPECT_EQ(x.read(own), std::vector<float>(10, static_cast<float>(ranks)));
}

} // namespace spar_test
