// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl_double.hpp"

#include "runtime_double.hpp"

#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

struct operation {
  bool sends;
  char* memory;
  std::size_t bytes;
  int peer;
  std::size_t damaged = sound; // the damaged byte of what this receive gets
  bool loses = false;          // whether this receive gets nothing
  bool gathers = false;        // whether this is a part of an allgather
  bool captured = false;       // whether this is a part of a graph
  bool matched = false;
  bool done = false;

  static constexpr std::size_t sound = SIZE_MAX;
};
struct group {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<operation> operations;
  bool aborted = false;
  bool failed = false; // an operation was refused
};
/// An allreduce of the ranks of a communicator.
struct reduction {
  std::vector<float> sum;
  std::size_t begun = 0; // ranks whose streams have come to it
};
struct clique { // the ranks of a communicator
  std::vector<ncclComm*> ranks;
  int joined = 0;
  std::vector<std::shared_ptr<reduction>> reductions{}; // in the order of the calls
};

std::mt19937_64 random_progress;
bool refused = false;
std::uint64_t ids = 0;
std::map<std::uint64_t, std::shared_ptr<clique>> joining;
std::vector<ncclComm*> alive;

thread_local nccl_double::counts done_here;
thread_local std::uint64_t call_that_fails = 0, poll_that_fails = 0, damaged_receive = 0, lost_receive = 0;
thread_local std::size_t damaged_byte = 0;
thread_local std::shared_ptr<group> open_group;
thread_local std::string last_error;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "nccl_double: %s\n", why.c_str());
  std::abort();
}

} // namespace

struct ncclComm {
  std::shared_ptr<clique> all;
  int rank = 0;
  ncclResult_t state = ncclSuccess;
  std::function<bool()> call; // tries to end the call in progress
  std::vector<std::shared_ptr<group>> groups;
  group* next = nullptr; // the group that is the next work of the stream
  bool finalizing = false;
  bool is_aborted = false;
  std::thread::id owner = std::this_thread::get_id();
  nccl_double::counts* did = nullptr;                              // of the owner
  std::size_t reductions = 0;                                      // calls so far
  std::shared_ptr<const int> use = std::make_shared<const int>(0); // graphs with transfers have copies

  [[nodiscard]] bool is_in_graphs() const { return use.use_count() > 1; }
};

namespace {

void count_hazard() {
  for (const ncclComm* comm : alive) {
    if (comm->owner == std::this_thread::get_id() && !comm->groups.empty()) ++done_here.hazards;
  }
}
/// A release waits for the transfers of all ranks on the device.
void count_release() {
  count_hazard();
  for (const ncclComm* comm : alive) {
    if (comm->groups.empty()) continue;
    ++done_here.releases;
    break;
  }
}

/// Counts a call; returns the error with which it must fail, or ncclSuccess.
ncclResult_t begin_call() { return ++done_here.calls == call_that_fails ? ncclSystemError : ncclSuccess; }
/// A call on a communicator, on which no other call may be in progress.
ncclResult_t begin_call(const ncclComm* comm) {
  if (comm->state == ncclInProgress) die("a call began before the previous one had ended");
  return comm->state != ncclSuccess ? comm->state : begin_call();
}
/// Ends a call now or later.
ncclResult_t end_call(ncclComm* comm, std::function<bool()> call) {
  if (random_progress() % 2 == 0 && call()) return ncclSuccess;
  comm->call = std::move(call);
  return comm->state = ncclInProgress;
}

void transfer(operation& one, operation& other) {
  if (one.bytes != other.bytes)
    die("a send and its receive have " + std::to_string(one.bytes) + " and " + std::to_string(other.bytes) + " bytes");
  operation& from = one.sends ? one : other;
  operation& to = one.sends ? other : one;
  if (!to.loses) cuda_double::copy(to.memory, from.memory, from.bytes);
  if (to.damaged != operation::sound && to.bytes > 0) {
    char byte = 0;
    char* const place = to.memory + std::min(to.damaged, to.bytes - 1);
    cuda_double::copy(&byte, place, 1);
    byte = static_cast<char>(byte ^ 0x80);
    cuda_double::copy(place, &byte, 1);
  }
  one.matched = other.matched = true;
  from.done = true;
  to.done = !to.loses;
}
/// Matches operations of a group that is the next work of its stream. Returns whether all have ended.
bool match(group& g) {
  if (g.aborted) return true;
  if (g.comm->groups.front().get() != &g) return false; // in the order of the calls, also in several streams
  g.comm->next = &g;
  bool all = true;
  for (operation& o : g.operations) {
    const ncclComm* const peer = g.comm->all->ranks[static_cast<std::size_t>(o.peer)];
    if (!o.matched && peer != nullptr && peer->next != nullptr) {
      for (operation& p : peer->next->operations) {
        if (p.matched || p.peer != g.comm->rank || p.sends == o.sends) continue;
        if (p.gathers != o.gathers) die("an allgather meets a send or a receive");
        if (p.captured != o.captured) die("a transfer is a part of a graph on one rank only");
        transfer(o, p);
        break;
      }
    }
    all = all && o.done;
  }
  return all;
}
void end(group& g) {
  if (g.aborted) return;
  g.comm->next = nullptr;
  std::erase_if(g.comm->groups, [&](const auto& other) { return other.get() == &g; });
}

ncclResult_t add(operation o, ncclComm* comm, cudaStream_t stream) {
  const auto lock = cuda_double::lock();
  if (done_here.open_groups == 0) die("a send or a receive is in no group");
  if (!open_group) open_group = std::shared_ptr<group>(new group{.comm = comm, .stream = stream, .operations = {}});
  ncclResult_t result = begin_call(comm);
  if (open_group->comm != comm || open_group->stream != stream) die("a group uses several communicators or streams");
  if (result == ncclSuccess && !cuda_double::is_accessible(o.memory, o.bytes)) result = ncclInvalidArgument;
  if (o.peer < 0 || o.peer >= static_cast<int>(comm->all->ranks.size()) || o.peer == comm->rank)
    result = ncclInvalidArgument;
  if (result != ncclSuccess) {
    open_group->failed = true;
    return result;
  }
  o.captured = cuda_double::capture_of(stream).graph != nullptr;
  ++(o.sends ? done_here.sends : done_here.receives);
  if (!o.sends && done_here.receives == damaged_receive) o.damaged = damaged_byte;
  o.loses = !o.sends && done_here.receives == lost_receive;
  if (o.sends) done_here.bytes_sent += o.bytes;
  open_group->operations.push_back(o);
  return random_progress() % 2 == 0 ? ncclSuccess : ncclInProgress;
}
/// Ends the transfers of the communicator.
void abort(ncclComm* comm) {
  for (const auto& g : comm->groups) g->aborted = true;
  comm->groups.clear();
  comm->all->ranks[static_cast<std::size_t>(comm->rank)] = nullptr;
}
void free(ncclComm* comm) {
  abort(comm);
  std::erase(alive, comm);
  delete comm;
}

} // namespace

