// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorded allreduces of dense values, one line a system.
#include "conformance/recorded/systems.hpp"

#include <spar/selector/all.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/storage/codec.hpp>
#include <spar/system/collective.hpp>
#include <spar/system/compressed.hpp>
#include <spar/system/compressed_flexreduce.hpp>
#ifdef SPAR_HAS_ZFP
#include <spar/storage/zfp.hpp>
#endif

namespace spar_test::recorded {

std::vector<system> systems_of_values() {
  using namespace spar;
  namespace store = spar::storage;
  using on = const topologies&;
  return {
      of_values<float>("dense", dense{}),
      on_slow_network(of_values<float>("dense", dense{})),
      of_values<float>("dense_average", dense{}, average{}),
      of_values<float>("ring", ring{}),
      of_values<double>("ring_double", ring{}),
      of_values<float>("rabenseifner", rabenseifner{}),
      of_values<float>("recursive_doubling", recursive_doubling{}),
      of_values<double>("recursive_doubling_double", recursive_doubling{}),
      of_values<float>("flexreduce", [](on its) { return flexreduce{its.flex}; }),
      of_values<float>("ring_plan", [](on its) { return flexreduce{its.around}; }),
      of_values<float>("blueconnect_plan", [](on its) { return flexreduce{its.by_levels}; }),
      of_values<float>("tree_dense", [](on its) { return tree_dense{its.dense}; }),
      of_values<float>("compressed_ring_qsgd8", compressed_ring<store::qsgd<8>>{}),
      of_values<float>("compressed_ring_bfloat16", compressed_ring<store::bfloat16>{}),
      of_values<float>("compressed_ring_half", compressed_ring<store::half>{}),
      of_values<float>("compressed_doubling_qsgd8", compressed_recursive_doubling<store::qsgd<8>>{}),
      of_values<float>("compressed_doubling_bfloat16", compressed_recursive_doubling<store::bfloat16>{}),
      of_values<float>("compressed_doubling_half", compressed_recursive_doubling<store::half>{}),
      of_values<float>("compressed_qsgd8", compressed<store::qsgd<8>>{}),
      on_slow_network(of_values<float>("compressed_qsgd8", compressed<store::qsgd<8>>{})),
      of_values<float>("compressed_bfloat16", compressed<store::bfloat16>{}),
      on_slow_network(of_values<float>("compressed_bfloat16", compressed<store::bfloat16>{})),
      of_values<float>("compressed_flexreduce_qsgd8",
                       [](on its) { return compressed_flexreduce(its.flex, store::qsgd<8>{}); }),
#ifdef SPAR_HAS_ZFP
      of_values<float>("zfp_compressed_ring", compressed_ring<store::zfp>{}),
      of_values<float>("zfp_compressed_doubling", compressed_recursive_doubling<store::zfp>{}),
#endif
      of_values<float>("collective_all_ssar_split", collective<selector::all, ssar_split>{}),
      of_values<float>("collective_exact_topk_sparcml",
                       collective<selector::exact_topk, sparcml>{{.density = 0.01}, {}}),
      partial_of_everyone<float>("everyone_dense", dense{}),
  };
}

} // namespace spar_test::recorded
