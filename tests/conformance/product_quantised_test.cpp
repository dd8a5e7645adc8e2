// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions of every selector, topology and schedule with quantised storages (see conformance/product).
// product_typed compiles the same compositions with each selector's own type.
#include "product/product.hpp"

namespace spar_test {
namespace {

TEST(product_of_quantised_storages, over_a_flat_network) { check_flat(quantised_storages, chosen(all_selectors)); }
TEST(product_of_quantised_storages, over_a_tree) { check_tree(quantised_storages, chosen(all_selectors)); }

} // namespace
} // namespace spar_test
