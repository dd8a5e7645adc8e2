// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Times calls of three instances in turn, in one process: the old headers, the new headers, and the old headers again.
// Each instance has its own transport and state. Prints a line for each alternation:
//   WHERE CASE seconds_of_old seconds_of_new seconds_of_old
// usage: speed threads|sim|mpi [-a ALTERNATIONS] [CASE...]      (CASE: the name of a case or a prefix of names)
#include "side.hpp"
#ifdef WITH_MPI
#include <mpi.h>
#endif
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sched.h>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

using std::size_t;
struct test_case {
  const char* name;
  operation what;
  size_t n, k;
  double density;
  bool sim;
};
static const test_case cases[] = {
    {"doubling_8B", operation::doubling, 2, 0, 0, false},
    {"doubling_4KiB", operation::doubling, 1024, 0, 0, false},
    {"sparse_1e2", operation::sparse, 1'000'000, 100, 0, false},
    {"sparse_1e4", operation::sparse, 1'000'000, 10'000, 0, false},
    {"sparse_3e5", operation::sparse, 1'000'000, 300'000, 0, false},
    {"dense_1MiB", operation::dense, 1 << 18, 0, 0, false},
    {"dense_64MiB", operation::dense, 1 << 24, 0, 0, false},
    {"ok_topk_1e6", operation::ok_topk, 1'000'000, 0, 0.01, false},
    {"ok_topk_16Mi", operation::ok_topk, 1 << 24, 0, 0.01, false},
    {"sim_4096_ranks", operation::sparse, 1'000'000, 4, 0, true},
};

struct generator {
  std::uint64_t s;
  explicit generator(int rank) : s(88172645463325252ULL + 7919ULL * static_cast<unsigned>(rank)) {}
  std::uint64_t next() {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s >> 20;
  }
};

/// One rank's view of the ranks that measure together.
struct team {
  int rank, ranks;
  std::function<void()> barrier;
  std::function<int(int)> of_rank_0;
};
static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Measures one case. `begin(instance, operation, inputs)` creates the state of an instance (0 to 2).
static void measure(const char* where, const test_case& c, const team& t, int alternations,
                    const std::function<void*(int, operation, const inputs*)>& begin) {
  const side* sides[3] = {&side_old, &side_new, &side_old};
  generator g(t.rank);
  std::vector<float> x(c.k == 0 ? c.n : 0), values(c.k);
  std::vector<std::uint32_t> indices(c.k);
  if (c.what == operation::ok_topk)
    for (float& v : x) {
      v = static_cast<float>(static_cast<std::int64_t>(g.next() % 2001) - 1000) / 37.F;
      v = v * v * v;
    }
  for (size_t i = 0; i < c.k; ++i) {
    const size_t low = c.n * i / c.k, high = c.n * (i + 1) / c.k;
    indices[i] = static_cast<std::uint32_t>(low + g.next() % (high - low));
    values[i] = static_cast<float>(g.next() % 1000) - 500.F;
  }
  const inputs in{c.n, x.data(), indices.data(), values.data(), c.k, c.density};
  void* states[3];
  for (int s = 0; s < 3; ++s) states[s] = begin(s, c.what, &in);
  const auto timed = [&](int s, int times) {
    t.barrier();
    const double from = now();
    sides[s]->call(states[s], times);
    t.barrier();
    return now() - from;
  };
  int times = 1;
  for (int warm = 0; warm < 2; ++warm)
    for (int s = 0; s < 3; ++s) timed(s, 1);
  double sample = 0; // seconds of `times` calls: at least half a millisecond
  for (;;) {
    sample = 1e9;
    for (int i = 0; i < 3; ++i)
      for (int s = 0; s < 3; ++s) sample = std::min(sample, timed(s, times));
    const int next = t.of_rank_0(sample >= 5e-4 ? times : 2 * times);
    if (next == times) break;
    times = next;
  }
  // If samples are short, an alternation repeats old / new / old several times and takes the minimum of each, because
  // other programs on the machine occupy a core for some milliseconds at a time.
  const int turns = t.of_rank_0(sample < 3e-3 ? 6 : sample < 2e-2 ? 3 : 1);
  for (int a = 0; a < alternations; ++a) {
    double taken[3] = {1e9, 1e9, 1e9};
    for (int i = 0; i < turns; ++i)
      for (int s = 0; s < 3; ++s) taken[s] = std::min(taken[s], timed(s, times) / times);
    if (t.rank == 0) std::printf("%s %s %.9g %.9g %.9g\n", where, c.name, taken[0], taken[1], taken[2]);
  }
  for (int s = 0; s < 3; ++s) sides[s]->end(states[s]);
  if (t.rank == 0) std::fflush(stdout);
  t.barrier();
}

/// A barrier that spins: a rank that sleeps would wake up late and distort the other rank's time.
struct spin_barrier {
  std::atomic<int> arrived{0}, round{0};
  void wait(int ranks) {
    const int r = round.load();
    if (arrived.fetch_add(1) + 1 == ranks) {
      arrived = 0;
      round = r + 1;
      return;
    }
    for (int i = 0; round.load(std::memory_order_acquire) == r; ++i)
      if (i > 20000) sched_yield();
  }
};

static void run_threads(const std::vector<test_case>& chosen, int alternations) {
  void* groups[3] = {side_old.open_threads(2), side_new.open_threads(2), side_old.open_threads(2)};
  spin_barrier meet;
  std::atomic<int> told{0};
  const auto rank = [&](int r) {
    const team t{r, 2, [&] { meet.wait(2); },
                 [&, r](int v) {
                   if (r == 0) told = v;
                   meet.wait(2);
                   const int all = told;
                   meet.wait(2);
                   return all;
                 }};
    for (const auto& c : chosen) {
      if (c.sim) continue;
      measure("threads", c, t, alternations, [&](int s, operation o, const inputs* in) {
        return (s == 1 ? side_new : side_old).begin_threads(groups[s], r, o, in);
      });
    }
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  side_old.close_threads(groups[0]), side_new.close_threads(groups[1]), side_old.close_threads(groups[2]);
}

static void run_sim(const std::vector<test_case>& chosen, int alternations) {
  void* engines[3] = {side_old.open_sim(4096), side_new.open_sim(4096), side_old.open_sim(4096)};
  const team t{0, 1, [] {}, [](int v) { return v; }};
  for (const auto& c : chosen) {
    if (c.sim)
      measure("sim", c, t, alternations, [&](int s, operation o, const inputs* in) {
        return (s == 1 ? side_new : side_old).begin_sim(engines[s], o, in);
      });
  }
  side_old.close_sim(engines[0]), side_new.close_sim(engines[1]), side_old.close_sim(engines[2]);
}

#ifdef WITH_MPI
static void run_mpi(const char* where, const std::vector<test_case>& chosen, int alternations) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  void* nets[3] = {side_old.open_mpi(), side_new.open_mpi(), side_old.open_mpi()};
  const team t{rank, ranks, [] { MPI_Barrier(MPI_COMM_WORLD); },
               [](int v) {
                 MPI_Bcast(&v, 1, MPI_INT, 0, MPI_COMM_WORLD);
                 return v;
               }};
  for (const auto& c : chosen) {
    if (!c.sim)
      measure(where, c, t, alternations, [&](int s, operation o, const inputs* in) {
        return (s == 1 ? side_new : side_old).begin_mpi(nets[s], o, in);
      });
  }
  side_old.close_mpi(nets[0]), side_new.close_mpi(nets[1]), side_old.close_mpi(nets[2]);
}
#endif

int main(int argc, char** argv) {
  const std::string where = argc > 1 ? argv[1] : "threads";
  int alternations = 41;
  std::vector<test_case> chosen;
  bool any = false;
  for (int i = 2; i < argc; ++i) {
    if (!std::strcmp(argv[i], "-a")) {
      const char* const number = i + 1 < argc ? argv[++i] : "";
      const char* const end = number + std::strlen(number);
      const auto [stop, error] = std::from_chars(number, end, alternations);
      if (error != std::errc{} || stop != end || alternations < 1) {
        std::fprintf(stderr, "before_after: -a needs a whole number of at least 1, not '%s'\n", number);
        return 2;
      }
      continue;
    }
    any = true;
    for (const auto& c : cases)
      if (!std::strncmp(c.name, argv[i], std::strlen(argv[i]))) chosen.push_back(c);
  }
  if (!any) chosen.assign(std::begin(cases), std::end(cases));
  if (where == "threads") return run_threads(chosen, alternations), 0;
  if (where == "sim") return run_sim(chosen, alternations), 0;
#ifdef WITH_MPI
  MPI_Init(&argc, &argv);
  run_mpi(where.c_str(), chosen, alternations);
  MPI_Finalize();
  return 0;
#else
  std::fprintf(stderr, "usage: speed threads|sim [-a ALTERNATIONS] [CASE...]\n");
  return 2;
#endif
}