namespace nccl_double {

void reset(std::uint64_t seed) {
  const auto lock = cuda_double::lock();
  random_progress.seed(seed);
  refused = false;
  joining.clear();
}
void fail_at(std::uint64_t call) { call_that_fails = done_here.calls + call; }
void fail_later_at(std::uint64_t poll) { poll_that_fails = done_here.polls + poll; }
void damage(std::uint64_t transfer, std::size_t at) {
  damaged_receive = done_here.receives + transfer;
  damaged_byte = at;
}
void lose(std::uint64_t transfer) { lost_receive = done_here.receives + transfer; }
void refuse(bool on) {
  const auto lock = cuda_double::lock();
  refused = on;
}
counts of_this_thread() {
  const auto lock = cuda_double::lock(); // another thread may abort
  return done_here;
}
std::size_t communicators() {
  const auto lock = cuda_double::lock();
  return alive.size();
}

} // namespace nccl_double

extern "C" {

const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
  case ncclSuccess:
    return "no error";
  case ncclSystemError:
    return "a planned error of NCCL";
  case ncclRemoteError:
    return "a planned error of a transfer";
  case ncclInvalidUsage:
    return "invalid usage";
  default:
    return "invalid argument";
  }
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const auto lock = cuda_double::lock();
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  *id = {};
  ++ids;
  std::memcpy(id->internal, &ids, sizeof(ids));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const auto lock = cuda_double::lock();
  if (config->blocking != 0) die("a communicator would block");
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  auto& all = joining[number];
  if (!all) all = std::shared_ptr<clique>(new clique{std::vector<ncclComm*>(static_cast<std::size_t>(size))});
  ncclComm* const c = *comm = new ncclComm{.all = all, .rank = rank, .call = {}, .groups = {}, .did = &done_here};
  all->ranks[static_cast<std::size_t>(rank)] = c;
  alive.push_back(c);
  cuda_double::on_allocation(count_hazard);
  cuda_double::on_release(count_release);
  ++done_here.joins;
  if (++c->all->joined == size) joining.erase(number); // `all` refers to it no longer
  c->call = [c] { return c->all->joined == static_cast<int>(c->all->ranks.size()); };
  return c->state = ncclInProgress; // as NCCL does even if all ranks have joined
}
/// As NCCL, blocks until all ranks have joined.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t begun = ncclCommInitRankConfig(comm, size, id, rank, &config);
  if (begun != ncclInProgress) return begun;
  for (;; std::this_thread::yield()) {
    const auto lock = cuda_double::lock();
    if ((*comm)->call()) return (*comm)->state = ncclSuccess;
  }
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const auto lock = cuda_double::lock();
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  if (++done_here.polls == poll_that_fails) comm->state = ncclRemoteError;
  if (refused) {
    comm->state = ncclInvalidUsage;
    last_error = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000";
  }
  if (comm->state == ncclInProgress && random_progress() % 2 == 0 && comm->call()) comm->state = ncclSuccess;
  *state = comm->state;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const auto lock = cuda_double::lock();
  if (const ncclResult_t error = begin_call(comm); error != ncclSuccess) return error;
  return end_call(comm, [comm] {
    cuda_double::let_streams_go_on();
    return comm->finalizing = comm->groups.empty() && !comm->is_in_graphs();
  });
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const auto lock = cuda_double::lock();
  if (!comm->finalizing) die("a communicator is destroyed before it is finalized");
  count_release(); // NCCL frees device memory
  const ncclResult_t result = begin_call(comm);
  ++done_here.destroys; // even if it fails
  free(comm);
  return result;
}
/// As NCCL, ends the transfers, and then waits until no graph contains one.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const auto lock = cuda_double::lock();
    ++comm->did->aborts;
    comm->is_aborted = true;
    abort(comm);
  }
  for (;; std::this_thread::yield()) {
    const auto lock = cuda_double::lock();
    if (comm->is_in_graphs()) continue;
    free(comm);
    return ncclSuccess;
  }
}

