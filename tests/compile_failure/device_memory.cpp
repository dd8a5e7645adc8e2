// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each collective on a communicator rejects values in device memory in one sentence, with and without a name, and so
// does error feedback. The compiler prints the sentence once for each type, so each call has values of its own type.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
using space = spar::host;
#else
using space = spar::cuda;
#endif

template <class T, class Index = std::uint32_t>
const auto on_device = spar::stream_view<T, Index, space>::sparse(0, {}, {});

void collectives(spar::threads& net) {
  const spar::named name{"n"};
  spar::allreduce(net, on_device<std::int32_t, std::uint64_t>);
  spar::allreduce(net, name, on_device<std::int64_t, std::uint64_t>);
  spar::start_allreduce(net, on_device<std::int32_t>);
  spar::start_allreduce(net, name, on_device<std::int64_t>);
  spar::reduce(net, on_device<std::uint32_t, std::uint64_t>, 0);
  spar::broadcast(net, on_device<std::uint64_t, std::uint64_t>, 0);
  spar::allgather(net, on_device<std::uint32_t>);
  spar::reduce_scatter(net, on_device<std::uint64_t>);
}

#ifndef POSITIVE_CONTROL // error feedback takes no streams
void feedback(spar::threads& net, spar::ok_topk<float>& reduce) {
  reduce(net, on_device<std::int32_t, std::uint64_t>);
  reduce.start(net, on_device<std::int64_t, std::uint64_t>);
  reduce.start(net, spar::named{"n"}, on_device<std::uint32_t, std::uint64_t>);
  reduce.reduce(net, on_device<std::int32_t>);
  reduce.start_reduce(net, on_device<std::int64_t>);
}
#endif
