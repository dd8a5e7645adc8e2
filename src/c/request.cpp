// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of the C interface for non-blocking calls.
#include "request.hpp"

using namespace spar;
using namespace spar::c;

namespace {

/// The communicator of `request`, to which errors are reported; NULL if the handle is invalid.
spar_comm communicator_of(spar_request request) noexcept {
  if (!is_handle(kind::request, reinterpret_cast<std::uintptr_t>(request))) return nullptr;
  return get<c::request>(request, "request").comm();
}

/// Writes whether the call of `request` has ended, as `has_ended(call)` says, to `done`.
template <class HasEnded>
void ask(spar_request request, int* done, const HasEnded& has_ended) {
  check_pointer(done, "done");
  *done = 0;
  auto& call = get<c::request>(request, "request");
  call.on().check_open();
  *done = has_ended(call) ? 1 : 0;
}

} // namespace

extern "C" {

int spar_test(spar_request request, int* done) {
  return guarded(__func__, communicator_of(request),
                 [&] { ask(request, done, [](c::request& call) { return call.done(); }); });
}

int spar_wait_for(spar_request request, double seconds, int* done) {
  return guarded(__func__, communicator_of(request),
                 [&] { ask(request, done, [&](c::request& call) { return call.wait_for(seconds); }); });
}

int spar_wait(spar_request* request) {
  return guarded(__func__, request == nullptr ? nullptr : communicator_of(*request), [&] {
    check_pointer(request, "request");
    get<c::request>(*request, "request").on().check_open();
    take<c::request>(request, "request")->wait();
  });
}

int spar_cancel(spar_request request) {
  return guarded(__func__, communicator_of(request), [&] {
    auto& call = get<c::request>(request, "request");
    call.on().check_open();
    call.cancel();
  });
}

int spar_request_free(spar_request* request) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(request, "request");
    if (*request == nullptr) return;
    get<c::request>(*request, "request").on().check_open();
    take<c::request>(request, "request");
  });
}

} // extern "C"
