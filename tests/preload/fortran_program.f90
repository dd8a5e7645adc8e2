! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! A Fortran program that uses only MPI: sums of all kinds, in place and not.
program fortran_program
  use mpi
  implicit none
  integer, parameter :: n = 20000
  integer :: rank, ranks, error, failures, i
  real :: x(n), y(n)
  double precision :: z(n)
  integer :: k(n)

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  failures = 0
  x = real(rank + 1)
  call MPI_Allreduce(x, y, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, error)
  if (error /= MPI_SUCCESS .or. any(y /= real(ranks * (ranks + 1) / 2))) failures = failures + 1
  z = dble(rank)
  call MPI_Allreduce(MPI_IN_PLACE, z, n, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, error)
  if (error /= MPI_SUCCESS .or. any(z /= dble(ranks - 1))) failures = failures + 1
  do i = 1, n
    k(i) = rank + i
  end do
  call MPI_Allreduce(MPI_IN_PLACE, k, n, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, error)
  if (error /= MPI_SUCCESS .or. k(1) /= 1 .or. k(n) /= n) failures = failures + 1
  print '(i0, a)', failures, ' failures'
  call MPI_Finalize(error)
  if (failures > 0) stop 1
end program
