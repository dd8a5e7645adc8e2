! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! Each procedure of the Fortran module, over threads, with the numbers of ranks of the design.
module checks
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int32, int64, real32, real64
  use spar
  implicit none

  integer :: failures = 0

  ! What a rank in C passes and calls.
  type, bind(c) :: c_vector
    integer(c_int64_t) :: n, count
    type(c_ptr) :: indices, values
    integer(c_int64_t) :: first = 0
    integer(c_int) :: index_bits = 32, type = 1
  end type
  interface
    integer(c_int) function c_comm_split(comm, colour, key, part) bind(c, name="spar_comm_split")
      import :: c_int, c_ptr
      type(c_ptr), value :: comm
      integer(c_int), value :: colour, key
      type(c_ptr) :: part
    end function
    integer(c_int) function c_allreduce_sparse(comm, mine, op, algorithm, sum) bind(c, name="spar_allreduce_sparse")
      import :: c_int, c_int64_t, c_ptr, c_vector
      type(c_ptr), value :: comm, algorithm
      type(c_vector) :: mine
      integer(c_int64_t), value :: op
      type(c_ptr) :: sum
    end function
    integer(c_int) function c_comm_free(comm) bind(c, name="spar_comm_free")
      import :: c_int, c_ptr
      type(c_ptr) :: comm
    end function
  end interface

