// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes UCX take pointers to device memory, on the double of the CUDA runtime: replaces the functions by which spar
// sends and receives, and copies such messages by way of the host. Ends the program if the parameters of a transfer
// name another type of memory than that of its payload, or if a payload in device memory has several pieces or is not
// sent by rendezvous.
#include "library_double.hpp"
#include "runtime_double.hpp"

#include <ucp/api/ucp.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

/// The function of UCX that this program replaces.
template <class Function>
Function* of_ucx(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "double of UCX: %s\n", what);
  std::abort();
}

/// A transfer from or to device memory.
struct transfer {
  std::unique_ptr<std::byte[]> host;
  std::size_t bytes = 0;
  void* device = nullptr;         // of a receive
  std::size_t damaged = SIZE_MAX; // a byte of what is received, if it is damaged
  bool lost = false;
  ucp_request_param_t how{}; // of the program

  void end() {
    if (device == nullptr) return;
    if (damaged != SIZE_MAX) host[std::min(damaged, bytes - 1)] ^= std::byte{0x80};
    cuda_double::copy(device, host.get(), bytes);
    ++library_double::received;
  }
};

/// The place of the first byte of a payload.
const void* place_of(const void* buffer, std::size_t count, const ucp_request_param_t& how) {
  const bool in_pieces = (how.op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0 && count > 0;
  return in_pieces ? static_cast<const ucp_dt_iov_t*>(buffer)->buffer : buffer;
}
/// Whether a payload is in device memory.
bool is_on_device(const void* buffer, std::size_t count, const ucp_request_param_t& how) {
  const bool there = count > 0 && cuda_double::is_on_device(place_of(buffer, count, how));
  require((how.op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) != 0, "a transfer names no type of memory");
  require(how.memory_type == (there ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST), "the type of memory is wrong");
  require(!there || (how.op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) == 0, "a payload on a device has several pieces");
  require(!there || library_double::takes_device_memory, "a payload is on a device, which UCX cannot take");
  return there;
}
/// The parameters of `how` for a payload on the host, with another callback.
ucp_request_param_t on_host(const ucp_request_param_t& how, transfer* record) {
  ucp_request_param_t same = how;
  same.memory_type = UCS_MEMORY_TYPE_HOST;
  same.user_data = record;
  return same;
}

void on_sent(void* request, ucs_status_t status, void* record) {
  const std::unique_ptr<transfer> t(static_cast<transfer*>(record));
  t->how.cb.send(request, status, t->how.user_data);
}
void on_received(void* request, ucs_status_t status, std::size_t bytes, void* record) {
  const std::unique_ptr<transfer> t(static_cast<transfer*>(record));
  if (t->lost) return ucp_request_free(request);
  if (status == UCS_OK) t->end();
  t->how.cb.recv_am(request, status, bytes, t->how.user_data);
}

} // namespace

extern "C" {

/// The first version of UCX that is given device memory.
void ucp_get_version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = 1;
  *minor = library_double::takes_device_memory ? 16 : 13;
  *release = 0;
}

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t* own) {
  static auto* const query = of_ucx<decltype(ucp_context_query)>("ucp_context_query");
  const ucs_status_t status = query(context, own);
  if (library_double::takes_device_memory) own->memory_types |= std::uint64_t{1} << UCS_MEMORY_TYPE_CUDA;
  return status;
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void* head, std::size_t head_bytes,
                                 const void* from, std::size_t count, const ucp_request_param_t* how) {
  static auto* const send = of_ucx<decltype(ucp_am_send_nbx)>("ucp_am_send_nbx");
  if (!is_on_device(from, count, *how)) return send(endpoint, id, head, head_bytes, from, count, how);
  require((how->flags & UCP_AM_SEND_FLAG_RNDV) != 0, "a payload on a device is not sent by rendezvous");
  auto t = std::make_unique<transfer>();
  t->host = std::make_unique<std::byte[]>(count);
  t->how = *how;
  cuda_double::copy(t->host.get(), from, count);
  ++library_double::sent;
  ucp_request_param_t same = on_host(*how, t.get());
  same.cb.send = &on_sent;
  void* const request = send(endpoint, id, head, head_bytes, t->host.get(), count, &same);
  if (UCS_PTR_IS_PTR(request)) static_cast<void>(t.release()); // UCX calls `on_sent` later
  return request;
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void* descriptor, void* to, std::size_t count,
                                      const ucp_request_param_t* how) {
  static auto* const receive = of_ucx<decltype(ucp_am_recv_data_nbx)>("ucp_am_recv_data_nbx");
  if (!is_on_device(to, count, *how)) return receive(worker, descriptor, to, count, how);
  auto* const t = new transfer{.host = std::make_unique<std::byte[]>(count), .bytes = count, .device = to, .how = *how};
  const library_double::fate its = library_double::next_receive();
  t->damaged = its.damaged;
  t->lost = its.lost;
  ucp_request_param_t same = on_host(*how, t);
  same.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL; // so that a lost message has a request
  same.cb.recv_am = &on_received;
  void* const request = receive(worker, descriptor, t->host.get(), count, &same);
  if (!UCS_PTR_IS_PTR(request)) delete t;
  return request;
}
}
