// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorded allreduces of sparse streams, one per line.
#include "conformance/recorded/systems.hpp"

#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>

namespace spar_test::recorded {

std::vector<system> systems_of_streams() {
  using namespace spar;
  namespace store = spar::storage;
  using on = const topologies&;
  return {
      of_streams<float>("sparcml", sparcml{}),
      on_slow_network(of_streams<float>("sparcml", sparcml{})),
      of_streams<double>("sparcml_double", sparcml{}),
      of_streams<float>("sparcml_average", sparcml{}, average{}),
      of_streams<float>("sparcml_qsgd4", compose(store::then<store::coo, store::qsgd<4>>{}, cheapest{})),
      of_streams<float>("sparcml_bfloat16", compose(store::then<store::coo, store::as_bfloat16>{}, cheapest{})),
      of_streams<float>("ssar_split", ssar_split{}),
      of_streams<float, std::uint64_t>("ssar_split_64_bit_indices", ssar_split{}),
      of_streams<float>("dsar_split", dsar_split{}),
      of_streams<float>("split_adaptive", split_allgather<>{}),
      of_streams<float>("split_adaptive_maximum", split_allgather<>{}, maximum{}),
      of_streams<float>("split_qsgd4", compose(store::then<store::coo, store::qsgd<4>>{}, dsar_split{})),
      of_streams<float>("split_bfloat16", compose(store::then<store::coo, store::as_bfloat16>{}, dsar_split{})),
      of_streams<float>("doubling_streams", recursive_doubling{}),
      of_streams<float>("doubling_streams_early_dense", recursive_doubling{.dense_from = 0.25}),
      of_streams<float>("ring_streams", ring{}),
      of_streams<float>("rabenseifner_streams", rabenseifner{}),
      of_streams<float>("gather_and_merge", gather_and_merge{}),
      of_streams<float>("flexreduce_streams", [](on its) { return flexreduce(its.flex); }),
      of_streams<float>("ring_plan_streams", [](on its) { return flexreduce(its.around); }),
      of_streams<float>("tree_sparcml", [](on its) { return tree_sparcml(its.plans); }),
      partial_of_everyone<sparse_stream<float>>("everyone_sparcml", sparcml{}),
  };
}

} // namespace spar_test::recorded
