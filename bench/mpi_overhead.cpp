// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures the overhead of spar over MPI. Compares spar's dense recursive doubling with the same algorithm hand-written
// with MPI_Sendrecv, plain and with messages longer by the size of spar's header (the minimum for any layer with a
// header), and spar's dense algorithms with MPI_Allreduce. The number of ranks must be a power of two.
#include <spar/mpi.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <thread>
#include <vector>

namespace {

void add(float* __restrict to, const float* __restrict from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

/// Recursive doubling by hand. Each message has `more` additional bytes after the values; both vectors must have room
/// for these bytes.
void by_hand(MPI_Comm comm, std::span<float> x, std::vector<float>& theirs, int more) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int bytes = static_cast<int>(x.size_bytes()) + more;
  for (int distance = 1; distance < size; distance *= 2) {
    const int peer = rank ^ distance;
    MPI_Sendrecv(x.data(), bytes, MPI_BYTE, peer, 0, theirs.data(), bytes, MPI_BYTE, peer, 0, comm, MPI_STATUS_IGNORE);
    add(x.data(), theirs.data(), x.size());
  }
}

struct spread {
  double low, median, high; // quartiles
};

spread quartiles(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 4], samples[samples.size() / 2], samples[samples.size() * 3 / 4]};
}

void print(const char* what, const std::vector<double>& ratios) {
  const spread s = quartiles(ratios);
  std::printf("  %s %.2f (%.2f..%.2f)", what, s.median, s.low, s.high);
}

/// The time of arithmetic on all ranks at once, divided by its time on one rank alone. 1 means that each rank has a
/// core. On a virtual machine the value may change from minute to minute. At 1.4, two ranks are hardware threads of one
/// core: messages between them take half the time and everything else longer, so such a run is not meaningful.
double crowding(MPI_Comm comm) {
  using clock = std::chrono::steady_clock;
  const auto work = [] { // eight independent chains keep a core busy
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const auto begin = clock::now();
    for (int i = 0; i < 4'000'000; ++i) {
      for (double& value : x) value = value * 1.0000001 + 1e-9;
    }
    [[maybe_unused]] volatile double used = x[0] + x[7];
    return std::chrono::duration<double>(clock::now() - begin).count();
  };
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Barrier(comm);
  double alone = 0;
  if (rank == 0)
    alone = work();
  else
    std::this_thread::sleep_for(std::chrono::milliseconds(60)); // waiting in a barrier would use the core
  MPI_Barrier(comm);
  return work() / std::max(alone, 1e-9);
}

void measure(spar::mpi& world, std::size_t bytes) {
  const double crowded = crowding(world.communicator());
  const MPI_Comm comm = world.communicator();
  constexpr int header = sizeof(spar::short_header);
  std::vector<float> values((bytes + header) / sizeof(float), 0.0F);
  std::vector<float> theirs(values.size());
  const std::span<float> x(values.data(), bytes / sizeof(float));
  const int calls = static_cast<int>(std::clamp<std::size_t>((std::size_t{64} << 20) / bytes, 4, 2000));
  const auto seconds = [&](auto call) {
    MPI_Barrier(comm);
    const double begin = MPI_Wtime();
    for (int i = 0; i < calls; ++i) call();
    return (MPI_Wtime() - begin) / calls;
  };
  std::vector<double> hand_seconds, mpi_seconds, with_header, doubling, rabenseifner, ring;
  for (int round = 0; round < 21; ++round) { // in turn, so that disturbances by the machine affect all alike
    const double hand = seconds([&] { by_hand(comm, x, theirs, 0); });
    with_header.push_back(seconds([&] { by_hand(comm, x, theirs, header); }) / hand);
    const double mpi =
        seconds([&] { MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM, comm); });
    hand_seconds.push_back(hand);
    mpi_seconds.push_back(mpi);
    doubling.push_back(seconds([&] { spar::allreduce(world, x, spar::recursive_doubling{}); }) / hand);
    rabenseifner.push_back(seconds([&] { spar::allreduce(world, x, spar::rabenseifner{}); }) / mpi);
    ring.push_back(seconds([&] { spar::allreduce(world, x, spar::ring{}); }) / mpi);
  }
  if (world.rank() != 0) return;
  std::printf("%9zu B  by hand %9.2f us", bytes, quartiles(hand_seconds).median * 1e6);
  print("with a header", with_header);
  print("spar / by hand", doubling);
  std::printf("  MPI_Allreduce %9.2f us", quartiles(mpi_seconds).median * 1e6);
  print("rabenseifner / MPI", rabenseifner);
  print("ring / MPI", ring);
  std::printf("  crowding %.2f", crowded);
  std::printf("\n");
  std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    spar::mpi world(MPI_COMM_WORLD);
    if (world.rank() == 0) std::printf("%d ranks; medians (with quartiles)\n", world.size());
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{1} << 20, std::size_t{64} << 20}) {
      measure(world, bytes);
    }
  }
  MPI_Finalize();
}
