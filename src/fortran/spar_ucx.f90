! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
!> Communicators of processes without MPI for the module spar. Compile this file after spar.f90, and link libspar-ucx as
!> well as libspar.
module spar_ucx
  use, intrinsic :: iso_c_binding
  use spar, only: spar_comm, spar_comm_of, spar_finish
  implicit none
  private
  public :: spar_comm_from_environment, spar_comm_join

  interface
    integer(c_int) function c_comm_from_environment(comm) bind(c, name="spar_comm_from_environment")
      import :: c_int, c_ptr
      type(c_ptr) :: comm
    end function
    integer(c_int) function c_comm_join(comm) bind(c, name="spar_comm_join")
      import :: c_int, c_ptr
      type(c_ptr) :: comm
    end function
  end interface

contains

  !> Makes a communicator of the processes of a job, which meet where the variables of the environment say: a collective
  !> call.
  subroutine spar_comm_from_environment(comm, stat, errmsg)
    type(spar_comm), intent(out) :: comm
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = c_null_ptr
    call spar_finish(c_comm_from_environment(handle), stat, errmsg)
    comm = spar_comm_of(handle)
  end subroutine

  !> Joins the processes of a job when they call `spar_comm_grow` next: `comm` is the communicator that they get.
  subroutine spar_comm_join(comm, stat, errmsg)
    type(spar_comm), intent(out) :: comm
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = c_null_ptr
    call spar_finish(c_comm_join(handle), stat, errmsg)
    comm = spar_comm_of(handle)
  end subroutine

end module
