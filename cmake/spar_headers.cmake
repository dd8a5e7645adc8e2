# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Checks that every header compiles alone: compiles one source file per header as C++ (headers for MPI once per MPI
# library) and, if nvcc is present, one source file with all headers as CUDA.

if(NOT SPAR_REPOSITORY_CHECKS)
  return()
endif()

file(GLOB_RECURSE spar_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include"
     "${PROJECT_SOURCE_DIR}/include/*.hpp")
file(GLOB_RECURSE spar_cuda_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include"
     "${PROJECT_SOURCE_DIR}/include/*.cuh")

set(spar_mpi_headers ${spar_headers})
list(FILTER spar_headers EXCLUDE REGEX "/(any_)?mpi[^/]*$|/mpi/")
list(FILTER spar_mpi_headers INCLUDE REGEX "/(any_)?mpi[^/]*$|/mpi/")

# Host code for CUDA and NCCL needs their headers; the file with all headers checks it.
set(spar_cuda_host_headers ${spar_headers})
list(FILTER spar_cuda_host_headers INCLUDE REGEX "spar/cuda|/nccl")
list(FILTER spar_headers EXCLUDE REGEX "spar/cuda|/nccl")
if(NOT SPAR_NCCL_INCLUDE_DIR)
  list(FILTER spar_cuda_host_headers EXCLUDE REGEX "/nccl")
  list(FILTER spar_cuda_headers EXCLUDE REGEX "/stream_ordered")
endif()

set(spar_ucx_headers ${spar_headers})
list(FILTER spar_headers EXCLUDE REGEX "/(any_)?ucx")
list(FILTER spar_ucx_headers INCLUDE REGEX "/(any_)?ucx")

# Tests compile it, if there is a PMIx.
list(FILTER spar_headers EXCLUDE REGEX "spar/pmix")

if(NOT nlohmann_json_FOUND)
  list(FILTER spar_headers EXCLUDE REGEX "_json")
endif()

if(NOT TARGET spar_zfp)
  list(FILTER spar_headers EXCLUDE REGEX "/zfp_field")
endif()

# Writes one source file per header to headers/<kind>/ in the build tree, and stores their paths in `variable`.
function(spar_write_units variable kind extension)
  set(units "")
  foreach(header IN LISTS ARGN)
    string(REPLACE "/" "__" stem "${header}")
    set(unit "${PROJECT_BINARY_DIR}/headers/${kind}/${stem}.${extension}")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "#include <${header}>\n")
    list(APPEND units "${unit}")
  endforeach()
  set(${variable} ${units} PARENT_SCOPE)
endfunction()

add_custom_target(spar_headers_alone)

function(spar_compile_headers target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LIBRARIES")
  if(NOT arg_HEADERS)
    return()
  endif()
  spar_write_units(units ${target} cpp ${arg_HEADERS})
  add_library(${target} OBJECT ${units})
  target_link_libraries(${target} PRIVATE spar_development ${arg_LIBRARIES})
  target_compile_options(${target} PRIVATE -O0)
  add_dependencies(spar_headers_alone ${target})
endfunction()

spar_compile_headers(spar_headers_host HEADERS ${spar_headers} LIBRARIES $<TARGET_NAME_IF_EXISTS:spar_zfp>)
if(TARGET spar_ucx)
  spar_compile_headers(spar_headers_ucx HEADERS ${spar_ucx_headers} LIBRARIES spar_ucx)
endif()
foreach(flavour IN LISTS spar_mpi_flavours)
  spar_compile_headers(spar_headers_${flavour} HEADERS ${spar_mpi_headers} LIBRARIES spar_mpi_${flavour})
endforeach()

add_test(NAME headers.alone COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --target spar_headers_alone)
set_tests_properties(headers.alone PROPERTIES TIMEOUT 600 RUN_SERIAL TRUE LABELS "lint;full")

# nvcc takes seconds per source file, so one file includes all headers. The tests in tests/cuda instantiate them.
if(SPAR_NVCC)
  set(included ${spar_headers} ${spar_cuda_host_headers} ${spar_cuda_headers})
  list(TRANSFORM included PREPEND "#include <")
  list(TRANSFORM included APPEND ">\n")
  list(JOIN included "" text)
  set(source "${PROJECT_BINARY_DIR}/headers/cuda/all.cu")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${text}" @ONLY)
  spar_compile_cuda(object "${source}")
  add_custom_target(spar_headers_cuda DEPENDS "${object}")
  add_test(NAME headers.cuda COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --target spar_headers_cuda)
  set_tests_properties(headers.cuda PROPERTIES TIMEOUT 600 RUN_SERIAL TRUE LABELS "lint;full")
endif()
