// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The double of NCCL (nccl_double.hpp) for ranks that are processes of MPI_COMM_WORLD. A group is one piece of work in
// its stream: its sends and receives begin, as those of MPI, when it is the next work of the stream, and the work ends
// when all of them have ended. No call waits for another rank.
#include "nccl_double.hpp"

#include "runtime_double.hpp"

#include <mpi.h>
#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace {

[[noreturn]] void die(const char* why) {
  std::fprintf(stderr, "nccl_mpi_double: %s\n", why);
  std::abort();
}

/// A send or a receive of MPI.
struct message {
  bool sends;
  std::unique_ptr<std::byte[]> host{};
  MPI_Request request = MPI_REQUEST_NULL;

  void start(std::size_t bytes, int peer, int tag) {
    const int count = static_cast<int>(bytes);
    if (sends)
      PMPI_Isend(host.get(), count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request);
    else
      PMPI_Irecv(host.get(), count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request);
  }
  [[nodiscard]] bool has_ended(MPI_Status* status = MPI_STATUS_IGNORE) {
    int ended = 0;
    PMPI_Test(&request, &ended, status);
    return ended != 0;
  }
};
struct operation {
  message its;
  void* memory;
  std::size_t bytes;
  int peer;
  std::size_t damaged = SIZE_MAX; // the damaged byte of what this receive gets, if there is one
  bool loses = false;             // whether this receive gets nothing
};
struct group {
  ncclComm* comm;
  cudaStream_t stream;
  std::vector<operation> operations{};
  bool begun = false;
  bool aborted = false;
};

std::shared_ptr<group> open_group;
nccl_double::counts done;
std::uint64_t call_that_fails = 0, poll_that_fails = 0, damaged_receive = 0, lost_receive = 0;
std::size_t damaged_byte = 0;
std::vector<message> left; // sends of aborted communicators that no rank has received yet
int alive = 0;             // communicators

} // namespace

struct ncclComm {
  int number = 0;
  int size = 0, rank = 0;
  ncclResult_t state = ncclSuccess;
  std::vector<message> meeting{}; // of all ranks: the call in progress ends when it has
  int polls = 0;                  // after which the call in progress ends
  std::vector<std::shared_ptr<group>> groups{};
  bool finalized = false;

  enum class purpose { transfer, join };
  [[nodiscard]] int tag(purpose what) const { return 3 * number + static_cast<int>(what); }
};

namespace {

/// Counts a call; returns the error with which it must fail, or ncclSuccess.
ncclResult_t begin_call() { return ++done.calls == call_that_fails ? ncclSystemError : ncclSuccess; }
/// A call on a communicator, on which no other call may be in progress.
ncclResult_t begin_call(const ncclComm* comm) {
  if (comm->state == ncclInProgress) die("a call began before the previous one had ended");
  return comm->state != ncclSuccess ? comm->state : begin_call();
}
/// Begins to end a call, which ends later.
ncclResult_t end_call(ncclComm* comm) {
  comm->polls = 2;
  return comm->state = ncclInProgress;
}
/// Exchanges a byte with every other rank.
void meet(ncclComm* comm, ncclComm::purpose what) {
  for (const bool sends : {true, false}) {
    for (int peer = 0; peer < comm->size; ++peer) {
      if (peer == comm->rank) continue;
      comm->meeting.push_back({sends, std::make_unique<std::byte[]>(1)});
      comm->meeting.back().start(1, peer, comm->tag(what));
    }
  }
}

bool has_ended(group& g) {
  if (g.aborted) return true;
  bool all = true;
  for (operation& o : g.operations) {
    if (!g.begun) {
      o.its.host = std::make_unique<std::byte[]>(o.bytes);
      if (o.its.sends) cuda_double::copy(o.its.host.get(), o.memory, o.bytes);
      o.its.start(o.bytes, o.peer, g.comm->tag(ncclComm::purpose::transfer));
    }
    if (o.its.request != MPI_REQUEST_NULL) {
      MPI_Status status{};
      if (!o.its.has_ended(&status)) {
        all = false;
      } else if (!o.its.sends) {
        int received = 0;
        MPI_Get_count(&status, MPI_BYTE, &received);
        if (static_cast<std::size_t>(received) != o.bytes) die("a send and its receive have different sizes");
        if (o.damaged != SIZE_MAX) o.its.host[std::min(o.damaged, o.bytes - 1)] ^= std::byte{0x80};
        if (!o.loses) cuda_double::copy(o.memory, o.its.host.get(), o.bytes);
      }
    }
    all = all && !o.loses;
  }
  g.begun = true;
  return all;
}
void end(const group& g) {
  if (!g.aborted) std::erase_if(g.comm->groups, [&](const auto& other) { return other.get() == &g; });
}

/// Ends a message of a communicator that is aborted.
void give_up(message& m) {
  if (m.request == MPI_REQUEST_NULL) return;
  if (m.sends) {
    left.push_back(std::move(m));
  } else {
    MPI_Cancel(&m.request);
    MPI_Wait(&m.request, MPI_STATUS_IGNORE);
  }
}
void free(ncclComm* comm) {
  for (const auto& g : comm->groups) {
    g->aborted = true;
    for (operation& o : g->operations) give_up(o.its);
  }
  for (message& m : comm->meeting) give_up(m);
  --alive;
  delete comm;
}

ncclResult_t add(operation o, ncclComm* comm, cudaStream_t stream) {
  if (done.open_groups == 0) die("a send or a receive is in no group");
  if (!cuda_double::is_accessible(o.memory, o.bytes)) die("a device cannot access the memory of a transfer");
  if (!open_group) open_group = std::shared_ptr<group>(new group{.comm = comm, .stream = stream});
  if (open_group->comm != comm || open_group->stream != stream) die("a group uses several communicators or streams");
  if (const ncclResult_t error = begin_call(comm); error != ncclSuccess) {
    open_group->aborted = true;
    return error;
  }
  ++(o.its.sends ? done.sends : done.receives);
  if (o.its.sends) done.bytes_sent += o.bytes;
  if (!o.its.sends && done.receives == damaged_receive) o.damaged = damaged_byte;
  o.loses = !o.its.sends && done.receives == lost_receive;
  open_group->operations.push_back(std::move(o));
  return ncclSuccess;
}

} // namespace

