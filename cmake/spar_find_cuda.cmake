# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Finds what spar::cuda and spar::nccl need, for this project and for projects that use spar.

# spar_find_cuda(reason): finds the CUDA runtime, the target CUDA::cudart. Sets `reason` to what is missing, or empty.
function(spar_find_cuda reason)
  find_package(CUDAToolkit QUIET)
  set(why "")
  if(NOT TARGET CUDA::cudart)
    set(why "found no CUDA toolkit with libcudart.so: set CUDAToolkit_ROOT to its folder")
  endif()
  set(${reason} "${why}" PARENT_SCOPE)
endfunction()

# spar_use_cuda_20(target scope): lets nvcc compile by C++20, which spar's headers need.
function(spar_use_cuda_20 target scope)
  if(CMAKE_VERSION VERSION_LESS 3.26) # does not know that nvcc has C++20
    target_compile_options(${target} ${scope} "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>")
  else()
    target_compile_features(${target} ${scope} cuda_std_20)
  endif()
endfunction()

# spar_link_cuda(target): makes `target` the library with CUDA::cudart.
function(spar_link_cuda target)
  spar_use_cuda_20(${target} INTERFACE)
  target_link_libraries(${target} INTERFACE spar::spar CUDA::cudart)
endfunction()

# spar_find_nccl(reason): finds NCCL in the folder NCCL_ROOT, a variable of CMake or of the environment; without it, in
# the wheel nvidia-nccl-cu13 of python3, in the CUDA toolkit, or in the system. Sets the cache variables
# SPAR_NCCL_INCLUDE_DIR and SPAR_NCCL_LIBRARY, and `reason` to what is missing, or empty.
function(spar_find_nccl reason)
  set(root "${NCCL_ROOT}")
  if(NOT root)
    set(root "$ENV{NCCL_ROOT}")
  endif()
  if(root)
    set(places PATHS "${root}" NO_DEFAULT_PATH)
    set(where "in NCCL_ROOT, ${root}")
  else()
    if(NOT SPAR_NCCL_INCLUDE_DIR AND NOT CMAKE_CROSSCOMPILING)
      execute_process(COMMAND python3 -c "import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])"
                      OUTPUT_VARIABLE wheel ERROR_QUIET RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
    endif()
    find_package(CUDAToolkit QUIET)
    set(places HINTS ${wheel} ${CUDAToolkit_INCLUDE_DIRS})
    set(where "in the wheel nvidia-nccl-cu13 of python3, the CUDA toolkit, or the system: set NCCL_ROOT to its folder")
  endif()
  find_path(SPAR_NCCL_INCLUDE_DIR nccl.h ${places} PATH_SUFFIXES include)
  # The library beside the header; the wheel has no link libnccl.so.
  find_library(SPAR_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS "${SPAR_NCCL_INCLUDE_DIR}/.." PATH_SUFFIXES lib64 lib)
  set(why "")
  if(NOT SPAR_NCCL_INCLUDE_DIR)
    set(why "found no nccl.h ${where}")
  elseif(NOT SPAR_NCCL_LIBRARY)
    set(why "found ${SPAR_NCCL_INCLUDE_DIR}/nccl.h, but no libnccl.so beside it or in the system")
  else()
    file(STRINGS "${SPAR_NCCL_INCLUDE_DIR}/nccl.h" version REGEX "#define NCCL_(MAJOR|MINOR) ")
    list(TRANSFORM version REPLACE "[^0-9]+" "")
    list(JOIN version "." version)
    if(version VERSION_LESS 2.14)
      set(why "needs NCCL 2.14 or later; ${SPAR_NCCL_INCLUDE_DIR}/nccl.h is of version ${version}")
    endif()
  endif()
  set(${reason} "${why}" PARENT_SCOPE)
endfunction()