ncclResult_t ncclGroupStart() {
  const auto lock = cuda_double::lock();
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  ++done_here.open_groups;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* from, std::size_t bytes, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({true, static_cast<char*>(const_cast<void*>(from)), bytes, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t bytes, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({false, static_cast<char*>(to), bytes, peer}, comm, stream);
}
ncclResult_t ncclGroupEnd();
/// Only in place.
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t bytes, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const auto lock = cuda_double::lock();
  char* const all = static_cast<char*>(to);
  const auto place = [&](int rank) { return all + static_cast<std::size_t>(rank) * bytes; };
  if (type != ncclUint8 || from != place(comm->rank)) die("an allgather not in place, or of other types than bytes");
  if (const ncclResult_t error = ncclGroupStart(); error != ncclSuccess) return error;
  ncclResult_t added = ncclSuccess;
  for (int peer = 0; peer < static_cast<int>(comm->all->ranks.size()); ++peer) {
    if (peer == comm->rank) continue;
    for (const bool sends : {true, false}) {
      const ncclResult_t one = add(
          {.sends = sends, .memory = place(sends ? comm->rank : peer), .bytes = bytes, .peer = peer, .gathers = true},
          comm, stream);
      if (one != ncclSuccess && one != ncclInProgress) added = one;
    }
  }
  const ncclResult_t ended = ncclGroupEnd();
  return added != ncclSuccess ? added : ended;
}
/// Only sums of floats.
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto lock = cuda_double::lock();
  if (type != ncclFloat || op != ncclSum) die("an allreduce is not a sum of floats");
  if (const ncclResult_t error = begin_call(comm); error != ncclSuccess) return error;
  const std::size_t bytes = count * sizeof(float);
  if (!cuda_double::is_accessible(from, bytes) || !cuda_double::is_accessible(to, bytes)) return ncclInvalidArgument;
  auto& all = comm->all->reductions;
  if (comm->reductions == all.size()) all.push_back(std::make_shared<reduction>(reduction{std::vector<float>(count)}));
  const std::shared_ptr<reduction> r = all[comm->reductions++];
  if (r->sum.size() != count) die("the ranks of an allreduce have different counts");
  const auto begin = [=, ranks = comm->all->ranks.size(), waits = std::make_shared<bool>(false)] {
    if (!std::exchange(*waits, true)) {
      std::vector<float> mine(count);
      cuda_double::copy(mine.data(), from, bytes);
      for (std::size_t i = 0; i < count; ++i) r->sum[i] += mine[i];
      ++r->begun;
    }
    return r->begun == ranks;
  };
  cuda_double::put_when(stream, begin, [=] { cuda_double::copy(to, r->sum.data(), bytes); });
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const auto lock = cuda_double::lock();
  if (--done_here.open_groups < 0) die("a group ends that has not begun");
  const std::shared_ptr<group> g = std::exchange(open_group, nullptr);
  if (const ncclResult_t error = begin_call(); error != ncclSuccess) return error;
  if (!g) return ncclSuccess;
  if (g->failed) return ncclInvalidArgument;
  ++done_here.groups;
  g->comm->groups.push_back(g);
  const cuda_double::capture within = cuda_double::capture_of(g->stream);
  if (within.is_global) die("a thread of NCCL works during a capture in the global mode");
  return end_call(g->comm, [g, within] {
    if (cuda_double::capture_of(g->stream).graph != within.graph) die("a capture began or ended before a call of NCCL");
    std::erase(g->comm->groups, g);
    // Each launch of a captured graph matches the operations anew.
    cuda_double::put_each(g->stream, [g, use = g->comm->use] {
      if (g->comm->is_aborted) die("a graph uses an aborted communicator");
      const auto run = std::make_shared<group>(*g);
      g->comm->groups.push_back(run);
      return cuda_double::step{[run] { end(*run); }, [run] { return match(*run); }};
    });
    return true;
  });
}
}
