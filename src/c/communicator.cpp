// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicators of the C interface over threads, and the functions of all communicators.
#include "communicator.hpp"

#include "arguments.hpp"

#include <spar/core/util/checked_cast.hpp>
#include <spar/system/collectives.hpp>
#include <spar/transport/any.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar::inline v0_1::c {

namespace {

/// Frees the communicator `comm` at its end, unless the program has done so.
struct freed_at_end {
  explicit freed_at_end(spar_comm handle) noexcept : comm(handle) {}
  freed_at_end(const freed_at_end&) = delete;
  ~freed_at_end() {
    if (is_handle(kind::communicator, reinterpret_cast<std::uintptr_t>(comm)))
      remove_handle(kind::communicator, reinterpret_cast<std::uintptr_t>(comm), "comm");
  }
  spar_comm comm;
};

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar;
using namespace spar::c;

extern "C" {

int spar_comm_from_threads(int ranks, spar_comm comms[]) {
  return guarded(__func__, nullptr, [&] {
    if (ranks < 1) raise<invalid_argument>({"'ranks' is ", ranks, "; expected at least 1"});
    check_pointer(comms, "comms");
    std::fill_n(comms, ranks, nullptr);
    any_group group = any_group::threads(ranks);
    try {
      for (rank_t r = 0; r < ranks; ++r)
        comms[r] = handle_for<spar_comm>(std::make_shared<communicator>(std::move(group.rank(r))));
    } catch (...) {
      for (rank_t r = 0; r < ranks; ++r) (void)spar_comm_free(&comms[r]);
      throw;
    }
  });
}

int spar_run_threads(int ranks, int (*program)(spar_comm comm, void* context), void* context) {
  return guarded(__func__, nullptr, [&] {
    if (ranks < 1) raise<invalid_argument>({"'ranks' is ", ranks, "; expected at least 1"});
    check_pointer(program, "program");
    any_group::threads(ranks).run([&](any_transport& net) {
      const auto on = std::make_shared<communicator>(std::move(net));
      const freed_at_end its(handle_for<spar_comm>(on));
      const int status = program(its.comm, context);
      if (status == SPAR_SUCCESS) return;
      const std::string why = sentence("the program of rank ", on->net().rank(), " returned ", status, ": ", on->text);
      on->net().abort(why); // before the other ranks learn that this one has left
      throw program_failed(status, why.c_str());
    });
  });
}

int spar_comm_split(spar_comm comm, int colour, int key, spar_comm* part) {
  return guarded(__func__, comm, [&] {
    const auto on = open_communicator(comm);
    begin_output(part, "part");
    if (colour < 0) raise<invalid_argument>({"'colour' is ", colour, "; expected at least 0"});
    const auto own = static_cast<std::size_t>(on->net().rank());
    struct member {
      std::int64_t colour, key, host;
    };
    std::vector<member> members(static_cast<std::size_t>(on->net().size()));
    members[own] = {colour, key, on->hosts()[own]};
    // Not over the part: a rank that already has its part may fail, and would end this call of another rank.
    allgather(on->net(), std::span(&members.front().colour, 3 * members.size()));
    auto made = std::make_shared<communicator>(on->net().split(colour, key), on->check_open);
    std::erase_if(members, [colour](const member& m) { return m.colour != colour; });
    std::ranges::stable_sort(members, {}, &member::key);
    std::vector<rank_t> hosts;
    for (const member& m : members) hosts.push_back(static_cast<rank_t>(m.host));
    made->set_hosts(std::move(hosts));
    *part = handle_for<spar_comm>(std::move(made));
  });
}

int spar_comm_shrink(spar_comm comm, spar_comm* rest) {
  return guarded(__func__, comm, [&] {
    const auto on = open_communicator(comm);
    begin_output(rest, "rest");
    *rest = handle_for<spar_comm>(std::make_shared<communicator>(on->net().shrink(), on->check_open));
  });
}

int spar_comm_grow(spar_comm comm, spar_comm* wider) {
  return guarded(__func__, comm, [&] {
    const auto on = open_communicator(comm);
    begin_output(wider, "wider");
    if (any_transport net = on->net().grow())
      *wider = handle_for<spar_comm>(std::make_shared<communicator>(std::move(net), on->check_open));
  });
}

int spar_comm_rank(spar_comm comm, int* rank) {
  return guarded(__func__, comm, [&] {
    check_pointer(rank, "rank");
    *rank = open_communicator(comm)->net().rank();
  });
}

int spar_comm_size(spar_comm comm, int* size) {
  return guarded(__func__, comm, [&] {
    check_pointer(size, "size");
    *size = open_communicator(comm)->net().size();
  });
}

int spar_comm_set_deadline(spar_comm comm, double seconds) {
  return guarded(__func__, comm, [&] { open_communicator(comm)->net().set_deadline(seconds); });
}

int spar_comm_set_hosts(spar_comm comm, const int hosts[]) {
  return guarded(__func__, comm, [&] {
    const auto on = open_communicator(comm);
    check_pointer(hosts, "hosts");
    on->set_hosts(std::vector<rank_t>(hosts, hosts + on->net().size()));
  });
}

int spar_comm_set_network(spar_comm comm, double message_seconds, double byte_seconds) {
  return guarded(__func__, comm,
                 [&] { open_communicator(comm)->net().set_network({.alpha = message_seconds, .beta = byte_seconds}); });
}

int spar_comm_last_call(spar_comm comm, spar_statistics* statistics) {
  return guarded(__func__, comm, [&] {
    check_pointer(statistics, "statistics");
    const auto on = open_communicator(comm);
    const detail::rank_lock lock(on->net().port().node().shared()); // a progress thread may end a round
    const spar::statistics& last = on->net().last_call();
    *statistics = {.messages_sent = signed_of(last.messages_sent),
                   .messages_received = signed_of(last.messages_received),
                   .bytes_sent = signed_of(last.bytes_sent),
                   .bytes_received = signed_of(last.bytes_received),
                   .plain_bytes_sent = signed_of(last.plain_bytes_sent),
                   .codec_seconds = last.codec_seconds,
                   .seconds = last.seconds};
  });
}

int spar_comm_progress(spar_comm comm) {
  return guarded(__func__, comm, [&] { open_communicator(comm)->net().progress(false); });
}

int spar_comm_set_progress_thread(spar_comm comm, int on) {
  return guarded(__func__, comm, [&] { open_communicator(comm)->set_progress_thread(on != 0); });
}

int spar_comm_abort(spar_comm comm, const char* reason) {
  return guarded(__func__, comm, [&] {
    check_pointer(reason, "reason");
    spar::abort(open_communicator(comm)->net(), reason);
  });
}

int spar_comm_free(spar_comm* comm) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(comm, "comm");
    if (*comm == nullptr) return;
    const auto freed = take<communicator>(comm, "comm");
    freed->set_progress_thread(false);
    detail::any_access::rank(freed->net())->depart();
  });
}

} // extern "C"
