// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The file descriptors on which a rank sleeps: that of its UCX worker, one by which another thread wakes it, and one
// for each process of another rank on this host.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace spar::inline v0_1::detail {

class ucx_descriptors {
 public:
  /// `worker` is the descriptor of the UCX worker, which its owner closes. Throws `transport_error` if the system has
  /// no more descriptors.
  explicit ucx_descriptors(int worker)
      : all_(epoll_create1(EPOLL_CLOEXEC)), ended_(epoll_create1(EPOLL_CLOEXEC)),
        bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (all_ < 0 || ended_ < 0 || bell_ < 0 || !add(all_, worker, of_worker) || !add(all_, bell_, of_bell) ||
        !add(all_, ended_, of_processes)) {
      const int code = errno;
      close_all();
      raise<transport_error>({"cannot wait for messages: ", std::strerror(code)});
    }
  }
  ucx_descriptors(const ucx_descriptors&) = delete;
  ~ucx_descriptors() { close_all(); }

  /// Watches the process number `process` of `rank`. Returns false if there is no such process. A system that cannot
  /// watch processes, or has no more descriptors, watches none: other ranks then learn of a death by a deadline.
  bool watch(rank_t rank, int process) {
    processes_.reserve(processes_.size() + 1);
    const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0)); // closed on exec
    if (descriptor < 0) return errno != ESRCH;
    processes_.push_back({rank, descriptor});
    add(ended_, descriptor, static_cast<std::uint64_t>(rank));
    return true;
  }

  /// Waits until one of the descriptors is readable, at most for `seconds`. Returns whether a process has ended.
  bool wait(double seconds) noexcept {
    bool has_ended = false;
    std::array<epoll_event, 3> events{};
    const int count =
        epoll_wait(all_, events.data(), 3, seconds <= 0 ? 0 : static_cast<int>(std::min(seconds * 1e3 + 1, 1e6)));
    for (int i = 0; i < count; ++i) {
      const std::uint64_t which = events[static_cast<std::size_t>(i)].data.u64;
      has_ended = has_ended || which == of_processes;
      if (which != of_bell) continue;
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t bytes = read(bell_, &rings, sizeof(rings));
    }
    return has_ended;
  }
  /// Ends the present `wait` of another thread, or the next one.
  void wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t bytes = write(bell_, &one, sizeof(one));
  }

  /// Calls `ended(rank)` for each process that has ended, and watches it no longer.
  template <class Ended>
  void take_ended(Ended ended) noexcept {
    if (processes_.empty()) return;
    std::array<epoll_event, 8> events{};
    const int count = epoll_wait(ended_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const auto rank = static_cast<rank_t>(events[static_cast<std::size_t>(i)].data.u64);
      forget(rank);
      ended(rank);
    }
  }

 private:
  static constexpr std::uint64_t of_worker = 0, of_bell = 1, of_processes = 2;
  struct watched {
    rank_t rank;
    int descriptor;
  };

  static bool add(int to, int descriptor, std::uint64_t which) noexcept {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = which;
    return epoll_ctl(to, EPOLL_CTL_ADD, descriptor, &event) == 0;
  }
  void forget(rank_t rank) noexcept {
    for (watched& one : processes_) {
      if (one.rank != rank) continue;
      // `close` would remove it from `ended_`, but not if a process that was forked has a copy.
      epoll_ctl(ended_, EPOLL_CTL_DEL, one.descriptor, nullptr);
      close(one.descriptor);
      one = processes_.back();
      return processes_.pop_back();
    }
  }
  void close_all() noexcept {
    for (const watched& one : processes_) close(one.descriptor);
    for (const int own : {bell_, ended_, all_}) {
      if (own >= 0) close(own);
    }
  }

  int all_;   // waits for any of the descriptors
  int ended_; // waits for the end of a process
  int bell_;
  std::vector<watched> processes_;
};

} // namespace spar::inline v0_1::detail
