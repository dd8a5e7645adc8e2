// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every function of a rendezvous and its stores.
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/rendezvous/tcp_store.hpp>

#include <cstddef>
#include <memory>

namespace every_member {

std::size_t meet(const spar::rendezvous_options& options) {
  const spar::rendezvous all = spar::rendezvous::from_environment(options);
  const spar::rendezvous group = all.among("a", all.rank(), all.size());
  all.meeting().put(group.key("b"), group.network_interface());
  group.refuse_exchange("a reason");
  return group.exchange("text").size() + static_cast<std::size_t>(all.deadline());
}

int serve(const spar::rendezvous_options& options) {
  spar::memory_store memory;
  spar::tcp_store_server server(options);
  spar::tcp_store client(options);
  for (spar::rendezvous_store* const store :
       {static_cast<spar::rendezvous_store*>(&memory), static_cast<spar::rendezvous_store*>(&server),
        static_cast<spar::rendezvous_store*>(&client)}) {
    if (store->put("a", "b") != "b" || !store->wait("a", 1)) return 0;
  }
  return memory.find("a") == nullptr || !server.refusals().empty() ? 0 : server.port();
}

} // namespace every_member
