# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Compiles the sources of tests, benchmarks and examples with nvcc. CMake's language CUDA is only for libspar-cuda, with
# the option SPAR_CUDA: to enable it fails on machines without a CUDA compiler, and it would replace the compile options
# of spar's own programs.

find_program(SPAR_NVCC nvcc HINTS /usr/local/cuda/bin "$ENV{CUDA_HOME}/bin")
find_program(SPAR_NVCC_HOST NAMES g++-12 g++)
find_path(SPAR_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS /usr/local/cuda/include "$ENV{CUDA_HOME}/include")
find_library(SPAR_CUDART cudart_static HINTS /usr/local/cuda/lib64 "$ENV{CUDA_HOME}/lib64")
if(NOT SPAR_NVCC OR NOT SPAR_CUDART)
  set(SPAR_NVCC "")
  spar_missing("CUDA" "no nvcc, or no libcudart_static.a")
endif()

if(SPAR_CUDA_INCLUDE_DIR AND spar_no_nccl)
  spar_missing("NCCL" "${spar_no_nccl}")
endif()

# spar_compile_cuda(variable source [LIBRARIES lib...]): sets `variable` to the object file that nvcc makes of `source`,
# with the include directories and definitions of the libraries. Warnings of nvcc are errors, except 177: a function of
# a test that only a static_assert uses counts as unused.
function(spar_compile_cuda variable source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LIBRARIES")
  set(options "")
  foreach(library IN LISTS arg_LIBRARIES)
    set(includes "$<TARGET_PROPERTY:${library},INTERFACE_INCLUDE_DIRECTORIES>")
    set(definitions "$<TARGET_PROPERTY:${library},INTERFACE_COMPILE_DEFINITIONS>")
    list(APPEND options "$<$<BOOL:${includes}>:-I$<JOIN:${includes},$<SEMICOLON>-I>>"
         "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},$<SEMICOLON>-D>>")
  endforeach()
  set(optimised "") # as the other programs of the preset are
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT CMAKE_CXX_FLAGS_RELEASE MATCHES "-Og")
    set(optimised -O3)
  endif()
  cmake_path(GET source STEM name)
  string(MD5 hash "${source} ${arg_LIBRARIES}")
  string(SUBSTRING "${hash}" 0 8 hash)
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.${hash}.cuda.o")
  add_custom_command(
    OUTPUT "${object}"
    COMMAND
      "${SPAR_NVCC}" -std=c++20 ${optimised} -x cu -arch=sm_80 -ccbin "${SPAR_NVCC_HOST}" --Werror all-warnings
      -diag-suppress 177 -I "${PROJECT_SOURCE_DIR}/include" -I "${PROJECT_SOURCE_DIR}/tests" ${options} -MD -MF
      "${object}.d" -c "${source}" -o "${object}"
    DEPENDS "${source}"
    DEPFILE "${object}.d"
    COMMENT "nvcc ${name}"
    COMMAND_EXPAND_LISTS VERBATIM)
  set(${variable} "${object}" PARENT_SCOPE)
endfunction()

# spar_add_cuda_program(target SOURCES file... [LIBRARIES lib...] [FULL]): adds a program that nvcc compiles. It needs
# no GPU and no driver unless it calls the CUDA runtime.
function(spar_add_cuda_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FULL" "" "SOURCES;LIBRARIES")
  set(objects "")
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    spar_compile_cuda(object "${source}" LIBRARIES ${arg_LIBRARIES})
    list(APPEND objects "${object}")
  endforeach()
  set(full "")
  if(arg_FULL)
    set(full FULL)
  endif()
  spar_add_program(${target} SOURCES ${objects} LIBRARIES ${arg_LIBRARIES} "${SPAR_CUDART}" ${CMAKE_DL_LIBS} rt
                   PRECOMPILED NONE ${full})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()
