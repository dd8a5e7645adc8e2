! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! The charge density of a particle code. Each rank has particles in a small part of the plane, and deposits the charge
! of each into the four nearest cells of a grid. The ranks need the charge of all particles: a sum of grids that are
! almost empty. Prints what was sent, and compares the sum with that of MPI_Allreduce.
program charge
  use, intrinsic :: iso_fortran_env, only: int32, int64, real64
  use mpi_f08
  use spar
  use spar_mpi
  implicit none

  integer(int64), parameter :: nx = 1024, ny = 1024, cells = nx * ny
  integer, parameter :: particles = 20000
  integer(int32), allocatable :: indices(:)
  real(real64), allocatable :: weights(:), density(:), expected(:)
  type(spar_comm) :: comm
  type(spar_stream) :: mine, total
  integer(int64) :: entries
  integer :: rank, ranks
  real(real64) :: error

  call MPI_Init()
  call spar_comm_from_mpi(MPI_COMM_WORLD, comm)
  call spar_comm_rank(comm, rank)
  call spar_comm_size(comm, ranks)

  call deposit(rank, indices, weights)
  call spar_coalesce(cells, indices, weights, mine)
  call spar_allreduce_sparse(comm, mine, total)
  allocate (density(cells))
  call spar_to_dense(total, density)

  allocate (expected(cells), source=0.0_real64)
  block
    integer :: j
    do j = 1, size(indices)
      expected(indices(j)) = expected(indices(j)) + weights(j)
    end do
  end block
  call MPI_Allreduce(MPI_IN_PLACE, expected, int(cells), MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  error = maxval(abs(density - expected))

  call spar_count(total, entries)
  if (rank == 0) then
    print "(a, i0, a, i0, a)", "charge of ", ranks * particles, " particles of ", ranks, " ranks"
    print "(a, f0.3)", "total charge: ", sum(density)
    print "(a, i0, a, i0)", "cells with charge: ", entries, " of ", cells
    print "(a, es8.1)", "largest difference from MPI_Allreduce: ", error
  end if
  call spar_stream_free(mine)
  call spar_stream_free(total)
  call spar_comm_free(comm)
  call MPI_Finalize()
  if (error > 1e-12_real64) error stop 1

contains

  !> Four entries for each particle: cells in any order, and repeated. The particles of rank r lie around a point of
  !> its own.
  subroutine deposit(rank, indices, weights)
    integer, intent(in) :: rank
    integer(int32), allocatable, intent(out) :: indices(:)
    real(real64), allocatable, intent(out) :: weights(:)
    real(real64) :: place(2), low(2)
    integer(int64) :: i, j
    integer :: p
    allocate (indices(4 * particles), weights(4 * particles))
    call random_seed_of(rank)
    do p = 1, particles
      call random_number(place)
      place = [200 + 30 * rank, 300] + 40 * place
      i = int(place(1), int64)
      j = int(place(2), int64)
      low = 1 - (place - [i, j])
      indices(4 * p - 3:4 * p) = int([cell(i, j), cell(i + 1, j), cell(i, j + 1), cell(i + 1, j + 1)], int32)
      weights(4 * p - 3:4 * p) = [low(1) * low(2), (1 - low(1)) * low(2), low(1) * (1 - low(2)), &
                                  (1 - low(1)) * (1 - low(2))]
    end do
  end subroutine

  pure integer(int64) function cell(i, j)
    integer(int64), intent(in) :: i, j
    cell = modulo(i, nx) + nx * modulo(j, ny) + 1
  end function

  subroutine random_seed_of(rank)
    integer, intent(in) :: rank
    integer :: length, i
    call random_seed(size=length)
    call random_seed(put=[(1000 * rank + i, i=1, length)])
  end subroutine

end program
