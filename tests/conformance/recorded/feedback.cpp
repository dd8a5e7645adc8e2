// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorded allreduces with error feedback, and optimizers: one line a system.
#include "conformance/recorded/systems.hpp"

#include <spar/collective/compressed_ring.hpp>
#include <spar/optimizer/all_values.hpp>
#include <spar/selector/bucket_topk.hpp>
#include <spar/storage/codec.hpp>
#include <spar/system/compressed_flexreduce.hpp>
#include <spar/system/eager_sgd.hpp>
#include <spar/system/gaussiank.hpp>
#include <spar/system/gtopk.hpp>
#include <spar/system/ok_topk.hpp>
#include <spar/system/topka.hpp>
#include <spar/system/topkdsa.hpp>
#include <spar/system/tree_sparcml.hpp>

namespace spar_test::recorded {
namespace {

/// eager-SGD in rounds of everyone, whose ranks average their weights after every second step. Its result is the
/// weights.
system eager_sgd_of_everyone(std::string name) {
  return system_of(std::move(name), takes::values, 5, [](spar::threads& net, const topologies&, std::uint64_t n) {
    using optimizer = spar::eager_sgd<float, spar::threads, spar::everyone>;
    const auto descend =
        std::make_shared<optimizer>(net, n, spar::everyone{}, spar::dense{}, spar::eager_sgd_options{.period = 2});
    return call([descend, weights = std::vector<float>(n, 1.0F)](const contribution& mine) mutable {
      auto gradient = converted<float>(mine.values);
      descend->step(weights, gradient, 0.125F);
      return outcome{.result = hash_of(std::span<const float>(weights))};
    });
  });
}

} // namespace

std::vector<system> systems_with_feedback() {
  using namespace spar;
  namespace select = spar::selector;
  namespace store = spar::storage;
  using on = const topologies&;
  using tree_ok_topk = basic_ok_topk_allreduce<on_tree>;
  using topka_algorithm = selected<select::exact_topk, gather_and_merge>;
  using topkdsa_algorithm = selected<select::exact_topk, split_allgather<store::adaptive>>;
  using gaussiank_algorithm = selected<select::gaussian, gather_and_merge>;
  return {
      // Thresholds and boundaries are found in the first call only, or in some of the later ones as well.
      with_feedback<float>("ok_topk", ok_topk_allreduce{.density = 0.01}),
      with_feedback<float>("ok_topk_renewed",
                           ok_topk_allreduce{.density = 0.01, .epsilon = 0.05, .tau = 3, .tau_prime = 2}),
      with_feedback<float>("ok_topk_exact", ok_topk_allreduce{.density = 0.01, .epsilon = 0}),
      with_feedback<float>("ok_topk_average", ok_topk_allreduce{.density = 0.01}, average{}),
      with_feedback<double>("ok_topk_double", ok_topk_allreduce{.density = 0.01}),
      with_feedback<float, std::uint64_t>("ok_topk_64_bit_indices", ok_topk_allreduce{.density = 0.01}),
      with_feedback<float>("ok_topk_tree",
                           [](on its) {
                             return tree_ok_topk{
                                 .density = 0.01, .tau = 3, .tau_prime = 2, .topology = on_tree(its.cells)};
                           }),
      with_feedback<float>("topka", topka_algorithm{{.density = 0.01}, {}}),
      with_feedback<float>("gaussiank", gaussiank_algorithm{{.density = 0.01}, {}}),
      with_feedback<float>("topkdsa", topkdsa_algorithm{{.density = 0.01}, {}}),
      with_feedback<float>("gtopk", gtopk_allreduce<>{{.density = 0.01}}),
      with_feedback<float>("exact_topk_split_qsgd4",
                           selected<select::exact_topk, split_allgather<store::qsgd<4>>>{{.density = 0.01}, {}}),
      with_feedback<float>("bucket_topk_sparcml", selected<select::bucket_topk, sparcml>{{.k = 5}, {}}),
      with_feedback<float>("exact_topk_tree_sparcml",
                           [](on its) {
                             return selected<select::exact_topk, tree_sparcml>{{.density = 0.01},
                                                                               tree_sparcml{its.cells}};
                           }),
      with_feedback<float>("all_values_compressed_ring_qsgd8", all_values<compressed_ring<store::qsgd<8>>>{}),
      with_feedback<float>("all_values_compressed_flexreduce_qsgd8",
                           [](on its) { return all_values<compressed_flexreduce<store::qsgd<8>>>{{its.flex, {}}}; }),
      partial_of_everyone<float>("everyone_topka",
                                 [](on) { return error_feedback<float, topka_algorithm>{{{.density = 0.01}, {}}}; }),
      eager_sgd_of_everyone("eager_sgd_everyone"),
  };
}

} // namespace spar_test::recorded
