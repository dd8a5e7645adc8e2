// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes an MPI library take pointers to device memory, on the double of the CUDA runtime: replaces the functions by
// which spar sends and receives, and copies such messages by way of the host.
#include "library_double.hpp"
#include "runtime_double.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace {

struct transfer {
  MPI_Request request;
  std::unique_ptr<std::byte[]> host;
  void* device; // of a receive; null for a send
  std::size_t bytes;
  std::size_t damaged = SIZE_MAX; // a byte of what is received, if it is damaged
};
std::vector<transfer> in_flight;

using start = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
int send(start begin, const void* from, int bytes, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  const auto size = static_cast<std::size_t>(bytes);
  if (!cuda_double::is_on_device(from)) return begin(from, bytes, MPI_BYTE, peer, tag, comm, request);
  auto host = std::make_unique<std::byte[]>(size);
  cuda_double::copy(host.get(), from, size);
  ++library_double::sent;
  const int code = begin(host.get(), bytes, MPI_BYTE, peer, tag, comm, request);
  in_flight.push_back({.request = *request, .host = std::move(host), .device = nullptr, .bytes = size});
  return code;
}

/// Called with the requests that have just ended.
void end(MPI_Request request) {
  std::erase_if(in_flight, [&](transfer& t) {
    if (t.request != request) return false;
    if (t.device == nullptr) return true;
    if (t.damaged != SIZE_MAX) t.host[std::min(t.damaged, t.bytes - 1)] ^= std::byte{0x80};
    cuda_double::copy(t.device, t.host.get(), t.bytes);
    ++library_double::received;
    return true;
  });
}

} // namespace

extern "C" {

int MPIX_Query_cuda_support() { return library_double::takes_device_memory ? 1 : 0; }

int MPI_Isend(const void* from, int count, MPI_Datatype, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  return send(&PMPI_Isend, from, count, peer, tag, comm, request);
}
int MPI_Issend(const void* from, int count, MPI_Datatype, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  return send(&PMPI_Issend, from, count, peer, tag, comm, request);
}
int MPI_Irecv(void* to, int count, MPI_Datatype, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  if (!cuda_double::is_on_device(to)) return PMPI_Irecv(to, count, MPI_BYTE, peer, tag, comm, request);
  auto host = std::make_unique<std::byte[]>(static_cast<std::size_t>(count));
  const library_double::fate its = library_double::next_receive();
  if (its.lost) { // the message arrives elsewhere, and the caller waits for one that nobody sends
    static std::vector<std::unique_ptr<std::byte[]>> elsewhere;
    PMPI_Irecv(elsewhere.emplace_back(std::move(host)).get(), count, MPI_BYTE, peer, tag, comm, request);
    PMPI_Request_free(request);
    return PMPI_Irecv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, request);
  }
  const int code = PMPI_Irecv(host.get(), count, MPI_BYTE, peer, tag, comm, request);
  in_flight.push_back({*request, std::move(host), to, static_cast<std::size_t>(count), its.damaged});
  return code;
}
int MPI_Test(MPI_Request* request, int* ended, MPI_Status* status) {
  const MPI_Request tested = *request;
  const int code = PMPI_Test(request, ended, status);
  if (*ended != 0) end(tested);
  return code;
}
int MPI_Testsome(int count, MPI_Request requests[], int* ended, int indices[], MPI_Status statuses[]) {
  const std::vector<MPI_Request> tested(requests, requests + count);
  const int code = PMPI_Testsome(count, requests, ended, indices, statuses);
  for (int i = 0; i < *ended; ++i) end(tested[static_cast<std::size_t>(indices[i])]);
  return code;
}
}
