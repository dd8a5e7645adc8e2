// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The rendezvous of a job that a launcher with PMIx starts, such as srun --mpi=pmix or the mpiexec of Open MPI. PMIx
// says which rank a process is and where rank 0 listens, so that no variable is needed. Programs
// compile and link with what `pkg-config --cflags --libs pmix` prints.
#pragma once

#include <spar/core/error.hpp>
#include <spar/rendezvous/environment.hpp>
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/rendezvous/tcp/proof.hpp>
#include <spar/rendezvous/tcp/socket.hpp>
#include <spar/rendezvous/tcp_store.hpp>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <pmix.h>
#include <unistd.h>

namespace spar::inline v0_1 {

namespace detail {

/// The connection of this process to PMIx. Others in the process may have their own.
class pmix_client {
 public:
  pmix_client() {
    expect(PMIx_Init(&self_, nullptr, 0), "find a launcher",
           "; start the program by srun --mpi=pmix, or by the mpiexec of Open MPI");
  }
  pmix_client(const pmix_client&) = delete;
  ~pmix_client() { PMIx_Finalize(nullptr, 0); }

  [[nodiscard]] rank_t rank() const { return static_cast<rank_t>(self_.rank); }
  [[nodiscard]] std::string job() const { return self_.nspace; }
  /// A number that PMIx knows about the job.
  [[nodiscard]] rank_t number(const char* key) const {
    const auto found = get(PMIX_RANK_WILDCARD, key);
    if (found->type != PMIX_UINT32) raise<transport_error>({"PMIx has no number of 32 bits for ", key});
    return static_cast<rank_t>(found->data.uint32);
  }

  /// Collective: returns the text that rank 0 passes.
  [[nodiscard]] std::string text_of_rank_0(const std::string& own) const {
    static int count = 0; // because PMIx may keep the first value of a key
    const std::string key = sentence("spar.rendezvous.", count++);
    if (rank() == 0) {
      pmix_value_t value{};
      expect(PMIx_Value_load(&value, own.c_str(), PMIX_STRING), "copy a text");
      const pmix_status_t put = PMIx_Put(PMIX_GLOBAL, key.c_str(), &value);
      PMIx_Value_destruct(&value);
      expect(put, "keep where rank 0 listens");
    }
    expect(PMIx_Commit(), "send where rank 0 listens");
    pmix_info_t collect{};
    const bool yes = true;
    expect(PMIx_Info_load(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL), "ask for the texts of all ranks");
    expect(PMIx_Fence(nullptr, 0, &collect, 1), "wait for all ranks");
    const auto found = get(0, key.c_str());
    if (found->type != PMIX_STRING) raise<transport_error>({"PMIx does not know where rank 0 listens"});
    return found->data.string;
  }

 private:
  struct release {
    void operator()(pmix_value_t* value) const { PMIX_VALUE_RELEASE(value); }
  };

  static void expect(pmix_status_t status, const char* what, const char* advice = "") {
    if (status != PMIX_SUCCESS) raise<transport_error>({"PMIx cannot ", what, ": ", PMIx_Error_string(status), advice});
  }

  [[nodiscard]] std::unique_ptr<pmix_value_t, release> get(pmix_rank_t of, const char* key) const {
    pmix_proc_t process = self_;
    process.rank = of;
    pmix_value_t* value = nullptr;
    if (PMIx_Get(&process, key, nullptr, 0, &value) != PMIX_SUCCESS)
      raise<transport_error>({"PMIx does not know ", key});
    return std::unique_ptr<pmix_value_t, release>(value);
  }

  pmix_proc_t self_{};
};

/// Completes `where` on rank 0, and serves the store there.
inline std::shared_ptr<tcp_store_server> serve_for_pmix(const pmix_client& client, rendezvous_options& where) {
  const auto complete = [](std::string& option, const char* variable) {
    if (const char* const value = std::getenv(variable); option.empty() && value != nullptr) option = value;
  };
  complete(where.address, "SPAR_ADDR");
  complete(where.network_interface, "SPAR_INTERFACE");
  if (where.address.empty() && client.number(PMIX_LOCAL_SIZE) == client.number(PMIX_JOB_SIZE)) {
    where.address = "127.0.0.1";
    where.network_interface.clear();
  } else if (where.address.empty() && !where.network_interface.empty()) {
    where.address = address_of_interface(where.network_interface);
  } else if (where.address.empty()) {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    where.address = host.data();
  }
  if (where.secret.empty()) {
    constexpr std::string_view digits = "0123456789abcdef";
    for (const char byte : random_bytes(32)) where.secret.push_back(digits[static_cast<unsigned char>(byte) % 16]);
    try {
      hmac_sha256(where.secret, "");
    } catch (const invalid_argument&) { // there is no libcrypto
      where.secret.clear();
    }
  }
  return std::make_shared<tcp_store_server>(where);
}

} // namespace detail

/// Like `rendezvous::from_environment`, but PMIx says which rank this process is, and where rank 0 listens. Collective:
/// all processes of the job call it. Rank 0 listens on the port of `options`, or on one that the system chooses, and
/// decides for all: the address is that of `options` or SPAR_ADDR, 127.0.0.1 if all ranks are on one host, that of the
/// network interface of `options` or SPAR_INTERFACE, or else the name of the host. Unless `options` has a secret, rank
/// 0 makes a random one if OpenSSL's libcrypto is there. SPAR_DEADLINE counts on each rank. Throws `transport_error` if
/// PMIx fails or rank 0 cannot listen, `invalid_argument` if an option is out of range or there is no such network
/// interface, and `timeout` and `mismatch` as `tcp_store` does.
[[nodiscard]] inline rendezvous pmix_rendezvous(const rendezvous_options& options = {}) {
  // Connected until the program ends. If ranks of several hosts disconnect and connect anew, a fence of Open MPI 4.1
  // sometimes never ends.
  static const detail::pmix_client client;
  const rank_t rank = client.rank(), size = client.number(PMIX_JOB_SIZE);
  rendezvous_options where = options;
  where.deadline = detail::deadline_in_environment(options);
  if (where.job.empty()) where.job = client.job();
  std::shared_ptr<rendezvous_store> meeting;
  std::string text;
  if (rank == 0) {
    try {
      const auto server = detail::serve_for_pmix(client, where);
      text = sentence(server->port(), " ", where.secret, " ", where.address);
      meeting = server;
    } catch (const error& why) { // the others need not wait
      (void)client.text_of_rank_0(why.what());
      throw;
    }
  }
  text = client.text_of_rank_0(text);
  if (rank > 0) {
    const std::size_t first = text.find(' '), second = text.find(' ', first + 1);
    where.port = std::atoi(text.c_str());
    if (where.port == 0 || second == text.npos) raise<transport_error>({"rank 0 serves no rendezvous: ", text});
    where.secret = text.substr(first + 1, second - first - 1);
    where.address = text.substr(second + 1);
    meeting = std::make_shared<tcp_store>(where);
  }
  return {std::move(meeting), rank, size, where};
}

} // namespace spar::inline v0_1