contains

  recursive subroutine check(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    if (holds) return
    print "(2a)", "failed: ", what
    failures = failures + 1
  end subroutine

  recursive subroutine dense_values(comm, rank, ranks)
    type(spar_comm), intent(in) :: comm
    integer, intent(in) :: rank, ranks
    real(real32) :: x(3, 2), out(3, 2), line(8)
    real(real64) :: d(5)
    integer(int32) :: i(4)
    integer(int64) :: l(2)
    x = real(rank, real32)
    call spar_allreduce(comm, x, out)
    call check(all(x == rank) .and. all(out == ranks * (ranks - 1) / 2), "out of place, of rank 2")
    d = 1
    call spar_allreduce(comm, d, op=spar_average, algorithm="ring")
    call check(all(d == 1), "average")
    i = rank
    call spar_allreduce(comm, i, op=spar_max)
    call check(all(i == ranks - 1), "maximum")
    l = [int(rank, int64), -int(rank, int64)]
    call spar_allreduce(comm, l, op=spar_min)
    call check(l(1) == 0 .and. l(2) == 1 - ranks, "minimum")
    line = 1
    call spar_allreduce(comm, line(::2))
    call check(all(line(1::2) == ranks) .and. all(line(2::2) == 1), "a section of an array")
    call spar_allreduce(comm, line(1:0))
    call spar_barrier(comm)
  end subroutine

  recursive subroutine without_waiting(comm, ranks)
    type(spar_comm), intent(in) :: comm
    integer, intent(in) :: ranks
    real(real64), asynchronous :: x(1000), y(10, 2)
    type(spar_request) :: first, second
    type(spar_statistics) :: last
    logical :: done
    integer :: stat
    character(200) :: text
    x = 2
    y = 1
    call spar_start_allreduce(comm, x, first)
    call spar_start_allreduce(comm, y, second, op=spar_max, algorithm="rec_doubling")
    call spar_test(first, done)
    call spar_wait_for(second, 60.0_real64, done)
    call check(done, "a wait of a minute")
    call spar_wait_for(second, -1.0_real64, done, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "-1") > 0, "a wait of a negative time")
    call spar_wait(second)
    call spar_wait(first)
    call check(all(x == 2 * ranks) .and. all(y == 1), "two calls in flight")
    x = 1
    call spar_allreduce(comm, x, algorithm="ring") ! each rank sends 2 (ranks - 1) messages of 1/ranks of all bytes
    call spar_comm_last_call(comm, last)
    call check(last%messages_sent == 2 * (ranks - 1) .and. last%messages_received == last%messages_sent, "messages")
    call check(abs(last%bytes_sent * ranks - 8000_int64 * last%messages_sent) < 8 * ranks * ranks, "bytes sent")
    call check(abs(last%bytes_received * ranks - 8000_int64 * last%messages_sent) < 8 * ranks * ranks, "bytes received")
    call check(last%plain_bytes_sent == last%bytes_sent, "bytes without encoding")
    call check(last%seconds > 0 .and. last%codec_seconds == 0, "seconds")
    call spar_start_allreduce(comm, x(::2), first, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "contiguous") > 0, "a section that is started")
  end subroutine

  recursive subroutine sparse_vectors(comm, rank, ranks)
    type(spar_comm), intent(in) :: comm
    integer, intent(in) :: rank, ranks
    integer(int64), parameter :: n = 1000
    integer(int32) :: indices(3)
    integer(int64) :: wide(2), count
    real(real32) :: values(3), dense(n)
    integer(int64) :: long_values(2)
    type(spar_stream) :: mine, sum
    type(spar_stream), target :: later
    type(spar_request) :: request
    integer(int32), pointer :: at(:)
    integer(int64), pointer :: wide_at(:), w(:)
    real(real32), pointer :: v(:)
    real(real64), pointer :: wrong(:)
    integer :: stat, r
    character(200) :: text
    ! The first index, the last, and one of this rank's own.
    indices = [1, 100 + rank, int(n, int32)]
    values = [1.0, 2.0, 3.0]
    call spar_allreduce_sparse(comm, n, indices, values, sum)
    call spar_count(sum, count)
    call spar_indices(sum, at)
    call spar_values(sum, v)
    call check(count == ranks + 2 .and. size(at) == count .and. size(v) == count, "the number of entries")
    call check(at(1) == 1 .and. at(2) == 100 .and. at(size(at)) == n, "indices that begin with 1")
    call check(v(1) == ranks .and. v(2) == 2 .and. v(size(v)) == 3 * ranks, "values of a sparse sum")
    call spar_to_dense(sum, dense)
    call check(dense(1) == ranks .and. all(dense(100:99 + ranks) == 2) .and. dense(n) == 3 * ranks, "as dense values")
    call check(count_of_zeros(dense) == n - ranks - 2, "zeros elsewhere")
    call spar_values(sum, wrong, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "type") > 0, "values of another type")
    call spar_stream_free(sum)
    call spar_count(sum, count, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. len_trim(text) > 0, "a stream that was freed")

    ! Indices in any order and repeated, then a call without waiting.
    call spar_coalesce(n, [7_int32, 5_int32, 7_int32], values, mine)
    call spar_start_allreduce_sparse(comm, mine, later, request)
    call spar_wait(request)
    call spar_to_dense(later, dense)
    call check(dense(5) == 2 * ranks .and. dense(7) == 4 * ranks .and. count_of_zeros(dense) == n - 2, "coalesce")
    call spar_stream_free(later)
    call spar_stream_free(mine)

    ! A full vector of short dimension: the sum is dense.
    do r = 1, 3
      indices(r) = r
    end do
    call spar_allreduce_sparse(comm, 3_int64, indices, values, sum)
    call spar_indices(sum, at)
    call spar_values(sum, v)
    call check(size(v) == 3 .and. all(v == ranks * values), "a dense sum")
    if (associated(at)) call check(all(at == indices), "indices of a full sum")
    call spar_to_dense(sum, dense(1:3))
    call check(all(dense(1:3) == ranks * values), "a dense sum as dense values")
    call spar_stream_free(sum)

    ! Wide indices and whole numbers.
    wide = [3000000000_int64, 4000000000_int64 + rank]
    long_values = [1_int64, int(rank, int64)]
    call spar_allreduce_sparse(comm, 5000000000_int64, wide, long_values, sum, algorithm="ssar_split")
    call spar_indices(sum, wide_at)
    call spar_values(sum, w)
    call check(wide_at(1) == wide(1) .and. w(1) == ranks .and. wide_at(size(w)) == 3999999999_int64 + ranks &
               .and. w(size(w)) == ranks - 1, "indices of 64 bits")
    call spar_stream_free(sum)

    ! No rank has entries.
    call spar_allreduce_sparse(comm, n, indices(1:0), values(1:0), sum)
    call spar_count(sum, count)
    call spar_indices(sum, at)
    call spar_values(sum, v)
    call check(count == 0 .and. .not. associated(at) .and. .not. associated(v), "an empty sum")
    dense = 7
    call spar_to_dense(sum, dense)
    call check(all(dense == 0), "an empty sum as dense values")
    call spar_stream_free(sum)

    ! Where no rank has an entry, a minimum is the neutral element.
    call spar_allreduce_sparse(comm, n, indices, values, sum, op=spar_min)
    call spar_to_dense(sum, dense)
    call check(dense(1) == 1 .and. dense(n) > huge(dense), "the neutral element of the minimum")
    call spar_stream_free(sum)

    call spar_allreduce_sparse(comm, n, [0_int32, 5_int32], values(1:2), sum, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "begin with 1") > 0, "an index 0")
    call spar_coalesce(n, [5_int32, 0_int32], values(1:2), sum, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "begin with 1") > 0, "an index 0 of coalesce")
    call spar_wait(request, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "spar_wait") > 0, "a request that has ended")

    call spar_allreduce_sparse(comm, n, indices, values(1:2), sum, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "3 indices, but 2 values") > 0, "other counts")
    call spar_allreduce_sparse(comm, n, [5_int32, 5_int32], values(1:2), sum, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "counted from 0") > 0, text)
    call spar_allreduce_sparse(comm, n, [5_int32, int(n + 1, int32)], values(1:2), sum, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "n + 1 here") > 0, "an index above n: "//text)
    call spar_allreduce_sparse(comm, -1_int64, indices, values, sum, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "-1") > 0, "a negative dimension")
  end subroutine

  recursive integer function count_of_zeros(x)
    real(real32), intent(in) :: x(:)
    count_of_zeros = count(x == 0)
  end function

  recursive subroutine other_collectives(comm, rank, ranks)
    type(spar_comm), intent(in) :: comm
    integer, intent(in) :: rank, ranks
    integer(int32) :: x(10)
    integer(int64) :: first, last
    integer :: r, stat
    logical :: grown
    character(200) :: text
    type(spar_comm) :: half
    call spar_block(10_int64, ranks, rank, first, last)
    x = -1
    x(first:last) = rank
    call spar_allgather(comm, x)
    do r = 0, ranks - 1
      call spar_block(10_int64, ranks, r, first, last)
      call check(all(x(first:last) == r), "allgather")
    end do
    x = [(r, r=1, 10)]
    call spar_reduce_scatter(comm, x)
    call spar_block(10_int64, ranks, rank, first, last)
    call check(all(x(first:last) == [(ranks * r, r=int(first), int(last))]), "reduce_scatter")
    x = rank
    call spar_broadcast(comm, x, ranks - 1)
    call check(all(x == ranks - 1), "broadcast")
    call spar_comm_split(comm, modulo(rank, 2), -rank, half)
    x = rank
    call spar_allreduce(half, x, op=spar_max)
    call check(modulo(x(1) - rank, 2) == 0 .and. x(1) >= ranks - 2, "split")
    call spar_comm_free(half)
    call spar_comm_grow(comm, half, grown, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "threads") > 0 .and. .not. grown, "grow")
  end subroutine

  recursive subroutine own_operation(comm, ranks)
    type(spar_comm), intent(in) :: comm
    integer, intent(in) :: ranks
    type(spar_op) :: add
    real(real64) :: x(7)
    x = 3
    call spar_op_create("add", add_values, 0.0_real64, add)
    call spar_allreduce(comm, x, op=add)
    call check(all(x == 3 * ranks), "an operation of the program")
    call spar_op_free(add)
  end subroutine

  recursive subroutine add_values(in, inout, count, context) bind(c)
    type(c_ptr), value :: in, inout
    integer(c_int64_t), value :: count
    type(c_ptr), value :: context
    real(real64), pointer :: a(:), b(:)
    call c_f_pointer(in, a, [count])
    call c_f_pointer(inout, b, [count])
    b = a + b
    if (c_associated(context)) b = -1
  end subroutine

  recursive subroutine partial_rounds(comm, rank, ranks)
    type(spar_comm), intent(in) :: comm
    integer, intent(in) :: rank, ranks
    type(spar_partial) :: everyone
    integer(c_int) :: presence(ranks)
    real(real64) :: x(4)
    integer :: stat
    character(200) :: text
    x = rank + 1
    call spar_comm_set_progress_thread(comm, .true., stat=stat, errmsg=text)
    call check(stat == spar_success .or. index(text, "MPI_THREAD_MULTIPLE") > 0, "a progress thread")
    call spar_partial_create(comm, x, "nobody", everyone, tau=-1, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "'tau' is -1") > 0, "a negative tau")
    call spar_partial_create(comm, x, "everyone", everyone, tau=2)
    call spar_partial_reduce(everyone, x, presence)
    call check(all(x == ranks * (ranks + 1) / 2) .and. all(presence == spar_fresh), "a round of everyone")
    x = 0
    if (ranks > 1) then
      call spar_partial_reduce(everyone, x, presence(1:1), stat=stat, errmsg=text)
      call check(stat == spar_err_invalid_argument .and. index(text, "presence") > 0, "a short presence")
    end if
    call spar_partial_drain(everyone, x)
    call spar_partial_free(everyone)
    call spar_comm_set_progress_thread(comm, .false.)
  end subroutine

  recursive subroutine feedback(comm, rank, ranks)
    type(spar_comm), intent(in) :: comm
    integer, intent(in) :: rank, ranks
    type(spar_feedback) :: reducer, resumed
    real(real64) :: x(100), again(100)
    real(real64), pointer :: residual(:)
    integer(int8), allocatable :: saved(:)
    integer :: stat, host
    character(200) :: text
    again = rank
    call spar_comm_set_hosts(comm, [(host / 2, host=1, ranks)])
    call spar_allreduce(comm, again, x, op=spar_max, algorithm="flexreduce")
    call check(all(x == ranks - 1), "a reduction over the tree of hosts")
    call spar_comm_set_hosts(comm, [1], stat=stat, errmsg=text)
    call check(ranks == 1 .or. (stat == spar_err_invalid_argument .and. index(text, "hosts") > 0), "hosts")
    call spar_comm_set_network(comm, 1e-6_real64, -1.0_real64, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "beta") > 0, "a negative cost of bytes")
    call spar_comm_set_network(comm, 1e-6_real64, 1e-10_real64)
    ! Each rank sends its largest value, which is the same on all ranks, and keeps the others.
    x = 1
    x(7) = 10
    x(20) = rank
    if (rank > 9) x(20) = 1
    call spar_feedback_create(comm, x, "topka:k=1", reducer)
    call spar_feedback_reduce(reducer, comm, x)
    call check(x(7) == 10 * ranks .and. count(x /= 0) == 1, "a sum of selected values")
    call spar_feedback_residual(reducer, residual)
    call check(size(residual) == 100 .and. residual(7) == 0 .and. residual(1) == 1, "a residual")
    call spar_feedback_save(reducer, saved)
    call spar_feedback_create(comm, x, "topka:k=1", resumed)
    call spar_feedback_load(resumed, saved)
    x = 0
    x(3) = 5
    again = x
    call spar_feedback_reduce(reducer, comm, x, op=spar_average)
    call spar_feedback_reduce(resumed, comm, again, op=spar_average)
    call check(any(x /= 0) .and. all(x == again), "a residual that was saved and loaded")
    call spar_feedback_load(resumed, saved(2:), stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. len_trim(text) > 0, "a damaged residual")
    call spar_feedback_free(reducer)
    call spar_feedback_free(resumed)
  end subroutine

  recursive subroutine errors(comm)
    type(spar_comm), intent(in) :: comm
    real(real32) :: x(2)
    integer :: stat
    character(300) :: text
    x = 1
    call spar_allreduce(comm, x, algorithm="rinq", stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. index(text, "rinq") > 0, "an unknown algorithm")
    call spar_allreduce(comm, x, op=spar_op(), stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. len_trim(text) > 0, "an operation that was not created")
    call spar_allreduce(spar_comm(), x, stat=stat, errmsg=text)
    call check(stat == spar_err_invalid_argument .and. len_trim(text) > 0, "a communicator that was not created")
  end subroutine

  ! Rank 0 is in Fortran. The others are in C, and pass a dimension and indices of their choice.
  recursive subroutine with_ranks_in_c(handle, rank, ranks)
    type(c_ptr), intent(in) :: handle
    integer, intent(in) :: rank, ranks
    integer(int32), target :: indices(2)
    real(real32), target :: values(2)
    real(real32) :: dense(10)
    integer :: stat
    character(400) :: text
    type(spar_stream) :: sum
    type(c_ptr) :: part, c_sum
    indices = [1, 10]
    values = [1.0, 2.0]
    ! With n + 1 and indices from 1, they have the vectors of Fortran.
    if (rank == 0) then
      call spar_allreduce_sparse(spar_comm_of(handle), 10_int64, indices, values, sum)
      call spar_to_dense(sum, dense)
      call check(dense(1) == ranks .and. dense(10) == 2 * ranks, "a sum with ranks in C")
      call spar_stream_free(sum)
    else
      stat = c_allreduce_sparse(handle, c_vector(11, 2, c_loc(indices), c_loc(values)), 1_c_int64_t, c_null_ptr, c_sum)
      call check(stat == spar_success, "a rank in C")
    end if
    ! With n and indices from 0, all ranks get an error.
    if (ranks == 1) return
    stat = c_comm_split(handle, 0, 0, part)
    indices = [0, 9]
    text = ""
    if (rank == 0) then
      call spar_allreduce_sparse(spar_comm_of(part), 10_int64, indices + 1, values, sum, stat=stat, errmsg=text)
      call check(index(text, "11") > 0 .and. index(text, "10") > 0 .and. index(text, "n + 1 here") > 0, trim(text))
    else
      stat = c_allreduce_sparse(part, c_vector(10, 2, c_loc(indices), c_loc(values)), 1_c_int64_t, c_null_ptr, c_sum)
    end if
    call check(stat == spar_err_mismatch .or. (stat == spar_err_peer_failed .and. ranks > 2), &
               "a dimension of C: "//trim(text))
    stat = c_comm_free(part)
  end subroutine

  recursive function program_of_rank(handle, context) result(status) bind(c)
    type(c_ptr), value :: handle, context
    integer(c_int) :: status
    type(spar_comm) :: comm
    integer :: rank, ranks
    comm = spar_comm_of(handle)
    call spar_comm_set_deadline(comm, 60.0_real64)
    call spar_comm_rank(comm, rank)
    call spar_comm_size(comm, ranks)
    call dense_values(comm, rank, ranks)
    call without_waiting(comm, ranks)
    call sparse_vectors(comm, rank, ranks)
    call other_collectives(comm, rank, ranks)
    call own_operation(comm, ranks)
    call partial_rounds(comm, rank, ranks)
    call feedback(comm, rank, ranks)
    call errors(comm)
    call with_ranks_in_c(handle, rank, ranks)
    status = 0
    if (c_associated(context)) status = 1
  end function

end module

program interface_test
  use checks
  implicit none
  integer, parameter :: numbers(6) = [1, 2, 3, 4, 5, 8]
  integer :: i, stat
  character(200) :: text
  do i = 1, size(numbers)
    call spar_run_threads(numbers(i), program_of_rank)
  end do
  call spar_run_threads(0, program_of_rank, stat=stat, errmsg=text)
  call check(stat == spar_err_invalid_argument .and. index(text, "0") > 0, "no ranks")
  call check(len(spar_version()) >= 5, "version")
  if (failures > 0) error stop 1
  print "(a)", "all checks hold"
end program
