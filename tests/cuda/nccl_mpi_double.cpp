// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A double of NCCL for ranks that are processes of MPI_COMM_WORLD, on the double of the CUDA runtime. A group is one
// piece of work in its stream: its sends and receives begin, as those of MPI, when it is the next work of the stream,
// and the work ends when all of them have ended. Calls end later; different sizes, and calls that are not allowed, end
// the program. nccl_double.cpp is the one for threads, with errors that can be planned.
#include "runtime_double.hpp"

#include <mpi.h>
#include <nccl.h>

#include <cstddef>
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

struct operation {
  bool sends;
  void* memory;
  std::size_t bytes;
  int peer;
  std::unique_ptr<std::byte[]> host{};
  MPI_Request request = MPI_REQUEST_NULL;
};
struct group {
  ncclComm* comm;
  cudaStream_t stream;
  std::vector<operation> operations{};
  bool begun = false;
};

std::shared_ptr<group> open_group;
int open_groups = 0;

} // namespace

struct ncclComm {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request all_finalized = MPI_REQUEST_NULL;
  int groups = 0; // in flight
  int polls = 0;  // after which the call in progress ends
};

namespace {

bool has_ended(group& g) {
  bool all = true;
  for (operation& o : g.operations) {
    if (!g.begun) {
      o.host = std::make_unique<std::byte[]>(o.bytes);
      const int count = static_cast<int>(o.bytes);
      if (o.sends) cuda_double::copy(o.host.get(), o.memory, o.bytes);
      if (o.sends)
        PMPI_Isend(o.host.get(), count, MPI_BYTE, o.peer, 0, g.comm->comm, &o.request);
      else
        PMPI_Irecv(o.host.get(), count, MPI_BYTE, o.peer, 0, g.comm->comm, &o.request);
    }
    if (o.request == MPI_REQUEST_NULL) continue;
    int ended = 0, received = 0;
    MPI_Status status{};
    PMPI_Test(&o.request, &ended, &status);
    all = all && ended != 0;
    if (ended == 0 || o.sends) continue;
    MPI_Get_count(&status, MPI_BYTE, &received);
    if (static_cast<std::size_t>(received) != o.bytes) die("a send and its receive have different sizes");
    cuda_double::copy(o.memory, o.host.get(), o.bytes);
  }
  g.begun = true;
  return all;
}

ncclResult_t add(operation o, ncclComm* comm, cudaStream_t stream) {
  if (open_groups == 0) die("a send or a receive is in no group");
  if (!cuda_double::is_accessible(o.memory, o.bytes)) die("a device cannot access the memory of a transfer");
  if (!open_group) open_group = std::shared_ptr<group>(new group{.comm = comm, .stream = stream});
  if (open_group->comm != comm || open_group->stream != stream) die("a group uses several communicators or streams");
  open_group->operations.push_back(std::move(o));
  return ncclSuccess;
}
/// Begins a call, which ends later.
ncclResult_t begin(ncclComm* comm) {
  comm->polls = 2;
  return ncclInProgress;
}

} // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static char ids = 0;
  std::memset(id->internal, ++ids, sizeof(id->internal));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  int world_size = 0, world_rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  if (config->blocking != 0 || size != world_size || rank != world_rank) die("a communicator is not of all processes");
  ncclUniqueId first = id;
  PMPI_Bcast(first.internal, sizeof(first.internal), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (std::memcmp(first.internal, id.internal, sizeof(id.internal)) != 0) die("ranks have different ids");
  *comm = new ncclComm;
  PMPI_Comm_dup(MPI_COMM_WORLD, &(*comm)->comm);
  return begin(*comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const auto lock = cuda_double::lock();
  if (comm->polls > 0) --comm->polls;
  bool in_progress = comm->polls > 0;
  if (comm->all_finalized != MPI_REQUEST_NULL) {
    int ended = 0;
    PMPI_Test(&comm->all_finalized, &ended, MPI_STATUS_IGNORE);
    in_progress = ended == 0;
  }
  *state = in_progress ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm->groups != 0) die("a communicator is finalized while transfers are in flight");
  PMPI_Ibarrier(comm->comm, &comm->all_finalized);
  return begin(comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->all_finalized != MPI_REQUEST_NULL) die("a communicator is destroyed before it is finalized");
  PMPI_Comm_free(&comm->comm);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) { die("a communicator is aborted, which this double cannot do"); }

ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* from, std::size_t bytes, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({true, const_cast<void*>(from), bytes, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t bytes, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({false, to, bytes, peer}, comm, stream);
}
ncclResult_t ncclGroupEnd() {
  const auto lock = cuda_double::lock();
  if (--open_groups < 0) die("a group ends that has not begun");
  const std::shared_ptr<group> g = std::exchange(open_group, nullptr);
  if (!g) return ncclSuccess;
  ++g->comm->groups;
  cuda_double::put_when(g->stream, [g] { return has_ended(*g); }, [g] { --g->comm->groups; });
  return begin(g->comm);
}
}
