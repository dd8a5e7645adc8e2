// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface of spar, for C99 and later, and for every language that calls C, such as Fortran by iso_c_binding.
//
// - Functions return SPAR_SUCCESS or another code of `enum spar_status`; `spar_error_text` explains the last failure in
//   a sentence with the values. No function ends the program, and no C++ exception leaves a function.
// - A program frees what it has created; every `..._free` function sets the handle to NULL, and accepts a handle that
// is
//   NULL already. A handle that was freed is refused with SPAR_ERR_INVALID_ARGUMENT.
// - One thread at a time uses a communicator and the objects that were made from it: streams, requests, and so on.
//   Different communicators are independent of each other.
// - Counts, dimensions and indices are signed 64-bit integers or, inside of arrays, integers of 32 or 64 bits.
// - All ranks of a communicator make the same collective calls in the same order.
// - After an error other than SPAR_ERR_INVALID_ARGUMENT, no collective works on the communicator any more: free it, or
//   go on with the ranks that are left by `spar_comm_shrink`.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// \name Codes of errors
/// @{
/// What a function returns: success, or which error has occurred. The codes mirror the exceptions of the C++ library.
enum spar_status {
  SPAR_SUCCESS = 0,              ///< no error
  SPAR_ERR_INVALID_ARGUMENT = 1, ///< an invalid argument; nothing was sent
  SPAR_ERR_MISMATCH = 2,         ///< the ranks disagree on the call, such as its dimension, type or algorithm
  SPAR_ERR_CORRUPT_MESSAGE = 3,  ///< a message has bytes that no correctly working rank sends
  SPAR_ERR_PEER_FAILED = 4,      ///< another rank has failed, has left, or has cancelled a call
  SPAR_ERR_TIMEOUT = 5,          ///< an awaited message did not arrive within the deadline
  SPAR_ERR_DEADLOCK = 6,         ///< the rank would wait although it has no call in flight
  SPAR_ERR_TRANSPORT = 7,        ///< the layer below spar failed: a function of MPI, UCX or CUDA
  SPAR_ERR_ASSERTION = 8,        ///< an invariant of spar does not hold: an error in spar
  SPAR_ERR_NO_MEMORY = 9,        ///< memory could not be allocated
  SPAR_ERR_OTHER = 10            ///< another error, which the text explains
};
/// @}

/// Types of values.
enum spar_type {
  SPAR_FLOAT = 1,  ///< `float`
  SPAR_DOUBLE = 2, ///< `double`
  SPAR_INT32 = 3,  ///< `int32_t`
  SPAR_INT64 = 4,  ///< `int64_t`
  SPAR_HALF = 7    ///< IEEE binary16, as `_Float16`, in two bytes
};

/// An operation: one of `enum spar_operation`, or what `spar_op_create` has returned.
typedef int64_t spar_op;
/// The operations of the library. Minimum and maximum of a NaN and a number are NaN.
enum spar_operation {
  SPAR_SUM = 1,    ///< the sum; that of integers wraps around
  SPAR_PROD = 2,   ///< the product; that of integers wraps around
  SPAR_MIN = 3,    ///< the minimum
  SPAR_MAX = 4,    ///< the maximum
  SPAR_AVERAGE = 5 ///< the sum divided by the number of ranks
};

typedef struct spar_comm_object* spar_comm;         ///< one rank of a communicator
typedef struct spar_stream_object* spar_stream;     ///< a sparse vector that spar owns: the result of a call
typedef struct spar_gathered_object* spar_gathered; ///< the sparse vectors of all ranks
typedef struct spar_request_object* spar_request;   ///< a non-blocking call
typedef struct spar_feedback_object* spar_feedback; ///< an allreduce with error feedback, and its residual
typedef struct spar_partial_object* spar_partial;   ///< an allreduce that does not wait for late ranks

