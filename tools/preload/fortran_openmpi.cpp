// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fortran entry points for Open MPI: its own call the C functions by their PMPI names and thus bypass this library.
// MPICH's call the MPI names.
#include "interface.hpp"

#include <mpi.h>

#include <dlfcn.h>

namespace {

/// The MPI library's function of this name.
template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// The addresses that Fortran passes for MPI_IN_PLACE and MPI_BOTTOM; null if the MPI library does not define them.
const void* in_place() noexcept {
  static const void* const place = dlsym(RTLD_DEFAULT, "mpi_fortran_in_place_");
  return place;
}
const void* bottom() noexcept {
  static const void* const place = dlsym(RTLD_DEFAULT, "mpi_fortran_bottom_");
  return place;
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

// `mpif.h` and `use mpi` call mpi_allreduce_; `use mpi_f08` calls ompi_allreduce_f.
void ompi_init_f(MPI_Fint* error) {
  next<void (*)(MPI_Fint*)>("ompi_init_f")(error);
  preload::after_init();
}
void mpi_init_(MPI_Fint* error) { ompi_init_f(error); }

void ompi_init_thread_f(MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error) {
  next<void (*)(MPI_Fint*, MPI_Fint*, MPI_Fint*)>("ompi_init_thread_f")(required, provided, error);
  preload::after_init();
}
void mpi_init_thread_(MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error) {
  ompi_init_thread_f(required, provided, error);
}

void ompi_finalize_f(MPI_Fint* error) {
  preload::before_finalize();
  next<void (*)(MPI_Fint*)>("ompi_finalize_f")(error);
}
void mpi_finalize_(MPI_Fint* error) { ompi_finalize_f(error); }

void ompi_allreduce_f(char* send, char* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
                      MPI_Fint* error) {
  const void* const from = send != nullptr && send == in_place() ? MPI_IN_PLACE : send;
  if (bottom() == nullptr || (send != bottom() && receive != bottom())) {
    const auto code =
        preload::take_over(from, receive, *count, MPI_Type_f2c(*type), MPI_Op_f2c(*op), MPI_Comm_f2c(*comm));
    if (code) {
      if (error != nullptr) *error = *code;
      return;
    }
  }
  using function = void (*)(char*, char*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*);
  static const function own = next<function>("ompi_allreduce_f");
  own(send, receive, count, type, op, comm, error);
}
void mpi_allreduce_(char* send, char* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
                    MPI_Fint* error) {
  ompi_allreduce_f(send, receive, count, type, op, comm, error);
}
}
#pragma GCC visibility pop
