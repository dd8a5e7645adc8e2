// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions of every selector, topology and schedule with exact storages (see conformance/product).
#include "product/product.hpp"

namespace spar_test {
namespace {

TEST(product_of_exact_storages, over_a_flat_network) { check_flat(exact_storages); }
TEST(product_of_exact_storages, over_a_tree) { check_tree(exact_storages); }

} // namespace
} // namespace spar_test
