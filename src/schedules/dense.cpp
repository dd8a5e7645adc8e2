// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces of dense values between threads, of which the header says that the compiled library has them.
#include <spar/collective/allreduce/cheapest.hpp>

namespace spar::inline v0_1 {

template task<void> cheapest::plain(channel<threads_port>, std::span<float>, sum) const&;
template task<void> cheapest::plain(channel<threads_port>, std::span<double>, sum) const&;

} // namespace spar::inline v0_1
