// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions of every selector, topology and schedule with storages that sum codes (see conformance/product).
#include "product/product.hpp"

namespace spar_test {
namespace {

TEST(product_of_code_storages, over_a_flat_network) { check_flat(code_storages, all_selectors); }
TEST(product_of_code_storages, over_a_tree) { check_tree(code_storages, all_selectors); }

} // namespace
} // namespace spar_test
