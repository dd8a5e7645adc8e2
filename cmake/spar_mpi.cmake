# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Finds the MPI libraries of this machine: defines an interface target spar_mpi_<flavour> for each of Open MPI and
# MPICH, because find_package(MPI) finds only one library. Tests and tools are built for every installed library.

set(spar_mpi_flavours "")

# Takes include directories, library directories and libraries from the output of a compiler wrapper. Omits the C++
# bindings, which MPI-3 removed, and the flags with which the distribution built its package.
function(spar_import_mpi flavour)
  separate_arguments(words UNIX_COMMAND "${ARGN}")
  add_library(spar_mpi_${flavour} INTERFACE)
  target_compile_definitions(spar_mpi_${flavour} INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1 SPAR_WITH_MPI=1)
  foreach(word IN LISTS words)
    if(word MATCHES "^-I(.+)$")
      target_include_directories(spar_mpi_${flavour} SYSTEM INTERFACE "${CMAKE_MATCH_1}")
    elseif(word MATCHES "^-L(.+)$")
      target_link_directories(spar_mpi_${flavour} INTERFACE "${CMAKE_MATCH_1}")
    elseif(word MATCHES "^-l(mpi_cxx|mpichcxx|mpicxx)$")
      continue()
    elseif(word MATCHES "^-l(.+)$")
      target_link_libraries(spar_mpi_${flavour} INTERFACE "${CMAKE_MATCH_1}")
    elseif(word MATCHES "^-Wl,-rpath")
      target_link_options(spar_mpi_${flavour} INTERFACE "${word}")
    endif()
  endforeach()
  set(spar_mpi_flavours ${spar_mpi_flavours} ${flavour} PARENT_SCOPE)
  message(STATUS "spar: ${flavour} found")
endfunction()

# Finds the compiler wrapper of a flavour: mpicxx.<flavour> (Debian), or mpicxx if it belongs to this flavour.
function(spar_find_mpi flavour compile_query link_query)
  find_program(SPAR_MPICXX_${flavour} NAMES mpicxx.${flavour})
  find_program(SPAR_MPICXX NAMES mpicxx mpic++)
  foreach(wrapper IN ITEMS "${SPAR_MPICXX_${flavour}}" "${SPAR_MPICXX}")
    if(wrapper)
      execute_process(COMMAND "${wrapper}" ${compile_query} RESULT_VARIABLE status OUTPUT_VARIABLE compile
                      ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
      execute_process(COMMAND "${wrapper}" ${link_query} RESULT_VARIABLE link_status OUTPUT_VARIABLE link
                      ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(status EQUAL 0 AND link_status EQUAL 0)
        spar_import_mpi(${flavour} "${compile} ${link}")
        set(spar_mpi_flavours ${spar_mpi_flavours} PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

if(CMAKE_CXX_COMPILER MATCHES "smpicxx$") # SimGrid's compiler includes its MPI library
  spar_import_mpi(smpi)
  add_compile_definitions(SMPI_HELPERS_H=1) # no macros for exit and other names that occur in C++ headers
elseif(NOT CMAKE_CROSSCOMPILING) # else the wrappers are those of another processor
  spar_find_mpi(openmpi --showme:compile --showme:link)
  spar_find_mpi(mpich -compile_info -link_info)
endif()

if(SPAR_SANITIZE MATCHES "thread")
  # ThreadSanitizer reports races inside Open MPI and crashes MPICH. The threads transport covers spar's own code.
  set(spar_mpi_flavours "")
elseif(NOT spar_mpi_flavours)
  spar_missing("MPI" "neither Open MPI nor MPICH found")
elseif(NOT "smpi" IN_LIST spar_mpi_flavours)
  if(NOT "openmpi" IN_LIST spar_mpi_flavours)
    spar_missing("Open MPI" "no mpicxx.openmpi")
  endif()
  if(NOT "mpich" IN_LIST spar_mpi_flavours)
    spar_missing("MPICH" "no mpicxx.mpich")
  endif()
endif()

# spar_add_mpi_program(name SOURCES file... [LIBRARIES lib...] [FULL]): adds <name>_<flavour> for each MPI library. The
# text <flavour> in the name of a library stands for openmpi or mpich. The quick set builds only the first program, and
# none that is FULL; scripts/program builds any of them.
function(spar_add_mpi_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FULL" "" "SOURCES;LIBRARIES")
  set(full "")
  if(arg_FULL)
    set(full FULL)
  endif()
  foreach(flavour IN LISTS spar_mpi_flavours)
    string(REPLACE "<flavour>" "${flavour}" libraries "${arg_LIBRARIES}")
    spar_add_program(${name}_${flavour} SOURCES ${arg_SOURCES} LIBRARIES spar_mpi_${flavour} ${libraries} ${full})
    set(full FULL)
  endforeach()
endfunction()

# Sets `variable` to whether `flavour` is the first MPI library, the only one with sanitized tests.
function(spar_is_first variable flavour)
  list(GET spar_mpi_flavours 0 first)
  string(COMPARE EQUAL "${flavour}" "${first}" is_first)
  set(${variable} ${is_first} PARENT_SCOPE)
endfunction()

# The communicators of the compiled library over each MPI library.
add_custom_target(spar_compiled_mpi)
foreach(flavour IN LISTS spar_mpi_flavours)
  add_library(spar_compiled_mpi_${flavour} STATIC EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/src/any/mpi.cpp"
                                                                   "${PROJECT_SOURCE_DIR}/src/c/mpi.cpp")
  target_link_libraries(spar_compiled_mpi_${flavour} PUBLIC spar_compiled spar_mpi_${flavour})
  set_target_properties(spar_compiled_mpi_${flavour} PROPERTIES OUTPUT_NAME spar-${flavour}
                                                                POSITION_INDEPENDENT_CODE ON)
  add_dependencies(spar_compiled_mpi spar_compiled_mpi_${flavour})
  if(SPAR_INSTALL)
    install(TARGETS spar_compiled_mpi_${flavour} OPTIONAL COMPONENT libspar-${flavour}-dev)
  endif()
endforeach()