/// A vector of dimension `n`, or a part of one, in memory that somebody else owns. If `indices` is not NULL, it is
/// sparse: `count` entries with ascending indices from 0 to n - 1, and zero (or the neutral element of the operation)
/// elsewhere. If `indices` is NULL, and `count` is not 0, it is dense: the values of the indices `first`, `first` + 1,
/// and so on.
typedef struct spar_vector {
  int64_t n;           ///< the dimension
  int64_t count;       ///< the number of entries, or of values of a dense vector
  const void* indices; ///< integers of `index_bits` bits, or NULL
  const void* values;  ///< values of the type `type`
  int64_t first;       ///< the index of the first value of a dense vector; 0 for the vectors of a program
  int index_bits;      ///< 32 or 64
  int type;            ///< one of `enum spar_type`
} spar_vector;

/// What one call has sent and received on this rank.
typedef struct spar_statistics {
  int64_t messages_sent;     ///< messages sent
  int64_t messages_received; ///< messages received
  int64_t bytes_sent;        ///< bytes of the payloads sent
  int64_t bytes_received;    ///< bytes of the payloads received
  int64_t plain_bytes_sent;  ///< payload bytes that would be sent without encoding
  double codec_seconds;      ///< the part of `seconds` spent encoding and decoding
  double seconds;            ///< from the start of the call to its end
} spar_statistics;

/// \name Version and errors
/// @{
/// The version of the library, such as "0.1.0".
const char* spar_version(void);
/// The name of a code, such as "SPAR_ERR_TIMEOUT"; "unknown" for any other number.
const char* spar_error_name(int status);
/// A sentence about the last call with the communicator that failed or, if `comm` is NULL or freed, about the last call
/// of this thread that failed. Empty if none has failed. Valid until the next failure.
const char* spar_error_text(spar_comm comm);
/// @}

/// \name Communicators
/// Communicators of MPI are made by `spar_comm_from_mpi` in <spar/spar_mpi.h>, and those of processes without MPI by
/// the functions of <spar/spar_ucx.h>.
/// @{
/// Creates a communicator of `ranks` threads of this program: comms[r], of `ranks` handles, is for the thread that is
/// rank r. The program starts the threads, and frees each handle.
int spar_comm_from_threads(int ranks, spar_comm comms[]);
/// Starts `ranks` threads, of which each calls program(comm, context) with its own communicator, which is freed when
/// `program` returns, and joins them. A `program` returns SPAR_SUCCESS or any other number, which ends the calls of the
/// other ranks with SPAR_ERR_PEER_FAILED, and which is returned here.
int spar_run_threads(int ranks, int (*program)(spar_comm comm, void* context), void* context);
/// Divides the communicator: a collective call. Ranks with the same `colour`, which is at least 0, form a new
/// communicator, in the order of their `key` and then of their old rank.
int spar_comm_split(spar_comm comm, int colour, int key, spar_comm* part);
/// Makes a communicator of the ranks that go on after a failure, in their old order: a collective call of these ranks.
/// Ends `comm`, unless it has ended already, so that the other ranks learn that they must call it, too. Waits for each
/// rank until it has left, its process or program has ended, or it has been silent for the deadline of `comm`. Then
/// free `comm`. Errors: SPAR_ERR_PEER_FAILED if this rank comes too late, and the others go on without it;
/// SPAR_ERR_INVALID_ARGUMENT for a second call, and for communicators of MPI; SPAR_ERR_TRANSPORT if UCX fails or the
/// processes can no longer reach the store where they met.
int spar_comm_shrink(spar_comm comm, spar_comm* rest);
/// Lets processes join that have called `spar_comm_join`: makes a communicator of the ranks of `comm`, in their order,
/// and of those processes behind them, whose hosts are those on which the ranks run. Sets `wider` to NULL if nobody
/// asks to join. A collective call, in the time of a broadcast if nobody does. `comm` remains as it is. Errors:
/// SPAR_ERR_INVALID_ARGUMENT unless the processes run without MPI; SPAR_ERR_PEER_FAILED on all ranks if one of them
/// fails meanwhile: then call `spar_comm_shrink`; SPAR_ERR_TRANSPORT as `spar_comm_shrink`.
int spar_comm_grow(spar_comm comm, spar_comm* wider);
/// This rank, from 0 to size - 1.
int spar_comm_rank(spar_comm comm, int* rank);
/// The number of ranks.
int spar_comm_size(spar_comm comm, int* size);
/// Sets for how many seconds a call waits for a message before it fails with SPAR_ERR_TIMEOUT; 600 at first.
int spar_comm_set_deadline(spar_comm comm, double seconds);
/// Sets the hosts for compositions over a tree, such as "flexreduce", that are made later: ranks r with equal hosts[r]
/// share a host. The numbers are the same on all ranks. Without this function, ranks of MPI have the hosts on which
/// they run, and ranks of threads share one host. A part of a communicator has the hosts of its ranks.
int spar_comm_set_hosts(spar_comm comm, const int hosts[]);
/// Sets what a message and a byte cost on the network, in seconds, by which compositions such as "dense" and
/// "sparcml+coded" choose a schedule, and whether to encode entries. At first 1e-6 and 1e-10, for ranks on one machine;
/// links of 1 Gbit/s have about 5e-5 and 8e-9. A collective call: all ranks get the numbers of rank 0. Errors:
/// SPAR_ERR_INVALID_ARGUMENT on all ranks if one of these is negative, infinite or NaN.
int spar_comm_set_network(spar_comm comm, double message_seconds, double byte_seconds);
/// The statistics of the call on `comm` that has ended last.
int spar_comm_last_call(spar_comm comm, spar_statistics* statistics);
/// Makes progress on the calls in flight, without waiting. Waiting for any call makes progress, too.
int spar_comm_progress(spar_comm comm);
/// Starts a thread of the library that makes progress on the calls in flight and on the rounds of partial reducers
/// while the program computes, or stops it if `on` is 0. The program still uses `comm` from one thread at a time.
/// `spar_comm_free` stops the thread, and parts and successors of `comm` begin without one. Over MPI the thread polls,
/// less often after one second without a call; otherwise it sleeps until a message arrives. Errors:
/// SPAR_ERR_INVALID_ARGUMENT over MPI without MPI_THREAD_MULTIPLE; SPAR_ERR_OTHER if the system cannot start a thread.
int spar_comm_set_progress_thread(spar_comm comm, int on);
/// Ends all calls in flight and all later calls, on all ranks, with SPAR_ERR_PEER_FAILED and `reason`.
int spar_comm_abort(spar_comm comm, const char* reason);
/// Frees the communicator. Objects that were made from it stay valid; memory is released with the last of them, and
/// over MPI and UCX only then do the other ranks learn that this rank has left. Free communicators of MPI, and what was
/// made from them, before MPI_Finalize.
int spar_comm_free(spar_comm* comm);
/// @}

