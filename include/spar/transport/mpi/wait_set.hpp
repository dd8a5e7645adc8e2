// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The MPI requests that a rank tests together, each with the operation that owns the request.
#pragma once

#include <spar/transport/mpi/check.hpp>

#include <mpi.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace spar::inline v0_1::detail {

/// The MPI requests of a rank's sends and receives. An object of the type `Owner` represents a send or a receive and
/// may own several requests: one for the envelope and one for each segment.
template <class Owner>
class mpi_wait_set {
 public:
  struct slot {
    Owner* owner;
    bool is_envelope;
  };

  /// Reserves memory, so that a set of at most `requests` requests allocates no further memory.
  explicit mpi_wait_set(std::size_t requests) { reserve(requests); }

  [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }
  [[nodiscard]] bool empty() const noexcept { return slots_.empty(); }
  [[nodiscard]] const slot& operator[](std::size_t i) const noexcept { return slots_[i]; }
  [[nodiscard]] MPI_Request& request(std::size_t i) noexcept { return requests_[i]; }

  /// Makes room for one more request. To be called before the request starts, so that `add` and `test` take no memory.
  void make_room() {
    if (slots_.size() == slots_.capacity()) reserve(2 * slots_.size());
  }
  void add(MPI_Request request, Owner* owner, bool is_envelope) {
    requests_.push_back(request);
    slots_.push_back({owner, is_envelope});
  }

  /// Tests all requests, removes the completed ones, and calls `on_complete(slot, status)` for each completed request.
  /// Returns whether any request has completed. Throws `transport_error` if MPI_Testsome itself fails.
  template <class F>
  bool test(F&& on_complete) {
    if (requests_.size() == 1) { // the usual case: a blocking call awaits one message
      MPI_Status status;
      int is_complete = 0;
      status.MPI_ERROR = MPI_Test(requests_.data(), &is_complete, &status);
      if (is_complete == 0 && status.MPI_ERROR == MPI_SUCCESS) return false;
      const slot completed = slots_[0];
      requests_.clear();
      slots_.clear();
      on_complete(completed, status);
      return true;
    }
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    const int code =
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
    if (code != MPI_ERR_IN_STATUS) {
      check_mpi(code, "MPI_Testsome");
      for (int i = 0; i < count; ++i) statuses_[static_cast<std::size_t>(i)].MPI_ERROR = MPI_SUCCESS;
    }
    if (count <= 0) return false; // without requests, MPI sets `count` to MPI_UNDEFINED
    completed_.clear();
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      slot& completed = slots_[static_cast<std::size_t>(indices_[i])];
      completed_.push_back({completed, statuses_[i]});
      completed.owner = nullptr;
    }
    remove(nullptr);
    for (const auto& [completed, status] : completed_) on_complete(completed, status);
    return true;
  }

  /// Gives up request `i`, which `remove(nullptr)` then removes from the set.
  void release(std::size_t i) noexcept { slots_[i].owner = nullptr; }
  /// Removes the requests of `owner` from the set, without completing or cancelling the requests.
  void remove(const Owner* owner) noexcept {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].owner == owner) continue;
      requests_[kept] = requests_[i];
      slots_[kept++] = slots_[i];
    }
    requests_.resize(kept);
    slots_.resize(kept);
  }

 private:
  [[gnu::cold]] void reserve(std::size_t requests) {
    requests_.reserve(requests);
    indices_.reserve(requests);
    statuses_.reserve(requests);
    completed_.reserve(requests);
    slots_.reserve(requests); // the last one, whose capacity `make_room` reads
  }

  std::vector<MPI_Request> requests_;
  std::vector<slot> slots_;                            // the owner of each request
  std::vector<int> indices_;                           // scratch memory of `test`
  std::vector<MPI_Status> statuses_;                   // scratch memory of `test`
  std::vector<std::pair<slot, MPI_Status>> completed_; // scratch memory of `test`
};

} // namespace spar::inline v0_1::detail
