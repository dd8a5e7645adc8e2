// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ranks.hpp"

#include <memory>
#include <type_traits>
#include <vector>

namespace spar_test {

namespace {

/// Calls `program` on the rank, as a Net: the rank's own type, or any_transport.
template <class Net, class Rank>
class program_net {
 public:
  explicit program_net(Rank& rank) : net_(rank) {}
  spar::task<void> start(const on_rank<Net>& program) { return program(net_); }
  void run(const on_rank<Net>& program) { spar::run_until_done(net_, program(net_)); }

 private:
  std::conditional_t<std::is_same_v<Net, Rank>, Net&, Net> net_;
};

} // namespace

template <class Net>
void run_on_threads(spar::rank_t ranks, const on_rank<Net>& program, const spar::thread_options& options) {
  spar::thread_group group{ranks, options};
  group.run([&](spar::threads& rank) { program_net<Net, spar::threads>(rank).run(program); });
}
template void run_on_threads(spar::rank_t, const on_rank<spar::threads>&, const spar::thread_options&);
template void run_on_threads(spar::rank_t, const on_rank<spar::any_transport>&, const spar::thread_options&);

template <class Net>
double run_on_sim(spar::rank_t ranks, const on_rank<Net>& program, const spar::simulator_options& options) {
  using net = program_net<Net, spar::sim>;
  spar::simulator engine{ranks, options};
  std::vector<std::unique_ptr<net>> nets; // which programs use until the end of `run`
  engine.run([&](spar::sim& rank) { return nets.emplace_back(std::make_unique<net>(rank))->start(program); });
  return engine.time();
}
template double run_on_sim(spar::rank_t, const on_rank<spar::sim>&, const spar::simulator_options&);
template double run_on_sim(spar::rank_t, const on_rank<spar::any_transport>&, const spar::simulator_options&);

} // namespace spar_test