/// \name User operations
/// @{
/// Replaces inout[i] by in[i] op inout[i] for i from 0 to count - 1, of values of the operation's type. Is called by
/// the threads that make calls with the operation, and by the progress thread of their communicator.
typedef void spar_function(const void* in, void* inout, int64_t count, void* context);
/// Creates an operation on values of `type`, which must be associative (up to rounding) and commutative. Ranks compare
/// operations by their `name`. `neutral` points to the neutral element; name and neutral element are copied. `context`
/// is passed to `function`.
int spar_op_create(int type, const char* name, spar_function* function, void* context, const void* neutral,
                   spar_op* op);
/// Frees the operation. Calls that use it may still be in flight.
int spar_op_free(spar_op* op);
/// @}

/// \name Collectives
/// The argument `algorithm` is the text of a composition, such as "ring" or "ok_topk:0.01+coded"; NULL is the default,
/// the cheapest of SparCML's algorithms. Functions with `start` in their names return at once; the memory of their
/// arguments must stay valid, and must not be changed, until `spar_wait` has returned. They write results when the
/// request has ended in `spar_wait`.
/// @{
/// Waits until all ranks have called it.
int spar_barrier(spar_comm comm);
int spar_start_barrier(spar_comm comm, spar_request* request);
/// Reduces `n` values of all ranks. `in` and `out` do not overlap, or are equal: in place.
int spar_allreduce(spar_comm comm, const void* in, void* out, int64_t n, int type, spar_op op, const char* algorithm);
int spar_start_allreduce(spar_comm comm, const void* in, void* out, int64_t n, int type, spar_op op,
                         const char* algorithm, spar_request* request);
