// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How two ranks open their connection over TCP: both ranks are in this process, and each step of one meets each step of
// the other. Also what errors say of connections, and which settings of UCX spar changes.
#include <spar/transport/ucx/connections.hpp>

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <sys/wait.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

namespace {

int opened = 0;   // endpoints
int warnings = 0; // of UCX

} // namespace

/// Counts the endpoints, and calls the function of UCX.
extern "C" ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t* wanted, ucp_ep_h* made) {
  static const auto of_ucx = reinterpret_cast<decltype(&ucp_ep_create)>(dlsym(RTLD_NEXT, "ucp_ep_create"));
  ++opened;
  return of_ucx(worker, wanted, made);
}

namespace {

using spar::rank_t;
using spar::detail::ucx_frame;
using spar::detail::ucx_worker;

/// One of two ranks, each of which believes that the other one is on another host.
class rank_of_two {
 public:
  rank_of_two(rank_t own, std::vector<spar::detail::ucx_member> members, ucx_worker&& worker)
      : connections_(own, members, {0, 1}, std::move(worker)) {
    connections_.worker().on_message(&on_message, this);
  }
  rank_of_two(const rank_of_two&) = delete;
  ~rank_of_two() {
    connections_.close(false);
    for (int i = 0; i < 100; ++i) connections_.poll();
    connections_.silence();
  }
  void send(rank_t to) {
    (void)connections_.send(to, connections_.next_frame(to, ucx_frame::control).write(message_), {}, nullptr, &on_sent);
  }
  void poll() { connections_.poll(); }
  [[nodiscard]] int received() const { return received_; }

 private:
  static void on_sent(void* request, ucs_status_t, void*) {
    if (request != nullptr) ucp_request_free(request);
  }
  static ucs_status_t on_message(void* self, const void* bytes, std::size_t, void*, std::size_t,
                                 const ucp_am_recv_param_t*) {
    auto& own = *static_cast<rank_of_two*>(self);
    ucx_frame frame;
    std::memcpy(&frame, bytes, sizeof(frame));
    if (frame.tag == ucx_frame::hello)
      own.connections_.greet(frame.source);
    else
      ++own.received_;
    return UCS_OK;
  }

  ucx_frame::room message_{};
  int received_ = 0;
  spar::detail::ucx_connections connections_; // destroyed before what UCX may use
};

/// Rank 0 sends first, and rank 1 after some steps: whatever has arrived by then may make it open its endpoint.
TEST(ucx_connections, each_rank_opens_one_endpoint) {
  ::setenv("UCX_TLS", "tcp", 1);
  const auto context = spar::detail::make_ucx_context("", 2);
  for (int steps = 0; steps < 16; ++steps) {
    SCOPED_TRACE(testing::Message() << "after " << steps << " steps");
    std::vector<ucx_worker> workers;
    std::vector<spar::detail::ucx_member> members;
    for (int r = 0; r < 2; ++r) {
      workers.emplace_back(context);
      members.push_back(spar::detail::ucx_member::self(workers.back().address(), 0, 0));
    }
    rank_of_two first(0, members, std::move(workers[0])), second(1, members, std::move(workers[1]));
    opened = 0;
    const auto let_first_go_on = [&] {
      for (const double end = spar::detail::monotonic_seconds() + 5e-4; spar::detail::monotonic_seconds() < end;)
        first.poll();
    };
    first.send(1);
    let_first_go_on();
    for (int i = 0; i < steps; ++i) {
      second.poll();
      let_first_go_on();
    }
    second.send(0);
    const double end = spar::detail::monotonic_seconds() + 10;
    while (first.received() + second.received() < 2 && spar::detail::monotonic_seconds() < end) {
      first.poll();
      second.poll();
    }
    ASSERT_EQ(first.received(), 1);
    ASSERT_EQ(second.received(), 1);
    EXPECT_EQ(opened, 2);
  }
}

TEST(ucx_connections, an_error_names_both_ranks_and_the_settings) {
  std::vector<ucx_worker> workers;
  std::vector<spar::detail::ucx_member> members;
  for (const char* const transports : {"tcp,self", "posix,self"}) {
    ::setenv("UCX_TLS", transports, 1);
    workers.emplace_back(spar::detail::make_ucx_context("", 2));
    members.push_back(spar::detail::ucx_member::self(workers.back().address(), 0, 0));
  }
  rank_of_two last(1, members, std::move(workers[1]));
  try {
    last.send(0);
    FAIL() << "sent";
  } catch (const spar::transport_error& why) {
    EXPECT_NE(std::strstr(why.what(), "rank 1 cannot reach rank 0"), nullptr) << why.what();
    EXPECT_NE(std::strstr(why.what(), "UCX_TLS is \"posix,self\""), nullptr) << why.what();
  }
}

/// UCX says of the connection only that it has failed.
TEST(ucx_connections, the_end_of_a_process_is_the_reason_of_its_death) {
  ::setenv("UCX_TLS", "tcp,self", 1);
  const pid_t other = fork();
  if (other == 0) {
    pause();
    _exit(0);
  }
  ucx_worker worker(spar::detail::make_ucx_context("", 2));
  std::vector<spar::detail::ucx_member> members(2, spar::detail::ucx_member::self(worker.address(), 0, 0));
  members[1].process = other;
  spar::detail::ucx_connections connections(0, members, {0, 0}, std::move(worker));
  connections.suspect(1, "Endpoint timeout");
  kill(other, SIGKILL);
  EXPECT_EQ(waitpid(other, nullptr, 0), other);
  std::string reason;
  connections.confirm_deaths(spar::detail::monotonic_seconds() + 1, [&](rank_t, const char* why) { reason = why; });
  EXPECT_EQ(reason, "its process has ended");
}

/// UCX warns of a setting that it does not use, so spar must know whether UCX uses TCP.
TEST(ucx_worker, no_setting_of_spar_makes_ucx_warn) {
  ucs_log_push_handler([](const char*, unsigned, const char*, ucs_log_level_t level, const ucs_log_component_config_t*,
                          const char* format, va_list) {
    // One of the settings below names a device that does not exist, of which UCX shall warn.
    warnings += level <= UCS_LOG_LEVEL_WARN && std::strstr(format, "invalid configuration") != nullptr ? 1 : 0;
    return UCS_LOG_FUNC_RC_STOP;
  });
  for (const char* const transports : {"", "tcp,self", "posix,self", "^tcp", "all"}) {
    for (const char* const devices : {"", "mlx5_0:1", "mlx5_0:1,lo"}) {
      SCOPED_TRACE(testing::Message() << "UCX_TLS=" << transports << " UCX_NET_DEVICES=" << devices);
      const auto set = [](const char* variable, const char* value) {
        return *value == '\0' ? ::unsetenv(variable) : ::setenv(variable, value, 1);
      };
      set("UCX_TLS", transports);
      set("UCX_NET_DEVICES", devices);
      warnings = 0;
      try {
        const ucx_worker made(spar::detail::make_ucx_context("", 2));
      } catch (const spar::transport_error& why) { // TCP alone, but no network interface
        EXPECT_STREQ(devices, "mlx5_0:1");
        EXPECT_NE(std::strstr(why.what(), "UCX_NET_DEVICES is \"mlx5_0:1\""), nullptr) << why.what();
      }
      EXPECT_EQ(warnings, 0);
    }
  }
  ::unsetenv("UCX_TLS");
  ::unsetenv("UCX_NET_DEVICES");
  ucs_log_pop_handler();
}

} // namespace
