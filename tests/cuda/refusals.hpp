// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls on device memory with arguments of the host, or of another device, and calls on host memory with arguments on a
// device: each is refused before anything is sent.
#pragma once

#include "runtime_double.hpp"

#include <spar/core/error.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <utility>
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

/// The end of the error of a call on host memory whose arguments are in memory of device 0.
inline constexpr char on_device_0[] =
    " of the call are in memory of device 0; expected host memory, or a spar::device_span and a spar::on_device or "
    "spar::staged that was constructed from the communicator";

/// Makes calls on host memory of `net`, whose program uses CUDA, with the values or the indices in device memory:
/// allreduces, and calls of `reduce`, an error feedback, and of `solo`, a partial allreduce of 3000 floats. Then makes
/// calls that must work. Called by all ranks.
template <class Net, class Feedback, class Partial>
void refuses_device_memory(Net& net, Feedback& reduce, Partial& solo) {
  constexpr std::size_t n = 3000;
  const cuda_double::device_array<float> floats(std::vector<float>(n, 1));
  const cuda_double::device_array<std::uint32_t> numbers({5, 9});
  const std::span<float> there(floats.data(), n);
  std::vector<float> x(n, 1);
  const std::vector<float> two{1, 1};
  using view = spar::stream_view<float>;
  const auto dense = spar::dense_view(std::span<const float>(there));
  const auto indices = view::sparse(n, std::span<const std::uint32_t>(numbers.data(), 2), std::span(two));
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"the 3000 values of span 1", [&] { spar::allreduce(net, there, spar::ring{}); }},
      {"the 3000 values of span 1", [&] { spar::allreduce(net, there, x, spar::ring{}); }},
      {"the 3000 values of span 2", [&] { spar::allreduce(net, x, there, spar::ring{}); }},
      {"the 3000 values of span 1", [&] { spar::allreduce(net, spar::named{"a"}, there, spar::ring{}); }},
      {"the 3000 values of stream 1", [&] { (void)spar::allreduce(net, dense, spar::recursive_doubling{}); }},
      {"the 2 indices of stream 1", [&] { (void)spar::allreduce(net, indices, spar::recursive_doubling{}); }},
      {"the 3000 values of span 1", [&] { reduce(net, there); }},
      {"the 3000 values of span 1", [&] { solo(there); }}};
  const auto sent = net.statistics().messages_sent;
  for (const auto& [what, call] : calls) EXPECT_EQ(refusal_of(call), std::string(what) + on_device_0);
  EXPECT_FALSE(net.dead());
  EXPECT_EQ(net.statistics().messages_sent, sent);
  spar::allreduce(net, std::span(x), spar::ring{});
  EXPECT_EQ(x, std::vector<float>(n, static_cast<float>(net.size())));
  solo.drain(x);
}

} // namespace spar_test
