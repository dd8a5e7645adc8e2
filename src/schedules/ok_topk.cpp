// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of Ok-Topk between threads, of which the header says that the compiled library has them.
#include <spar/collective/topk/balanced_owners.hpp>

namespace spar::inline v0_1 {

template task<selected_sum<float, std::uint32_t>>
    balanced_owners::reduce(channel<threads_port>,
                            selected_call<flat, storage::coo, float, owners_state, owners_report>,
                            sparse_stream<float, std::uint32_t>, sum) const&;
template task<selected_sum<double, std::uint32_t>>
    balanced_owners::reduce(channel<threads_port>,
                            selected_call<flat, storage::coo, double, owners_state, owners_report>,
                            sparse_stream<double, std::uint32_t>, sum) const&;

} // namespace spar::inline v0_1
