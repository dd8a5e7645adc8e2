// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Errors of the C interface: exceptions become codes and texts.
#include "communicator.hpp"

#include <spar/core/error.hpp>
#include <spar/version.hpp>

#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>

namespace spar::inline v0_1::c {

namespace {

thread_local char text_of_thread[communicator::longest_text] = "";

} // namespace

std::shared_ptr<communicator> open_communicator(spar_comm comm) {
  auto found = shared_from<communicator>(comm, "comm");
  found->check_open();
  return found;
}

int failed(const char* function, spar_comm comm) noexcept {
  const auto report = [&](int status, const char* why) {
    std::snprintf(text_of_thread, sizeof text_of_thread, "%s: %s", function, why);
    const auto handle = reinterpret_cast<std::uintptr_t>(comm);
    if (is_handle(kind::communicator, handle))
      std::memcpy(get<communicator>(comm, "comm").text, text_of_thread, sizeof text_of_thread);
    return status;
  };
  try {
    throw;
  } catch (const program_failed& e) {
    return report(e.status, e.what());
  } catch (const invalid_argument& e) {
    return report(SPAR_ERR_INVALID_ARGUMENT, e.what());
  } catch (const mismatch& e) {
    return report(SPAR_ERR_MISMATCH, e.what());
  } catch (const corrupt_message& e) {
    return report(SPAR_ERR_CORRUPT_MESSAGE, e.what());
  } catch (const peer_failed& e) {
    return report(SPAR_ERR_PEER_FAILED, e.what());
  } catch (const timeout& e) {
    return report(SPAR_ERR_TIMEOUT, e.what());
  } catch (const deadlock& e) {
    return report(SPAR_ERR_DEADLOCK, e.what());
  } catch (const transport_error& e) {
    return report(SPAR_ERR_TRANSPORT, e.what());
  } catch (const assertion_failed& e) {
    return report(SPAR_ERR_ASSERTION, e.what());
  } catch (const std::bad_alloc&) {
    return report(SPAR_ERR_NO_MEMORY, "memory could not be allocated");
  } catch (const std::exception& e) {
    return report(SPAR_ERR_OTHER, e.what());
  } catch (...) {
    return report(SPAR_ERR_OTHER, "an exception of an unknown type");
  }
}

} // namespace spar::inline v0_1::c

using namespace spar::c;

extern "C" {

const char* spar_version(void) { return spar::version.data(); }

const char* spar_error_name(int status) {
  constexpr const char* names[] = {
      "SPAR_SUCCESS",         "SPAR_ERR_INVALID_ARGUMENT", "SPAR_ERR_MISMATCH", "SPAR_ERR_CORRUPT_MESSAGE",
      "SPAR_ERR_PEER_FAILED", "SPAR_ERR_TIMEOUT",          "SPAR_ERR_DEADLOCK", "SPAR_ERR_TRANSPORT",
      "SPAR_ERR_ASSERTION",   "SPAR_ERR_NO_MEMORY",        "SPAR_ERR_OTHER"};
  return status >= 0 && static_cast<std::size_t>(status) < std::size(names) ? names[status] : "unknown";
}

const char* spar_error_text(spar_comm comm) {
  return is_handle(kind::communicator, reinterpret_cast<std::uintptr_t>(comm)) ? get<communicator>(comm, "comm").text
                                                                               : text_of_thread;
}

} // extern "C"
