// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicators of the C interface over threads, and what all communicators have in common.
#include "communicator.hpp"

#include "arguments.hpp"

#include <spar/core/util/checked_cast.hpp>
#include <spar/system/collectives.hpp>
#include <spar/transport/threads.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace spar::inline v0_1::c {

namespace {

/// A group of threads, and the groups into which its ranks are dividing it.
struct thread_ranks {
  explicit thread_ranks(rank_t ranks) : group(ranks) {}

  /// Returns the group of the ranks that make the division `number` with the same `colour`, which are `ranks` ranks.
  std::shared_ptr<thread_ranks> part(std::uint64_t number, int colour, rank_t ranks) {
    const std::lock_guard lock(mutex);
    auto& found = parts[{number, colour}];
    if (found.first == nullptr) found.first = std::make_shared<thread_ranks>(ranks);
    const std::shared_ptr<thread_ranks> own = found.first;
    if (++found.second == ranks) parts.erase({number, colour});
    return own;
  }

  thread_group group;
  std::mutex mutex;
  std::map<std::pair<std::uint64_t, int>, std::pair<std::shared_ptr<thread_ranks>, rank_t>> parts;
};

class threads_communicator final : public communicator {
 public:
  threads_communicator(std::shared_ptr<thread_ranks> ranks, rank_t rank, std::vector<rank_t> hosts)
      : ranks_(std::move(ranks)), net_(ranks_->group.rank(rank)) {
    set_hosts(std::move(hosts));
  }
  /// A rank of threads that share a host.
  threads_communicator(const std::shared_ptr<thread_ranks>& ranks, rank_t rank)
      : threads_communicator(ranks, rank, std::vector<rank_t>(static_cast<std::size_t>(ranks->group.size()))) {}

  any_transport& net() noexcept override { return net_; }
  std::shared_ptr<communicator> split(int colour, int key) override {
    const rank_t size = net_.size();
    std::vector<std::array<std::int64_t, 2>> all(static_cast<std::size_t>(size));
    all[static_cast<std::size_t>(net_.rank())] = {colour, key};
    allgather(net_, std::span(all.front().data(), 2 * all.size()));
    std::vector<std::pair<std::int64_t, rank_t>> members; // the ranks of the part in their order
    for (rank_t r = 0; r < size; ++r) {
      const auto& [theirs, its_key] = all[static_cast<std::size_t>(r)];
      if (theirs == colour) members.emplace_back(its_key, r);
    }
    std::sort(members.begin(), members.end());
    const auto self = std::find(members.begin(), members.end(), std::pair(std::int64_t{key}, net_.rank()));
    std::vector<rank_t> part_hosts;
    for (const auto& [its_key, r] : members) part_hosts.push_back(hosts()[static_cast<std::size_t>(r)]);
    return std::make_shared<threads_communicator>(
        ranks_->part(divisions_++, colour, static_cast<rank_t>(members.size())),
        static_cast<rank_t>(self - members.begin()), std::move(part_hosts));
  }
  void leave() noexcept override {
    if (!net_.port().node().busy()) ranks_->group.rank(net_.rank()).port().leave();
  }

 private:
  std::shared_ptr<thread_ranks> ranks_;
  any_transport net_;
  std::uint64_t divisions_ = 0;
};

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
    const auto group = std::make_shared<thread_ranks>(ranks);
    try {
      for (rank_t r = 0; r < ranks; ++r)
        comms[r] = handle_for<spar_comm>(std::make_shared<threads_communicator>(group, r));
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
    const auto group = std::make_shared<thread_ranks>(ranks);
    group->group.run([&](threads& net) {
      const freed_at_end its(handle_for<spar_comm>(std::make_shared<threads_communicator>(group, net.rank())));
      const int status = program(its.comm, context);
      if (status != SPAR_SUCCESS)
        throw program_failed(
            status, sentence("the program of rank ", net.rank(), " returned ", status, ": ", spar_error_text(its.comm))
                        .c_str());
    });
  });
}

int spar_comm_split(spar_comm comm, int colour, int key, spar_comm* part) {
  return guarded(__func__, comm, [&] {
    const auto on = open_communicator(comm);
    begin_output(part, "part");
    if (colour < 0) raise<invalid_argument>({"'colour' is ", colour, "; expected at least 0"});
    *part = handle_for<spar_comm>(on->split(colour, key));
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

int spar_comm_last_call(spar_comm comm, spar_statistics* statistics) {
  return guarded(__func__, comm, [&] {
    check_pointer(statistics, "statistics");
    const spar::statistics& last = open_communicator(comm)->net().last_call();
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

int spar_comm_abort(spar_comm comm, const char* reason) {
  return guarded(__func__, comm, [&] {
    check_pointer(reason, "reason");
    spar::abort(open_communicator(comm)->net(), reason);
  });
}

int spar_comm_free(spar_comm* comm) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(comm, "comm");
    if (*comm != nullptr) take<communicator>(comm, "comm")->leave();
  });
}

} // extern "C"
