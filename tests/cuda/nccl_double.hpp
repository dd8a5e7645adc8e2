// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Controls of two test doubles of NCCL: nccl_double.cpp for ranks that are threads, and nccl_mpi_double.cpp, without
// `refuse`, for the processes of MPI. Groups are work in the streams of the double of the CUDA runtime. A group ends
// once each of its operations has met its match in a group that is the next work of the peer's stream, as on a device.
// Calls end later, among threads at random. Sends and receives of different sizes, and calls that are not allowed, end
// the program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nccl_double {

/// Begins again with another seed for the random progress of calls.
void reset(std::uint64_t seed);
/// The call of NCCL with this number, from 1, fails; only calls of this thread count.
void fail_at(std::uint64_t call);
/// From this thread's poll with this number on, from 1, polls report that a transfer has failed.
void fail_later_at(std::uint64_t poll);
/// The transfer with this number, from 1, of those that this thread receives arrives with a flipped bit: the highest
/// one of the byte `at`, or of its last byte if there are fewer.
void damage(std::uint64_t transfer, std::size_t at);
/// The transfer with this number, from 1, of those that this thread receives does not arrive.
void lose(std::uint64_t transfer);
/// Whether NCCL refuses to create communicators because several ranks use one GPU.
void refuse(bool on);

/// What this thread has done.
struct counts {
  std::uint64_t calls = 0; // that could have failed
  std::uint64_t polls = 0; // for the end of a call or a failed transfer
  std::uint64_t joins = 0; // communicators created
  std::uint64_t aborts = 0;
  std::uint64_t destroys = 0;
  std::uint64_t groups = 0;
  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t hazards = 0;  // allocations and releases of memory while a group of this thread is in flight
  std::uint64_t releases = 0; // of memory, also of a communicator, while a group of any thread is in flight
  int open_groups = 0;        // ncclGroupStart without ncclGroupEnd
};
counts of_this_thread();
/// The number of communicators that are neither destroyed nor aborted, of all threads.
std::size_t communicators();
/// Only for processes of MPI, all together: receives the messages of aborted communicators, so that MPI can end.
void receive_what_is_left();

} // namespace nccl_double
