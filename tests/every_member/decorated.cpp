// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums over the simulator, over a transport of any kind, and over each decorator; calls from coroutines.
#include <spar/spar.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/counting.hpp>
#include <spar/transport/faulty.hpp>
#include <spar/transport/sim.hpp>
#include <spar/transport/tracing.hpp>

#include <cstdint>
#include <utility>
#include <vector>

template class spar::decorated_port<spar::threads_port>;
template class spar::decorated_port<spar::sim_port>;

namespace every_member {

/// A program of a rank, as the simulator runs it.
struct program {
  std::vector<float>* x;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto call = spar::start_allreduce(net, *x, spar::ring{});
    if (!call.done()) co_await std::move(call);
    spar::counting<Net> counted(net);
    co_await counted.sleep(1e-3);
    auto sum = spar::start_allreduce(net, *x, spar::ring{});
    auto other = spar::start_barrier(net);
    co_await std::move(sum);
    co_await std::move(other);
  }
};

template <class Net>
spar::task<int> twice(Net& net, int x) {
  (void)net;
  co_return 2 * x;
}

double simulate(std::vector<float>& x) {
  spar::simulator simulated(4);
  const program each{&x};
  simulated.run(each);
  return simulated.time();
}

void exchange(spar::threads_port& net, spar::message_buffer& in) {
  auto first = net.receive(in, 0, {});
  first = net.receive(in, 1, {});
}

std::uint64_t decorate(spar::threads& net, std::vector<float>& x) {
  spar::counting counted(net);
  spar::allreduce(counted, x);
  counted.reset();
  {
    const spar::progress_thread background(counted);
  }
  spar::tracing traced(net);
  spar::allreduce(traced, x);
  const auto events = traced.events().size();
  traced.clear();
  spar::faulty late(net, {spar::fault{}});
  spar::allreduce(late, x);
  spar::any_transport any(net);
  {
    const spar::progress_thread background(any);
    spar::allreduce(any, x);
  }
  traced.record(false);
  (void)traced.seconds();
  if (late.holds_back()) return late.sent() + late.received();
  spar::run_until_done(net, twice(net.port(), 1));
  return events + counted.sent().messages + counted.received().messages;
}

} // namespace every_member
