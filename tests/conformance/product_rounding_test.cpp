// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions of every topology and schedule with a stream codec that rounds: the rounding errors of entries are in
// the residuals (see conformance/product).
#include "product/product.hpp"
#include "support/varint.hpp"

namespace spar_test {
namespace {

constexpr auto rounding_storages = std::tuple{
    named_model("rounded", rounded{}),
    named_model("then<rounded, as_half>", then<rounded, spar::storage::as_half>{}),
};
constexpr auto some_selectors = std::tuple{
    named_model("everything", spar::everything{}),
    named_model("exact_topk", spar::selector::exact_topk{.density = 0.05}),
    named_model("threshold_reuse", spar::selector::threshold_reuse{.density = 0.05}),
};

TEST(product_of_stream_codecs_that_round, over_a_flat_network) {
  check_flat(rounding_storages, chosen(some_selectors));
}
TEST(product_of_stream_codecs_that_round, over_a_tree) { check_tree(rounding_storages, chosen(some_selectors)); }

} // namespace
} // namespace spar_test
