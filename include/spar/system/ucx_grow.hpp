// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The member function `ucx::grow`, by which processes join the ranks of a communicator.
#pragma once

#include <spar/rendezvous/joiners.hpp>
#include <spar/system/collectives.hpp>
#include <spar/transport/ucx.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace spar::inline v0_1 {

namespace detail {

/// The broadcast of `grow`, whose name tells a rank that makes another call what its peer does.
struct grow_broadcast : binomial_broadcast {
  static constexpr std::string_view name = "grow";
};

/// Whether there is no process with this number, as far as the system tells.
inline bool process_has_ended(int process) noexcept {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0) return errno == ESRCH;
  pollfd end{descriptor, POLLIN, 0};
  const bool has_ended = poll(&end, 1, 0) > 0;
  close(descriptor);
  return has_ended;
}

inline ucx_member read_joiner(std::string_view text) { return ucx_member::read("a process that joins", text); }

/// Waits for a rank until the deadline of the communicator, unless the communicator is dead or the rank has left; and
/// for a joiner for some seconds, unless its process on this host has ended.
class grow_patience final : public patience {
 public:
  grow_patience(ucx_port& net, const std::vector<joiner>& joiners) : net_(&net), begin_(net.now()) {
    for (const joiner& one : joiners) joiners_.push_back(read_joiner(one.text));
  }
  double left(rank_t peer) override {
    const rank_lock lock(net_->shared());
    net_->progress(false); // learns who has left
    const double waited = net_->now() - begin_;
    if (peer >= net_->size()) return of_joiner(joiners_[static_cast<std::size_t>(peer - net_->size())]) - waited;
    return net_->dead() || net_->has_left(peer) ? 0 : net_->deadline() - waited;
  }

 private:
  [[nodiscard]] double of_joiner(const ucx_member& its) const {
    constexpr double longest = 5;
    return its.host == host_ && process_has_ended(its.process) ? 0 : std::min(longest, net_->deadline() / 2);
  }

  ucx_port* net_;
  double begin_;
  std::vector<ucx_member> joiners_;
  std::string host_ = ucx_host();
};

} // namespace detail

inline std::unique_ptr<ucx> ucx::grow() {
  {
    const detail::rank_lock lock(port().shared());
    port().check_open();
    detail::refuse_coroutine(port(), "grow");
  }
  rendezvous_store& store = meeting().meeting();
  const std::string prefix = growth_prefix();
  try {
    std::vector<detail::joiner> joiners;
    if (rank() == 0) {
      joiners = detail::take_joiners(store, prefix, next_place_,
                                     [](std::string_view text) { (void)detail::read_joiner(text); });
    }
    std::array<std::uint64_t, 1> count{joiners.size()};
    broadcast(port(), std::span(count), 0, detail::grow_broadcast{});
    if (count[0] == 0) return nullptr;
    ++growths_;
    detail::ucx_worker worker = port().another_worker();
    const std::string self = detail::ucx_member::self(worker.address(), 0, 0).text();
    detail::grow_patience with(port(), joiners);
    const detail::growth all = rank() == 0
                                   ? detail::lead_growth(store, prefix, size(), self, heritage().text(), joiners, with)
                                   : detail::follow_growth(store, prefix, rank(), self, with);
    if (all.all.size() <= static_cast<std::size_t>(size())) return nullptr; // no joiner is left
    detail::ucx_heritage given = detail::ucx_heritage::read(all.settings);
    given.next_place = all.next_place;
    return std::unique_ptr<ucx>(
        new ucx(detail::ucx_founders::grown(meeting(), std::move(worker), all, rank()), port().options(), given));
  } catch (...) { // the others must not wait for this rank
    abort(port(), detail::message_of(std::current_exception()).view());
    throw;
  }
}

} // namespace spar::inline v0_1
