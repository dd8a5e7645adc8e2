// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A handle that owns an MPI communicator.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/util/atomic.hpp>
#include <spar/transport/mpi/check.hpp>
#include <spar/transport/mpi/lost.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace spar::inline v0_1::detail {

/// Owns an MPI communicator, which the destructor frees. MPI functions on the communicator return error codes instead
/// of ending the program.
class owned_communicator {
 public:
  static owned_communicator duplicate(MPI_Comm comm) {
    int initialised = 0;
    MPI_Initialized(&initialised);
    if (initialised == 0 || mpi_is_finalised()) {
      throw invalid_argument(initialised == 0 ? "MPI is not initialised: call MPI_Init before making a communicator"
                                              : "MPI is finalised already: make communicators before MPI_Finalize");
    }
    if (comm == MPI_COMM_NULL)
      raise<invalid_argument>({"a communicator cannot be made from MPI_COMM_NULL, which has no ranks; pass a "
                               "communicator to which this process belongs"});
    int between = 0;
    check_mpi(MPI_Comm_test_inter(comm, &between), "MPI_Comm_test_inter");
    if (between != 0)
      raise<invalid_argument>({"a communicator cannot be made from an intercommunicator, whose ranks are in two "
                               "groups; pass an intracommunicator, such as the result of MPI_Intercomm_merge"});
    owned_communicator own;
    MPI_Errhandler users = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(comm, &users);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const int code = MPI_Comm_dup(comm, &own.comm_);
    MPI_Comm_set_errhandler(comm, users);
    MPI_Errhandler_free(&users);
    check_new(code, "MPI_Comm_dup");
    MPI_Comm_set_errhandler(own.comm_, MPI_ERRORS_RETURN);
    return own;
  }
  [[nodiscard]] owned_communicator split(int colour, int key) const {
    owned_communicator own;
    check_new(MPI_Comm_split(comm_, colour, key, &own.comm_), "MPI_Comm_split");
    if (own.comm_ == MPI_COMM_NULL)
      raise<invalid_argument>({"split was called with the colour MPI_UNDEFINED; expected a colour of 0 or more"});
    MPI_Comm_set_errhandler(own.comm_, MPI_ERRORS_RETURN);
    return own;
  }
  /// A communicator of `ranks` of this one, in this order. Only these ranks call this function, with the same `number`,
  /// which no other call for equal ranks has at the same time; it waits for all of them.
  [[nodiscard]] owned_communicator among(const std::vector<int>& ranks, std::uint64_t number) const {
    owned_group all, chosen;
    check_mpi(MPI_Comm_group(comm_, &all.group), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(all.group, static_cast<int>(ranks.size()), ranks.data(), &chosen.group), "MPI_Group_incl");
    owned_communicator own;
    check_new(create_among(comm_, chosen.group, number, &own.comm_), "creation of a communicator of some ranks");
    MPI_Comm_set_errhandler(own.comm_, MPI_ERRORS_RETURN);
    return own;
  }
  owned_communicator(owned_communicator&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  ~owned_communicator() {
    if (comm_ != MPI_COMM_NULL && !mpi_is_finalised()) MPI_Comm_free(&comm_);
  }
  owned_communicator& operator=(owned_communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  /// Owns no communicator.
  static owned_communicator none() noexcept { return {}; }
  /// Gives up ownership of the communicator without freeing the communicator, which MPI keeps until the program ends.
  void forget() noexcept {
    if (std::exchange(comm_, MPI_COMM_NULL) != MPI_COMM_NULL) forgotten += 1;
  }
  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
  [[nodiscard]] rank_t rank() const noexcept {
    int r = 0;
    MPI_Comm_rank(comm_, &r);
    return r;
  }
  [[nodiscard]] rank_t size() const noexcept {
    int p = 0;
    MPI_Comm_size(comm_, &p);
    return p;
  }

 private:
  owned_communicator() = default;
  /// As `check_mpi`, for the result of a function that creates a communicator.
  static void check_new(int code, const char* call) {
    try {
      check_mpi(code, call);
    } catch (const transport_error& why) {
      if (forgotten == 0) throw;
      raise<transport_error>({why.what(), "; MPI libraries have a limited number of communicators, and ",
                              static_cast<int>(forgotten),
                              " of failed communicators could not be freed, because a rank has "
                              "given up messages in flight"});
    }
  }
  static inline atomic<int> forgotten = 0; // communicators that could not be freed
  MPI_Comm comm_ = MPI_COMM_NULL;
};

} // namespace spar::inline v0_1::detail
