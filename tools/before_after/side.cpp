// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Implements side.hpp with one header tree. Compiled twice: with the old headers and -DSIDE=side_old -Dspar=spar_old,
// and with the new headers and -DSIDE=side_new. calls.inc contains the measured calls.
#include "side.hpp"
#include "calls.inc"
#include <memory>
#include <vector>

namespace {
struct state {
  virtual ~state() = default;
  virtual void call(int times) = 0;
};

template <class Net>
struct rank_end : state {
  Net* net;
  operation what;
  inputs in;
  std::unique_ptr<calls::feedback> keep;
  rank_end(Net& n, operation o, const inputs& i) : net(&n), what(o), in(i) {
    if (o == operation::ok_topk) keep = calls::make_feedback(in.density);
  }
  void call(int times) override {
    const std::span<float> x(in.x, in.n);
    const std::span<const std::uint32_t> indices(in.indices, in.k);
    const std::span<const float> values(in.values, in.k);
    switch (what) {
    case operation::doubling:
      for (int i = 0; i < times; ++i) calls::doubling(*net, x);
      break;
    case operation::dense:
      for (int i = 0; i < times; ++i) calls::dense_default(*net, x);
      break;
    case operation::sparse:
      for (int i = 0; i < times; ++i) calls::sparse_default(*net, in.n, indices, values);
      break;
    case operation::ok_topk:
      for (int i = 0; i < times; ++i) calls::feedback_call(*net, *keep, std::span<const float>(x));
      break;
    }
  }
};

struct simulated : state {
  spar::simulator* engine;
  inputs in;
  simulated(spar::simulator& e, const inputs& i) : engine(&e), in(i) {}
  void call(int times) override {
    const std::span<const std::uint32_t> indices(in.indices, in.k);
    const std::span<const float> values(in.values, in.k);
    for (int i = 0; i < times; ++i)
      engine->run([&](spar::sim& net) { return calls::simulated_sparse(net, in.n, indices, values); });
  }
};
} // namespace

extern const side SIDE;
const side SIDE = {
    SIDE_NAME,
    [](int ranks) -> void* { return new spar::thread_group(ranks); },
    [](void* t) { delete static_cast<spar::thread_group*>(t); },
#ifdef WITH_MPI
    []() -> void* { return new spar::mpi(MPI_COMM_WORLD); },
    [](void* t) { delete static_cast<spar::mpi*>(t); },
#else
    []() -> void* { return nullptr; },
    [](void*) {},
#endif
    [](int ranks) -> void* { return new spar::simulator(ranks); },
    [](void* t) { delete static_cast<spar::simulator*>(t); },
    [](void* t, int rank, operation o, const inputs* i) -> void* {
      return static_cast<state*>(new rank_end<spar::threads>(static_cast<spar::thread_group*>(t)->rank(rank), o, *i));
    },
    []([[maybe_unused]] void* t, [[maybe_unused]] operation o, [[maybe_unused]] const inputs* i) -> void* {
#ifdef WITH_MPI
      return static_cast<state*>(new rank_end<spar::mpi>(*static_cast<spar::mpi*>(t), o, *i));
#else
      return nullptr;
#endif
    },
    [](void* t, operation, const inputs* i) -> void* {
      return static_cast<state*>(new simulated(*static_cast<spar::simulator*>(t), *i));
    },
    [](void* s, int times) { static_cast<state*>(s)->call(times); },
    [](void* s) { delete static_cast<state*>(s); },
};