/// Reduces the sparse vectors of all ranks to the new stream `sum`.
int spar_allreduce_sparse(spar_comm comm, const spar_vector* mine, spar_op op, const char* algorithm, spar_stream* sum);
int spar_start_allreduce_sparse(spar_comm comm, const spar_vector* mine, spar_op op, const char* algorithm,
                                spar_stream* sum, spar_request* request);
/// Gathers values in place: rank r contributes block r of the `n` values (see `spar_block`).
int spar_allgather(spar_comm comm, void* values, int64_t n, int type);
int spar_start_allgather(spar_comm comm, void* values, int64_t n, int type, spar_request* request);
/// Gathers the sparse vectors of all ranks.
int spar_allgather_sparse(spar_comm comm, const spar_vector* mine, spar_gathered* all);
int spar_start_allgather_sparse(spar_comm comm, const spar_vector* mine, spar_gathered* all, spar_request* request);
/// Reduces values in place, and leaves the result of block r on rank r; the other values are unspecified afterwards.
/// `bounds` is NULL for the blocks of `spar_block`, or P + 1 numbers, equal on all ranks, that ascend from 0 to `n`.
int spar_reduce_scatter(spar_comm comm, void* values, int64_t n, int type, spar_op op, const int64_t* bounds);
int spar_start_reduce_scatter(spar_comm comm, void* values, int64_t n, int type, spar_op op, const int64_t* bounds,
                              spar_request* request);
/// Reduces the sparse vectors of all ranks, and returns this rank's block of the sum.
int spar_reduce_scatter_sparse(spar_comm comm, const spar_vector* mine, spar_op op, const int64_t* bounds,
                               spar_stream* block);
int spar_start_reduce_scatter_sparse(spar_comm comm, const spar_vector* mine, spar_op op, const int64_t* bounds,
                                     spar_stream* block, spar_request* request);
/// Copies the `n` values of the rank `root` to all ranks.
int spar_broadcast(spar_comm comm, void* values, int64_t n, int type, int root);
int spar_start_broadcast(spar_comm comm, void* values, int64_t n, int type, int root, spar_request* request);
/// The block [begin, end) of the rank `rank` if `n` values are divided evenly among `ranks` ranks.
int spar_block(int64_t n, int ranks, int rank, int64_t* begin, int64_t* end);
/// @}

/// \name Streams
/// @{
/// Makes a stream of entries in any order and with repeated indices; the values of an index are reduced by `op` in the
/// order given. `entries` is sparse. The view of the stream is what collectives take.
int spar_coalesce(const spar_vector* entries, spar_op op, spar_stream* stream);
/// Describes the stream in `view`, whose arrays are valid until the stream is freed. The result of a call may have
/// become dense: then `indices` is NULL, and `first` is the index of the first value.
int spar_stream_view(spar_stream stream, spar_vector* view);
/// Writes all `n` values to `values`, with the neutral element of the stream's operation where there is no entry.
int spar_stream_to_dense(spar_stream stream, void* values, int64_t n);
/// Frees the stream.
int spar_stream_free(spar_stream* stream);
/// Describes the vector of the rank `rank` in `view`, whose arrays are valid until `all` is freed.
int spar_gathered_view(spar_gathered all, int rank, spar_vector* view);
/// Frees the vectors.
int spar_gathered_free(spar_gathered* all);
/// @}

/// \name Error feedback
/// A rank keeps as its residual what it has not sent, and adds the residual to the values of its next call. The `op` is
/// SPAR_SUM or SPAR_AVERAGE.
/// @{
/// Creates an allreduce with error feedback of values of `type`, SPAR_FLOAT, SPAR_DOUBLE or SPAR_HALF, by a composition
/// with a selector, such as "ok_topk:0.01". One object makes one call at a time, always with as many values. If the
/// composition is over a tree, the tree is that of the hosts of `comm`.
int spar_feedback_create(spar_comm comm, int type, int index_bits, const char* algorithm, spar_feedback* feedback);
/// Replaces the `n` values by the sum, with zeros where no rank has selected an entry.
int spar_feedback_reduce(spar_feedback feedback, spar_comm comm, void* values, int64_t n, spar_op op);
int spar_start_feedback_reduce(spar_feedback feedback, spar_comm comm, void* values, int64_t n, spar_op op,
                               spar_request* request);
