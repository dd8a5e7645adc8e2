// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicators of the C interface.
#pragma once

#include "handles.hpp"

#include <spar/spar.h>

#include <spar/runtime/progress_thread.hpp>
#include <spar/transport/any.hpp>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace spar::inline v0_1::c {

/// One rank of a communicator of C.
class communicator final : public object {
 public:
  static constexpr kind handles = kind::communicator;
  static constexpr std::size_t longest_text = 2048;
  using check = void();

  /// `open` throws `invalid_argument` if the layer below has ended.
  explicit communicator(
      any_transport net, check* open = [] {})
      : check_open(open), net_(std::move(net)), hosts_(net_.hosts().begin(), net_.hosts().end()) {}
  ~communicator() override {
    progress_.reset();
    devices = nullptr;
  }

  /// The rank, on which collectives run.
  [[nodiscard]] any_transport& net() noexcept { return net_; }

  /// The number of the host of each rank, for compositions over a tree.
  [[nodiscard]] const std::vector<rank_t>& hosts() const noexcept { return hosts_; }
  void set_hosts(std::vector<rank_t> hosts) noexcept {
    hosts_ = std::move(hosts);
    plans = nullptr;
  }

  /// Starts or stops the thread that makes progress while the program computes.
  void set_progress_thread(bool on) {
    if (!on)
      progress_.reset();
    else if (!progress_)
      progress_.emplace(net_);
  }

  check* const check_open;
  char text[longest_text] = "";    ///< about the last call that failed
  std::shared_ptr<object> plans;   ///< for the tree of the hosts, once a composition has needed them
  std::shared_ptr<object> devices; ///< the ranks on devices (src/cuda), once a call has had values there

 private:
  any_transport net_;
  std::vector<rank_t> hosts_;
  std::optional<progress_thread<any_transport>> progress_;
};

/// The communicator of `comm`. Throws `invalid_argument` if the handle is invalid, or if the layer below has ended.
std::shared_ptr<communicator> open_communicator(spar_comm comm);

/// Writes the exception that is being handled to the texts of the thread and of the communicator `comm`, if it is one,
/// and returns its code.
int failed(const char* function, spar_comm comm) noexcept;

/// Calls `work()`, and returns SPAR_SUCCESS, or the code of its exception: no exception leaves the C interface.
template <class Work>
int guarded(const char* function, spar_comm comm, const Work& work) noexcept {
  try {
    work();
    return SPAR_SUCCESS;
  } catch (...) {
    return failed(function, comm);
  }
}

/// The exception by which a program of `spar_run_threads` ends with a number of its own.
struct program_failed : error {
  program_failed(int number, const char* text) : error(text), status(number) {}
  int status;
};

} // namespace spar::inline v0_1::c
