# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Compile options of spar's own programs; users of spar::spar do not inherit them.

set(CMAKE_CXX_EXTENSIONS OFF)

add_library(spar_development INTERFACE)
target_link_libraries(spar_development INTERFACE spar)
target_compile_options(spar_development INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # -Wrestrict gives false warnings for `"literal" + std::string` at -O3 (GCC bug 105651).
  target_compile_options(spar_development INTERFACE -Wno-restrict)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Disables garbage collection in g++ below this heap size in KiB; collection takes 7 % of the compile time.
  target_compile_options(spar_development INTERFACE --param=ggc-min-heapsize=524288)
endif()

# Links a program with sanitizers in two fifths of the time that GNU ld takes.
find_program(SPAR_LLD ld.lld)
if(SPAR_LLD AND NOT CMAKE_CROSSCOMPILING)
  target_link_options(spar_development INTERFACE -fuse-ld=lld)
endif()

if(SPAR_NATIVE)
  target_compile_options(spar_development INTERFACE -march=native)
endif()

if(SPAR_SANITIZE)
  # The checks of the standard library that do not change the layout of its classes (GoogleTest is compiled without).
  target_compile_definitions(spar_development INTERFACE _GLIBCXX_ASSERTIONS)
  target_compile_options(spar_development INTERFACE "-fsanitize=${SPAR_SANITIZE}" -fno-sanitize-recover=all
                                                    -fno-omit-frame-pointer)
  target_link_options(spar_development INTERFACE "-fsanitize=${SPAR_SANITIZE}")
  if(SPAR_SANITIZE MATCHES "thread")
    target_compile_definitions(spar_development INTERFACE SPAR_SANITIZES_THREADS)
  elseif(SPAR_SANITIZE MATCHES "address")
    target_compile_definitions(spar_development INTERFACE SPAR_SANITIZES_ADDRESSES)
  endif()
  if(SPAR_SANITIZE MATCHES "address" AND SPAR_SANITIZE MATCHES "undefined")
    # The address sanitizer already finds null pointers and accesses beyond objects, and few classes are virtual. These
    # checks take a third of the compile time of instrumented code.
    target_compile_options(spar_development INTERFACE -fno-sanitize=null,object-size,vptr)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With instrumentation and -Og, the flow analysis of g++ gives false warnings (it takes an inlined member operator
    # new for the global one). The release build keeps these warnings.
    target_compile_options(spar_development INTERFACE -Wno-maybe-uninitialized -Wno-mismatched-new-delete)
  elseif(SPAR_SANITIZE MATCHES "undefined")
    # clang++ 14 puts the data of this check into the wrong section for coroutines.
    target_compile_options(spar_development INTERFACE -fno-sanitize=function)
  endif()
endif()

# Reports a part that cannot be built on this machine, in the configure output and at the end of scripts/test. For
# another processor, most parts are missing, and this machine lacks nothing.
function(spar_missing what why)
  message(STATUS "spar: without ${what} (${why})")
  if(NOT CMAKE_CROSSCOMPILING)
    set_property(GLOBAL APPEND PROPERTY spar_missing_parts "${what} (${why})")
  endif()
endfunction()

function(spar_write_missing)
  get_property(parts GLOBAL PROPERTY spar_missing_parts)
  list(REMOVE_DUPLICATES parts)
  list(JOIN parts "\n" text)
  file(WRITE "${PROJECT_BINARY_DIR}/spar-missing.txt" "${text}\n")
endfunction()

# Writes the paths of spar's programs for scripts/program, one line <target>=<path> each.
function(spar_write_programs)
  get_property(programs GLOBAL PROPERTY spar_programs)
  set(text "")
  foreach(program IN LISTS programs)
    string(APPEND text "${program}=$<TARGET_FILE:${program}>\n")
  endforeach()
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/spar-programs.txt" CONTENT "${text}")
endfunction()

# The target that scripts/test builds without --full.
add_custom_target(spar_quick)

# Libraries of the tools and examples; what needs a library that is missing is not built.
find_package(CLI11 QUIET)
find_package(fmt QUIET)
find_package(nlohmann_json QUIET)

# spar_add_precompiled(target [SOURCE file] [LIBRARIES lib...] HEADERS header...): adds an object library with a
# precompiled header, which programs with the same compile options reuse.
function(spar_add_precompiled target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE" "LIBRARIES;HEADERS")
  if(NOT arg_SOURCE)
    set(arg_SOURCE "${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp")
  endif()
  add_library(${target} OBJECT EXCLUDE_FROM_ALL "${arg_SOURCE}")
  target_link_libraries(${target} PUBLIC spar_development ${arg_LIBRARIES})
  target_precompile_headers(${target} PRIVATE ${arg_HEADERS})
endfunction()

# The precompiled header of tools, examples and benchmarks. It contains no other library's header: CLI11 compiles code
# for seconds wherever it is included.
spar_add_precompiled(spar_precompiled HEADERS <spar/spar.hpp>)

# spar_add_program(target SOURCES file... [LIBRARIES lib...] [PRECOMPILED target] [FULL]): adds one of spar's programs,
# which uses the precompiled header of the target PRECOMPILED (NONE for no such header). FULL excludes the program from
# the quick set.
function(spar_add_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FULL" "PRECOMPILED" "SOURCES;LIBRARIES")
  add_executable(${target} ${arg_SOURCES})
  set_property(GLOBAL APPEND PROPERTY spar_programs ${target})
  target_link_libraries(${target} PRIVATE spar_development ${arg_LIBRARIES})
  if(NOT arg_PRECOMPILED)
    set(arg_PRECOMPILED spar_precompiled)
  endif()
  if(NOT arg_PRECOMPILED STREQUAL "NONE")
    target_precompile_headers(${target} REUSE_FROM ${arg_PRECOMPILED})
  endif()
  if(NOT arg_FULL)
    add_dependencies(spar_quick ${target})
  endif()
endfunction()

# spar_add_example(target SOURCES file... [LIBRARIES lib...] [FULL]): adds a program of the documentation. Without
# SPAR_ALL_CASES, it links the runtime, as tests do, and compiles 0.7 s less; otherwise, it is header-only, as a user's.
if(NOT SPAR_ALL_CASES)
  spar_add_precompiled(spar_precompiled_linked LIBRARIES spar_runtime HEADERS <spar/spar.hpp>)
endif()
function(spar_add_example target)
  if(SPAR_ALL_CASES)
    spar_add_program(${target} ${ARGN})
  else()
    spar_add_program(${target} ${ARGN} PRECOMPILED spar_precompiled_linked)
    target_link_libraries(${target} PRIVATE spar_runtime)
  endif()
endfunction()

# spar_set_uncritical(file...): compiles sources that are not performance-critical with little optimisation, which
# halves their compile time. They cannot use a precompiled header, which is compiled with all optimisation.
function(spar_set_uncritical)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-Og>" SKIP_PRECOMPILE_HEADERS ON)
endfunction()