/// Leaves the values unchanged, and returns the sum as a stream.
int spar_feedback_reduce_sparse(spar_feedback feedback, spar_comm comm, const void* values, int64_t n, spar_op op,
                                spar_stream* sum);
int spar_start_feedback_reduce_sparse(spar_feedback feedback, spar_comm comm, const void* values, int64_t n, spar_op op,
                                      spar_stream* sum, spar_request* request);
/// Points `values` to the `n` values of the residual, which are valid until the next call; `n` is 0 before the first
/// call.
int spar_feedback_residual(spar_feedback feedback, const void** values, int64_t* n);
/// How many bytes `spar_feedback_save` writes.
int spar_feedback_saved_size(spar_feedback feedback, int64_t* bytes);
/// Writes the residual and the state to `saved`, which has room for `bytes` bytes, from which another run with the same
/// number of ranks resumes.
int spar_feedback_save(spar_feedback feedback, void* saved, int64_t bytes);
/// Restores what `spar_feedback_save` has written for the same algorithm; changes nothing after an error.
int spar_feedback_load(spar_feedback feedback, const void* saved, int64_t bytes);
/// Adds the residual that `spar_feedback_save` has written on a rank of another run, which may have had another number
/// of ranks, to this rank's residual. Each saved residual is for one rank. Changes nothing after an error.
int spar_feedback_take_over(spar_feedback feedback, const void* saved, int64_t bytes);
/// Frees the object. A call of it may still be in flight.
int spar_feedback_free(spar_feedback* feedback);
/// @}

/// \name Partial reducers
/// An allreduce that does not wait for late ranks: their values are part of a later round (see docs/guide/partial.md).
/// All ranks create their objects in the same order, make the same number of calls, and then drain.
/// @{
/// What a rank has contributed to a round.
enum spar_presence {
  SPAR_ABSENT = 0, ///< nothing
  SPAR_STALE = 1,  ///< only values that were too late for earlier rounds
  SPAR_FRESH = 2   ///< the values of this call, and all earlier ones that were too late
};
/// Creates a partial allreduce of `n` values of `type`. `participation` says which calls start a round: "solo" the
/// first one, "majority" that of a random rank, "quorum:Q" the first Q, "everyone" those of all ranks. `tau`, at least
/// 0 and equal on all ranks, is the number of rounds that may run ahead of a rank, which keeps the `n` values of each
/// result until its calls; 64 suits small vectors. A rank takes part in the rounds of others only during its own calls
/// and `spar_comm_progress`, unless it has the thread of `spar_comm_set_progress_thread`.
int spar_partial_create(spar_comm comm, int64_t n, int type, spar_op op, const char* participation,
                        const char* algorithm, int64_t tau, spar_partial* partial);
/// Replaces the `n` values by the result of the next round, which is the same on all ranks, and writes what rank r has
/// contributed to presence[r], unless `presence` is NULL.
int spar_partial_reduce(spar_partial partial, void* values, int64_t n, int presence[]);
int spar_start_partial_reduce(spar_partial partial, void* values, int64_t n, int presence[], spar_request* request);
/// Waits for all ranks, and replaces the values by the sum of all values that are in no earlier round.
int spar_partial_drain(spar_partial partial, void* values, int64_t n, int presence[]);
int spar_start_partial_drain(spar_partial partial, void* values, int64_t n, int presence[], spar_request* request);
/// Frees the object, after `spar_partial_drain` and after the requests of its calls.
int spar_partial_free(spar_partial* partial);
/// @}

/// \name Requests
/// @{
/// Makes progress without waiting, and sets `done` to 1 if the call has ended, otherwise to 0. The result and the error
/// of the call come from `spar_wait`.
int spar_test(spar_request request, int* done);
/// Waits at most `seconds`, and sets `done` as `spar_test` does.
int spar_wait_for(spar_request request, double seconds, int* done);
/// Waits until the call has ended, writes its results, and frees the request, also after an error.
int spar_wait(spar_request* request);
/// Cancels the call by an abort of the communicator, on all ranks, unless it has ended. Then wait for it.
int spar_cancel(spar_request request);
/// Waits until the call has ended, drops its results, and frees the request.
int spar_request_free(spar_request* request);
/// @}

#ifdef __cplusplus
}
#endif
