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
list(FILTER spar_headers EXCLUDE REGEX "/mpi[^/]*$|/mpi/")
list(FILTER spar_mpi_headers INCLUDE REGEX "/mpi[^/]*$|/mpi/")

if(NOT nlohmann_json_FOUND)
  list(FILTER spar_headers EXCLUDE REGEX "_json")
endif()

if(NOT TARGET spar::zfp)
  list(FILTER spar_headers EXCLUDE REGEX "/zfp")
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

spar_compile_headers(spar_headers_host HEADERS ${spar_headers} LIBRARIES $<TARGET_NAME_IF_EXISTS:spar::zfp>)
foreach(flavour IN LISTS spar_mpi_flavours)
  spar_compile_headers(spar_headers_${flavour} HEADERS ${spar_mpi_headers} LIBRARIES spar_mpi_${flavour})
endforeach()

add_test(NAME headers.alone COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --target spar_headers_alone)
set_tests_properties(headers.alone PROPERTIES TIMEOUT 600 RUN_SERIAL TRUE LABELS "lint;full")

find_program(SPAR_NVCC nvcc HINTS /usr/local/cuda/bin "$ENV{CUDA_HOME}/bin")
find_program(SPAR_NVCC_HOST NAMES g++-12 g++)
if(NOT SPAR_NVCC)
  spar_missing("CUDA" "no nvcc")
  return()
endif()

# nvcc takes seconds per source file, so there is no file per header: one file includes all headers and, in the quick
# set, one file includes spar/spar.hpp.
foreach(unit IN ITEMS all front)
  if(unit STREQUAL "front")
    set(included "spar/spar.hpp")
    set(label "")
  else()
    set(included ${spar_headers} ${spar_cuda_headers})
    set(label ";full")
  endif()
  list(TRANSFORM included PREPEND "#include <")
  list(TRANSFORM included APPEND ">\n")
  list(JOIN included "" text)
  set(source "${PROJECT_BINARY_DIR}/headers/cuda/${unit}.cu")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${text}" @ONLY)
  add_custom_command(
    OUTPUT "${source}.o"
    COMMAND "${SPAR_NVCC}" -std=c++20 -x cu -ccbin "${SPAR_NVCC_HOST}" -I "${PROJECT_SOURCE_DIR}/include" -MD -MF
            "${source}.d" -c "${source}" -o "${source}.o"
    DEPENDS "${source}"
    DEPFILE "${source}.d"
    COMMENT "nvcc ${source}"
    VERBATIM)
  add_custom_target(spar_headers_cuda_${unit} DEPENDS "${source}.o")
  add_test(NAME headers.cuda_${unit} COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --target
                                             spar_headers_cuda_${unit})
  set_tests_properties(headers.cuda_${unit} PROPERTIES TIMEOUT 600 RUN_SERIAL TRUE LABELS "lint${label}")
endforeach()
