! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! The same with the module of Fortran 2008.
program fortran08_program
  use mpi_f08
  implicit none
  integer, parameter :: n = 20000
  integer :: rank, ranks, failures
  real :: x(n)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  failures = 0
  x = real(rank + 1)
  call MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
  if (any(x /= real(ranks * (ranks + 1) / 2))) failures = failures + 1
  print '(i0, a)', failures, ' failures'
  call MPI_Finalize()
  if (failures > 0) stop 1
end program
