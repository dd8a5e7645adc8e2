! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! Processes without MPI in Fortran: the last of three leaves, and the others go on.
program ucx_test
  use, intrinsic :: iso_fortran_env, only: real32
  use spar
  use spar_ucx
  implicit none
  type(spar_comm) :: world, rest, wider
  real(real32) :: x(3)
  integer :: rank, ranks, stat
  logical :: grown
  character(200) :: text

  call spar_comm_from_environment(world)
  call spar_comm_rank(world, rank)
  call spar_comm_size(world, ranks)
  call expect(ranks == 3, "three ranks")
  x = 1
  call spar_allreduce(world, x)
  call expect(all(x == 3), "the sum of all ranks")
  grown = .true.
  call spar_comm_grow(world, wider, grown)
  call expect(.not. grown, "nobody has joined")
  if (rank == 2) then
    call spar_comm_free(world)
    stop
  end if

  call spar_allreduce(world, x, stat=stat, errmsg=text)
  call expect(stat == spar_err_peer_failed, "the last rank is lost: " // text)
  call spar_comm_shrink(world, rest)
  call spar_comm_shrink(world, wider, stat=stat, errmsg=text)
  call expect(stat == spar_err_invalid_argument .and. index(text, "shrink before") > 0, "a second shrink: " // text)
  call spar_comm_free(world)
  x = 1
  call spar_allreduce(rest, x)
  call expect(all(x == 2), "the sum of the ranks that are left")
  call spar_comm_free(rest)

  call spar_comm_grow(rest, wider, grown, stat=stat, errmsg=text)
  call expect(stat == spar_err_invalid_argument .and. .not. grown, "grow of no communicator: " // text)
  if (rank == 0) print "(a)", "all checks hold"

contains

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    if (holds) return
    print "(a, i0, 2a)", "rank ", rank, ": not so: ", what
    error stop 1
  end subroutine

end program
