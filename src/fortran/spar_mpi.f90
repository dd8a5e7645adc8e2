! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
!> Communicators of MPI for the module spar. Compile this file after spar.f90, with the compiler of the MPI library, and
!> link libspar-openmpi or libspar-mpich as well as libspar.
module spar_mpi
  use, intrinsic :: iso_c_binding
  use mpi_f08, only: MPI_Comm
  use spar, only: spar_comm, spar_comm_of, spar_finish
  implicit none
  private

  !> Makes a communicator from one of MPI, either the integer of the module mpi or a type(MPI_Comm) of the module
  !> mpi_f08: a collective call, after MPI_Init. Free the result before MPI_Finalize.
  interface spar_comm_from_mpi
    procedure :: from_integer, from_object
  end interface
  public :: spar_comm_from_mpi

  interface
    integer(c_int) function c_comm_from_mpi(mpi, comm) bind(c, name="spar_comm_from_mpi_fint")
      import :: c_int, c_ptr
      integer(c_int), value :: mpi ! an INTEGER of the MPI library, which has this kind
      type(c_ptr) :: comm
    end function
  end interface

contains

  subroutine from_integer(mpi, comm, stat, errmsg)
    integer, intent(in) :: mpi
    type(spar_comm), intent(out) :: comm
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = c_null_ptr
    call spar_finish(c_comm_from_mpi(int(mpi, c_int), handle), stat, errmsg)
    comm = spar_comm_of(handle)
  end subroutine

  subroutine from_object(mpi, comm, stat, errmsg)
    type(MPI_Comm), intent(in) :: mpi
    type(spar_comm), intent(out) :: comm
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call from_integer(mpi%mpi_val, comm, stat, errmsg)
  end subroutine

end module
