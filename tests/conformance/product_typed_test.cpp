// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions of every selector, topology and schedule with exact and quantised storages, each of its own type (see
// conformance/product).
#include "product/product.hpp"

namespace spar_test {
namespace {

TEST(product_of_exact_storages, over_a_flat_network) { check_flat(exact_storages, all_selectors); }
TEST(product_of_exact_storages, over_a_tree) { check_tree(exact_storages, all_selectors); }
TEST(product_of_quantised_storages, over_a_flat_network) { check_flat(quantised_storages, all_selectors); }
TEST(product_of_quantised_storages, over_a_tree) { check_tree(quantised_storages, all_selectors); }

} // namespace
} // namespace spar_test
