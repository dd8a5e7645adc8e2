// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithms of streams that run over processes.
#pragma once

#include "support/compositions.hpp"
#include "support/extent.hpp"
#include "support/schedules.hpp"

#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <tuple>

namespace spar_test {

using stream_algorithms =
    joined<testing::Types, stream_schedules,
           std::tuple<
#if SPAR_ALL_CASES
               stored<spar::storage::coded<>, doubling_in_parts<2>>, stored<spar::storage::coded<7>, spar::ssar_split>,
#endif
               quantised_split<8>>>;

} // namespace spar_test
