// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces of streams between threads, of which the header says that the compiled library has them.
#include <spar/collective/allreduce/cheapest.hpp>

namespace spar::inline v0_1 {

template task<sparse_stream<float, std::uint32_t>> cheapest::operator()(channel<threads_port>,
                                                                        stream_view<float, std::uint32_t>, sum,
                                                                        storage::coo, residual_view<float>) const&;
template task<sparse_stream<double, std::uint32_t>> cheapest::operator()(channel<threads_port>,
                                                                         stream_view<double, std::uint32_t>, sum,
                                                                         storage::coo, residual_view<double>) const&;

} // namespace spar::inline v0_1
