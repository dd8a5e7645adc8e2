// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback and optimizers over threads.
#include "training.hpp"

namespace every_member {

template std::size_t train_by_each(spar::threads&, std::vector<float>&, std::vector<float>&, const spar::tree_plans&);
template std::uint64_t train_eagerly(spar::threads&, std::vector<float>&, std::vector<float>&);

} // namespace every_member
