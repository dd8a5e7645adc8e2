! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! A user's program in Fortran with the compiled library: sums values of four in-process ranks.
module ranks
  use, intrinsic :: iso_c_binding, only: c_int, c_ptr
  use spar
  implicit none

contains

  recursive function add(comm, context) result(status) bind(c)
    type(c_ptr), value :: comm, context
    integer(c_int) :: status
    real :: x(2)
    x = [1, 2]
    call spar_allreduce(spar_comm_of(comm), x)
    status = merge(0, 1, all(x == [4, 8]))
  end function

end module

program consumer
  use ranks
  implicit none
  call spar_run_threads(4, add)
end program
