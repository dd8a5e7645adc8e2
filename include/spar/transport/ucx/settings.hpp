// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the variables of UCX say about the ways of messages, as far as spar must know.
#pragma once

#include <spar/core/util/bounded_text.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include <unistd.h>

namespace spar::inline v0_1::detail {

/// What `variable` says, for errors.
inline std::string ucx_setting(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? sentence(variable, " is not set") : sentence(variable, " is \"", value, "\"");
}

/// Whether the list in `variable` has a name for which `is_one(name, excludes)` is true or, if the list begins with ^
/// and so `excludes` its names, has none. True if the variable is not set.
template <class IsOne>
bool ucx_selects(const char* variable, IsOne is_one) {
  const char* const value = std::getenv(variable);
  if (value == nullptr) return true;
  std::string_view rest(value);
  const bool excludes = rest.starts_with('^');
  if (excludes) rest.remove_prefix(1);
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    if (is_one(name, excludes)) return !excludes;
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  return excludes;
}

/// Whether UCX may use shared memory between processes of a host, according to the variable UCX_TLS.
inline bool ucx_shares_memory() {
  return ucx_selects("UCX_TLS", [](std::string_view name, bool excludes) {
    for (const std::string_view all : {"all", "sm", "shm", "mm"}) {
      if (name == all) return true;
    }
    for (const std::string_view one : {"posix", "sysv", "xpmem"}) {
      if (name == one) return !excludes;
    }
    return false;
  });
}

/// Whether UCX uses TCP, according to the variables UCX_TLS and UCX_NET_DEVICES, which may name RDMA devices alone.
inline bool ucx_uses_tcp() {
  return ucx_selects("UCX_TLS", [](std::string_view name, bool) { return name == "all" || name == "tcp"; }) &&
         ucx_selects("UCX_NET_DEVICES", [](std::string_view name, bool excludes) {
           return !excludes && (name == "all" || access(sentence("/sys/class/net/", name).c_str(), F_OK) == 0);
         });
}

/// Whether long payloads to other hosts are copied on their way, as short ones are: over TCP, the notice of a payload
/// that stays at the sender would wait behind the payloads before it, and the link would be idle until the answer. A
/// host whose system has RDMA, or the variable UCX_RNDV_THRESH, leaves the choice to UCX.
inline bool ucx_copies_between_hosts() noexcept {
  return access("/sys/class/infiniband", F_OK) != 0 && std::getenv("UCX_RNDV_THRESH") == nullptr;
}

} // namespace spar::inline v0_1::detail
