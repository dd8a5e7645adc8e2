// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Helpers of the tests of the rendezvous: processes, ports, environments, and what a process has open.
#pragma once

#include "support/message_of.hpp"

#include <spar/rendezvous/tcp/socket.hpp>
#include <spar/rendezvous/tcp_store.hpp>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

inline std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}
inline std::size_t open_descriptors() { return entries_of("/proc/self/fd"); }
inline std::size_t running_threads() { return entries_of("/proc/self/task"); }

inline void rest(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Measures seconds.
class stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A port of this machine that no other program gets while the object lives, and on which a program can listen.
class reserved_port {
 public:
  reserved_port() : socket_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1, off = 0;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0) std::abort();
  }
  [[nodiscard]] int get() const { return spar::detail::port_number(socket_); }

 private:
  spar::detail::descriptor socket_;
};

/// Options with short times for a store on this machine.
inline spar::rendezvous_options here(int port, double deadline = 20) {
  spar::rendezvous_options options;
  options.address = "127.0.0.1";
  options.port = port;
  options.job = "test";
  options.deadline = deadline;
  return options;
}

/// A connection to the port without a greeting.
inline spar::detail::descriptor stranger_at(int port) {
  return spar::detail::connect_to("127.0.0.1", port, "", spar::detail::monotonic_seconds() + 10);
}

inline void send_all(const spar::detail::descriptor& socket, const std::string& bytes) {
  if (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
    std::abort();
}

/// What arrives until the other side closes the connection; "still open" is appended if it does not within the seconds.
inline std::string everything_from(const spar::detail::descriptor& socket, double seconds) {
  const double until = spar::detail::monotonic_seconds() + seconds;
  std::string all;
  char bytes[4096];
  while (spar::detail::wait_until_ready(socket, false, until)) {
    const ssize_t taken = ::recv(socket.get(), bytes, sizeof(bytes), 0);
    if (taken <= 0) return all;
    all.append(bytes, static_cast<std::size_t>(taken));
  }
  return all + "still open";
}

/// A process that runs `program` and ends with the status that it returns, or 99 if it throws.
class process {
 public:
  template <class Program>
  explicit process(Program program) : id_(::fork()) {
    if (id_ != 0) return;
    try {
      ::_exit(program());
    } catch (const std::exception& e) {
      [[maybe_unused]] const auto written = ::write(2, e.what(), std::char_traits<char>::length(e.what()));
      ::_exit(99);
    }
  }
  process(process&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  ~process() {
    if (id_ > 0) status();
  }

  /// Waits for the end of the process. Returns its status, or the negative number of the signal that ended it.
  int status() {
    int status = 0;
    while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  [[nodiscard]] pid_t id() const { return id_; }

 private:
  pid_t id_;
};

/// Sets variables of the environment, of which no other that the rendezvous reads is set, and restores all of them.
class environment {
 public:
  explicit environment(const std::vector<std::pair<std::string, std::string>>& variables) {
    for (const char* const name : {"RANK",
                                   "WORLD_SIZE",
                                   "LOCAL_WORLD_SIZE",
                                   "MASTER_ADDR",
                                   "MASTER_PORT",
                                   "OMPI_COMM_WORLD_RANK",
                                   "OMPI_COMM_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_LOCAL_SIZE",
                                   "PMI_RANK",
                                   "PMI_SIZE",
                                   "MPI_LOCALNRANKS",
                                   "PMI_JOBID",
                                   "PMIX_NAMESPACE",
                                   "SLURM_PROCID",
                                   "SLURM_NTASKS",
                                   "SLURM_STEP_NUM_TASKS",
                                   "SLURM_STEP_NUM_NODES",
                                   "SLURM_JOB_NUM_NODES",
                                   "SLURM_STEP_NODELIST",
                                   "SLURM_JOB_NODELIST",
                                   "SLURM_JOB_ID",
                                   "SLURM_STEP_ID",
                                   "TORCHELASTIC_RUN_ID",
                                   "SPAR_ADDR",
                                   "SPAR_PORT",
                                   "SPAR_JOB",
                                   "SPAR_SECRET",
                                   "SPAR_INTERFACE",
                                   "SPAR_DEADLINE"}) {
      if (const char* const value = std::getenv(name)) before_.emplace_back(name, value);
      names_.emplace_back(name);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  environment(const environment&) = delete;
  ~environment() {
    for (const auto& name : names_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::pair<std::string, std::string>> before_;
};

} // namespace test