namespace nccl_double {

void reset(std::uint64_t) { call_that_fails = poll_that_fails = damaged_receive = lost_receive = 0; }
void fail_at(std::uint64_t call) { call_that_fails = done.calls + call; }
void fail_later_at(std::uint64_t poll) { poll_that_fails = done.polls + poll; }
void damage(std::uint64_t transfer, std::size_t at) {
  damaged_receive = done.receives + transfer;
  damaged_byte = at;
}
void lose(std::uint64_t transfer) { lost_receive = done.receives + transfer; }
counts of_this_thread() { return done; }
std::size_t communicators() { return static_cast<std::size_t>(alive); }

void receive_what_is_left() {
  MPI_Request all_received = MPI_REQUEST_NULL;
  bool begun = false;
  for (int ended = 0; ended == 0;) {
    int found = 0, bytes = 0;
    MPI_Status status{};
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &status);
    if (found != 0) {
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      std::vector<std::byte> gone(static_cast<std::size_t>(bytes));
      PMPI_Recv(gone.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    std::erase_if(left, [](message& m) { return m.has_ended(); });
    if (left.empty() && !std::exchange(begun, true)) PMPI_Ibarrier(MPI_COMM_WORLD, &all_received);
    if (begun) PMPI_Test(&all_received, &ended, MPI_STATUS_IGNORE);
  }
  PMPI_Barrier(MPI_COMM_WORLD); // no rank still looks for messages when another one goes on
}

} // namespace nccl_double

extern "C" {

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclSystemError   ? "a planned error of NCCL"
         : code == ncclRemoteError ? "a planned error of a transfer"
                                   : "an error";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int ids = 0;
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  *id = {};
  ++ids;
  std::memcpy(id->internal, &ids, sizeof(ids));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  int world_size = 0, world_rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  if (config->blocking != 0 || size != world_size || rank != world_rank) die("a communicator is not of all processes");
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  *comm = new ncclComm{.size = size, .rank = rank};
  std::memcpy(&(*comm)->number, id.internal, sizeof((*comm)->number));
  ++alive;
  ++done.joins;
  meet(*comm, ncclComm::purpose::join);
  return end_call(*comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const auto lock = cuda_double::lock();
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  if (++done.polls == poll_that_fails) comm->state = ncclRemoteError;
  std::erase_if(comm->meeting, [](message& m) { return m.has_ended(); });
  if (comm->polls > 0) --comm->polls;
  if (comm->state == ncclInProgress && comm->polls == 0 && comm->meeting.empty()) comm->state = ncclSuccess;
  *state = comm->state;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t error = begin_call(comm); error != ncclSuccess) return error;
  if (!comm->groups.empty()) die("a communicator is finalized while transfers are in flight");
  comm->finalized = true;
  return end_call(comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm->finalized) die("a communicator is destroyed before it is finalized");
  const ncclResult_t result = begin_call(comm);
  ++done.destroys; // even if it fails
  free(comm);
  return result;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const auto lock = cuda_double::lock();
  ++done.aborts;
  free(comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  ++done.open_groups;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* from, std::size_t bytes, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({{true}, const_cast<void*>(from), bytes, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t bytes, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({{false}, to, bytes, peer}, comm, stream);
}
ncclResult_t ncclGroupEnd() {
  const auto lock = cuda_double::lock();
  if (--done.open_groups < 0) die("a group ends that has not begun");
  const std::shared_ptr<group> g = std::exchange(open_group, nullptr);
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  if (!g) return ncclSuccess;
  if (g->aborted) return ncclInvalidArgument;
  ++done.groups;
  g->comm->groups.push_back(g);
  cuda_double::put_when(g->stream, [g] { return has_ended(*g); }, [g] { end(*g); });
  return end_call(g->comm);
}
}
