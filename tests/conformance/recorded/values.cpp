// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorded allreduces of dense values, one per line.
#include "conformance/recorded/systems.hpp"

#include <spar/selector/exact_topk.hpp>
#include <spar/selector/nonzeros.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>
#include <spar/storage/zfp.hpp>

namespace spar_test::recorded {

std::vector<system> systems_of_values() {
  using namespace spar;
  namespace store = spar::storage;
  using on = const topologies&;
  return {
      of_values<float>("dense", cheapest{}),
      on_slow_network(of_values<float>("dense", cheapest{})),
      of_values<float>("dense_average", cheapest{}, average{}),
      of_values<float>("ring", ring{}),
      of_values<double>("ring_double", ring{}),
      of_values<float>("rabenseifner", rabenseifner{}),
      of_values<float>("recursive_doubling", recursive_doubling{}),
      of_values<double>("recursive_doubling_double", recursive_doubling{}),
      of_values<float>("flexreduce", [](on its) { return flexreduce(its.flex); }),
      of_values<float>("ring_plan", [](on its) { return flexreduce(its.around); }),
      of_values<float>("blueconnect_plan", [](on its) { return flexreduce(its.by_levels); }),
      of_values<float>("tree_dense", [](on its) { return tree_dense(its.plans); }),
      of_values<float>("compressed_ring_qsgd8", compose(store::qsgd<8>{}, ring{})),
      of_values<float>("compressed_ring_bfloat16", compose(store::as_bfloat16{}, ring{})),
      of_values<float>("compressed_ring_half", compose(store::as_half{}, ring{})),
      of_values<float>("compressed_doubling_qsgd8", compose(store::qsgd<8>{}, recursive_doubling{})),
      of_values<float>("compressed_doubling_bfloat16", compose(store::as_bfloat16{}, recursive_doubling{})),
      of_values<float>("compressed_doubling_half", compose(store::as_half{}, recursive_doubling{})),
      of_values<float>("two_shot_qsgd8", compose(store::qsgd<8>{}, two_shot{})),
      of_values<float>("two_shot_half", compose(store::as_half{}, two_shot{.piece = 100})),
      of_values<double>("two_shot_bfloat16_double", compose(store::as_bfloat16{}, two_shot{})),
      of_values<float>("one_shot_qsgd8", compose(store::qsgd<8>{}, one_shot{})),
      of_values<float>("one_shot_half", compose(store::as_half{}, one_shot{.piece = 100})),
      of_values<float>("compressed_qsgd8", compose(store::qsgd<8>{}, cheapest{})),
      on_slow_network(of_values<float>("compressed_qsgd8", compose(store::qsgd<8>{}, cheapest{}))),
      of_values<float>("compressed_bfloat16", compose(store::as_bfloat16{}, cheapest{})),
      on_slow_network(of_values<float>("compressed_bfloat16", compose(store::as_bfloat16{}, cheapest{}))),
      of_values<float>("compressed_flexreduce_qsgd8", [](on its) { return flexreduce(its.flex, store::qsgd<8>{}); }),
      of_values<float>("zfp_compressed_ring", compose(store::zfp{}, ring{})),
      of_values<float>("zfp_compressed_doubling", compose(store::zfp{}, recursive_doubling{})),
      of_values<float>("collective_all_ssar_split", compose(selector::nonzeros{}, ssar_split{})),
      of_values<float>("collective_exact_topk_sparcml", compose(selector::exact_topk{.density = 0.01})),
      partial_of_everyone<float>("everyone_dense", cheapest{}),
  };
}

} // namespace spar_test::recorded
