# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Functions that add tests, for tests/CMakeLists.txt. Every test has a time limit, so that a deadlock fails instead of
# hanging. Tests with the label `full` run only with scripts/test --full.

find_package(GTest QUIET)
# For another processor, no library is installed, so its sources are compiled.
if(NOT GTest_FOUND AND CMAKE_CROSSCOMPILING AND EXISTS /usr/src/googletest/CMakeLists.txt)
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest "${PROJECT_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL SYSTEM)
  set(GTest_FOUND TRUE)
endif()
if(NOT GTest_FOUND)
  spar_missing("unit tests" "no GoogleTest")
else()
  # What all tests link: the runtime, and what runs their ranks.
  add_library(
    spar_test_support STATIC EXCLUDE_FROM_ALL
    "${PROJECT_SOURCE_DIR}/tests/cuda/on_host.cpp" "${PROJECT_SOURCE_DIR}/tests/support/disagreements.cpp"
    "${PROJECT_SOURCE_DIR}/tests/support/ranks.cpp" $<TARGET_OBJECTS:spar_runtime>)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/cuda/on_host.cpp" PROPERTIES COMPILE_OPTIONS -O2)
  target_link_libraries(spar_test_support PUBLIC spar_development)
  target_include_directories(spar_test_support PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(spar_test_support PUBLIC SPAR_COMPILED)
  # Small tests spend most of their compile time on gtest.h and spar's headers, so all tests with the same flags share
  # one precompiled header.
  spar_add_precompiled(spar_test_base LIBRARIES GTest::gtest spar_test_support HEADERS <gtest/gtest.h> <spar/spar.hpp>)
  foreach(flavour IN LISTS spar_mpi_flavours)
    spar_add_precompiled(
      spar_test_base_${flavour} SOURCE "${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp"
      LIBRARIES GTest::gtest spar_mpi_${flavour} spar_test_support
      HEADERS <gtest/gtest.h> <spar/spar.hpp> <spar/mpi.hpp>)
  endforeach()
  if(TARGET spar_ucx)
    spar_add_precompiled(
      spar_test_base_ucx SOURCE "${PROJECT_SOURCE_DIR}/tests/support/ucx_main.cpp"
      LIBRARIES GTest::gtest spar_ucx spar_test_support
      HEADERS <gtest/gtest.h> <spar/spar.hpp> <spar/ucx.hpp>)
  endif()
endif()

# Splits a path layer/name into test_name (layer.name, for ctest) and test_target (layer_name, the stem of the target).
macro(spar_test_names path)
  string(REPLACE "/" "." test_name "${path}")
  string(REPLACE "/" "_" test_target "${path}")
endmacro()

# The quick set builds each test once: LARGE tests, which would take too long with sanitizers, in the preset test, and
# the other tests in a preset with sanitizers. With --full, the preset test builds all tests, because the other presets
# may use clang++.
if(PROJECT_BINARY_DIR STREQUAL "${PROJECT_SOURCE_DIR}/build/test")
  set(spar_large_only TRUE)
else()
  set(spar_large_only FALSE)
endif()

# Options of the sanitizers. The thread sanitizer skips cases of the simulator, which has one thread.
set(spar_test_environment "UBSAN_OPTIONS=print_stacktrace=1"
                          "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp,print_suppressions=0"
                          "TSAN_OPTIONS=halt_on_error=1 suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp")
if(SPAR_SANITIZE MATCHES "thread")
  list(APPEND spar_test_environment "GTEST_FILTER=-*simulator*")
endif()

# Reduces sanitized LARGE tests, to halve their time: they use one in-process transport (tests/support/ranks.hpp) and do
# not check alignment. Small tests cover the rest.
function(spar_lighten target)
  target_compile_definitions(${target} PRIVATE SPAR_LARGE_TEST)
  if(SPAR_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=alignment)
  endif()
endfunction()

# Tells an EXTENDED test whether to compile the cases that the quick set omits (tests/support/extent.hpp).
function(spar_extend target)
  target_compile_definitions(${target} PRIVATE SPAR_ALL_CASES=$<BOOL:${SPAR_ALL_CASES}>)
endfunction()

# The tests for another processor, which an emulator runs at a fraction of the speed: what may depend on the processor,
# such as the layout and alignment of memory, vectors, floating-point arithmetic, coroutines, and the order in which
# threads see memory.
set(spar_cross_tests "^(core|runtime|storage|selector)/|^(transport/messages|conformance/nonblocking|fuzz/coded)$")

# spar_add_test(layer/name [SOURCES file...] [LIBRARIES lib...] [TIMEOUT seconds] [LABELS label...] [FULL] [LARGE]
#               [ONE_THREAD] [KERNEL] [PLAIN] [EXTENDED] [COMPILED] [HEADER_ONLY])
# Adds a GoogleTest program from layer/name_test.cpp (or the SOURCES) as the test layer.name.
#   LARGE       the quick set omits the test in presets with sanitizers
#   ONE_THREAD  omitted under the thread sanitizer
#   KERNEL      like ONE_THREAD, and also runs at -O3 as layer.name.optimised, with the label full
#   PLAIN       omitted under any sanitizer: the test observes what sanitizers change, differs from another test only
#               by a type, or only evaluates types
#   EXTENDED    the quick set omits some cases also when it compiles the test, because these take long to compile
#   COMPILED    links the compiled library, not only its runtime
#   HEADER_ONLY compiles the runtime, as a program that links nothing does; the test cannot use support/ranks.hpp
function(spar_add_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FULL;LARGE;ONE_THREAD;KERNEL;PLAIN;EXTENDED;COMPILED;HEADER_ONLY"
                        "TIMEOUT" "SOURCES;LIBRARIES;LABELS")
  if(NOT GTest_FOUND
     OR (SPAR_SANITIZE AND arg_PLAIN)
     OR (CMAKE_CROSSCOMPILING AND NOT path MATCHES "${spar_cross_tests}")
     OR (SPAR_SANITIZE MATCHES "thread" AND (arg_ONE_THREAD OR arg_KERNEL)))
    return()
  endif()
  spar_test_names("${path}")
  if(NOT arg_SOURCES)
    set(arg_SOURCES "${path}_test.cpp")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(full "")
  if(arg_FULL
     OR (arg_LARGE AND SPAR_SANITIZE)
     OR (spar_large_only AND NOT arg_LARGE))
    set(full FULL)
  endif()
  set(linked spar_test_support)
  set(precompiled spar_test_base)
  if(arg_COMPILED)
    set(linked spar_compiled)
  elseif(arg_HEADER_ONLY)
    set(linked "")
    set(precompiled spar_precompiled)
  endif()
  spar_add_program(${test_target}_test SOURCES ${arg_SOURCES} LIBRARIES GTest::gtest_main ${linked} ${arg_LIBRARIES}
                   PRECOMPILED ${precompiled} ${full})
  target_include_directories(${test_target}_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  if(arg_LARGE)
    spar_lighten(${test_target}_test)
  endif()
  if(arg_EXTENDED)
    spar_extend(${test_target}_test)
  endif()
  add_test(NAME ${test_name} COMMAND ${test_target}_test)
  set_tests_properties(
    ${test_name}
    PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "unit;${arg_LABELS};$<LOWER_CASE:${full}>"
               ENVIRONMENT "${spar_test_environment}")
  if(arg_KERNEL AND NOT SPAR_SANITIZE)
    spar_add_program(${test_target}_optimised SOURCES ${arg_SOURCES} LIBRARIES GTest::gtest_main spar_test_support
                     PRECOMPILED NONE FULL)
    target_compile_options(${test_target}_optimised PRIVATE -O3)
    if(arg_EXTENDED)
      spar_extend(${test_target}_optimised)
    endif()
    add_test(NAME ${test_name}.optimised COMMAND ${test_target}_optimised)
    set_tests_properties(${test_name}.optimised PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "unit;full")
  endif()
endfunction()

# spar_add_c_program(target SOURCES file... [LIBRARIES lib...] [FULL]): adds a program in C99.
function(spar_add_c_program target)
  spar_add_program(${target} ${ARGN} PRECOMPILED NONE)
  target_compile_options(${target} PRIVATE -pedantic)
  set_target_properties(${target} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
endfunction()

# With sanitizers, the compiled library has them, too. This takes six minutes of a core, so the quick set omits the
# tests of the library there.
if(SPAR_SANITIZE)
  foreach(flavour IN LISTS spar_mpi_flavours)
    target_link_libraries(spar_compiled_mpi_${flavour} PRIVATE spar_development)
  endforeach()
  target_link_libraries(spar_compiled PRIVATE "$<BUILD_INTERFACE:spar_development>")
  if(TARGET spar_compiled_ucx)
    target_link_libraries(spar_compiled_ucx PRIVATE spar_development)
  endif()
endif()

# spar_add_c_test(layer/name [SOURCES file...] [MPI_RANKS p... [FULL_RANKS p...] | UCX_RANKS p...]): adds the test
# layer.name, a program in C99 with the compiled library; with MPI_RANKS, the tests layer.name.<flavour>.<p>, in the
# quick set for the first MPI library only and without FULL_RANKS; with UCX_RANKS and UCX, the tests layer.name.<p>.
# With sanitizers, they have the label full.
function(spar_add_c_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;MPI_RANKS;FULL_RANKS;UCX_RANKS")
  if(arg_UCX_RANKS AND NOT TARGET spar_compiled_ucx)
    return()
  endif()
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(full "")
  if(SPAR_SANITIZE)
    set(full FULL)
  endif()
  spar_test_names("${path}")
  set(flavours none)
  if(arg_MPI_RANKS)
    set(flavours ${spar_mpi_flavours})
    if(flavours AND (SPAR_SANITIZE OR NOT SPAR_ALL_CASES))
      list(GET flavours 0 flavours)
    endif()
  endif()
  foreach(flavour IN LISTS flavours)
    set(target ${test_target}_test)
    set(library spar_compiled)
    if(arg_MPI_RANKS)
      string(APPEND target _${flavour})
      set(library spar_compiled_mpi_${flavour})
    elseif(arg_UCX_RANKS)
      set(library spar_compiled_ucx)
    endif()
    spar_add_c_program(${target} SOURCES ${path}_test.c ${arg_SOURCES} LIBRARIES ${library} ${full})
    if(arg_MPI_RANKS)
      foreach(ranks IN LISTS arg_MPI_RANKS arg_FULL_RANKS)
        set(name ${test_name}.${flavour}.${ranks})
        add_test(NAME ${name} COMMAND "${PROJECT_SOURCE_DIR}/scripts/mpirun" ${flavour} ${ranks}
                                      $<TARGET_FILE:${target}>)
        set_tests_properties(
          ${name} PROPERTIES TIMEOUT 120 LABELS "mpi;${flavour};$<LOWER_CASE:${full}>" RUN_SERIAL TRUE
                             SKIP_RETURN_CODE 77 ENVIRONMENT "SPAR_YIELD=always;UBSAN_OPTIONS=print_stacktrace=1")
        if(ranks IN_LIST arg_FULL_RANKS)
          set_property(TEST ${name} APPEND PROPERTY LABELS full)
        endif()
      endforeach()
    elseif(arg_UCX_RANKS)
      foreach(ranks IN LISTS arg_UCX_RANKS)
        add_test(NAME ${test_name}.${ranks} COMMAND "${PROJECT_SOURCE_DIR}/scripts/ranks" ${ranks}
                                                    $<TARGET_FILE:${target}>)
        set_tests_properties(${test_name}.${ranks} PROPERTIES TIMEOUT 120 LABELS "ucx;$<LOWER_CASE:${full}>"
                                                              ENVIRONMENT "${spar_test_environment}")
      endforeach()
    else()
      add_test(NAME ${test_name} COMMAND ${target})
      set_tests_properties(${test_name} PROPERTIES TIMEOUT 300 LABELS "unit;$<LOWER_CASE:${full}>"
                                                     ENVIRONMENT "${spar_test_environment}")
    endif()
  endforeach()
endfunction()

# spar_add_fuzz_target(name [LIBRARIES lib...] [LARGE] [FULL])
# Adds the test fuzz.name, which replays the corpus in fuzz/corpus/name through fuzz/name_fuzz.cpp. In the preset fuzz,
# also adds the libFuzzer program name_fuzz for scripts/fuzz.
function(spar_add_fuzz_target name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LARGE;FULL" "" "LIBRARIES")
  set(sets "")
  foreach(set IN ITEMS LARGE FULL)
    if(arg_${set})
      list(APPEND sets ${set})
    endif()
  endforeach()
  if(GTest_FOUND AND NOT TARGET spar_fuzz_replay)
    add_library(spar_fuzz_replay OBJECT EXCLUDE_FROM_ALL fuzz/replay.cpp)
    target_link_libraries(spar_fuzz_replay PRIVATE spar_development spar_test_support GTest::gtest)
    target_precompile_headers(spar_fuzz_replay REUSE_FROM spar_test_base)
  endif()
  spar_add_test(fuzz/${name} SOURCES fuzz/${name}_fuzz.cpp $<TARGET_OBJECTS:spar_fuzz_replay>
                LIBRARIES ${arg_LIBRARIES} ${sets})
  if(TARGET fuzz_${name}_test)
    target_compile_definitions(fuzz_${name}_test
                               PRIVATE "SPAR_FUZZ_CORPUS=\"${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name}\"")
  endif()
  if(SPAR_SANITIZE MATCHES "fuzzer")
    spar_add_program(${name}_fuzz SOURCES fuzz/${name}_fuzz.cpp LIBRARIES ${arg_LIBRARIES} PRECOMPILED NONE FULL)
    target_include_directories(${name}_fuzz PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()

# spar_add_mpi_test(layer/name [SOURCES file...] [LIBRARIES lib...] [RANKS p...] [FULL_RANKS p...] [HOSTS ranks,...]
#                   [TIMEOUT seconds] [LABELS label...] [OWN_MAIN] [FULL] [FULL_HOSTS] [LARGE] [ONE_LIBRARY] [EXTENDED]
#                   [COMPILED])
# Adds the test layer.name.<flavour>.<p> for every MPI library and every number of ranks p; tests of FULL_RANKS have the
# label full. HOSTS adds layer.name.<flavour>.hosts, which runs over emulated hosts with these numbers of ranks. The
# quick set has hosts, unless FULL_HOSTS is given, and tests with ONE_LIBRARY, only for the first MPI library. With
# sanitizers, only the first MPI library is tested. The program is a GoogleTest program with the main() of
# tests/support/mpi_main.cpp, unless OWN_MAIN is given. COMPILED links the compiled library.
function(spar_add_mpi_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FULL;FULL_HOSTS;OWN_MAIN;LARGE;ONE_LIBRARY;EXTENDED;COMPILED" "HOSTS;TIMEOUT"
                        "SOURCES;LIBRARIES;RANKS;FULL_RANKS;LABELS")
  if(NOT arg_OWN_MAIN AND NOT GTest_FOUND)
    return()
  endif()
  spar_test_names("${path}")
  if(NOT arg_SOURCES)
    set(arg_SOURCES "${path}_test.cpp")
  endif()
  if(NOT arg_RANKS)
    set(arg_RANKS 1 2 3 4 5)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(arg_LARGE AND SPAR_SANITIZE)
    set(arg_FULL TRUE)
  endif()
  math(EXPR watchdog "${arg_TIMEOUT} - 5")
  foreach(flavour IN LISTS spar_mpi_flavours)
    spar_is_first(first ${flavour})
    if((spar_large_only AND NOT arg_LARGE AND first) OR (SPAR_SANITIZE AND NOT first))
      continue()
    endif()
    set(full "")
    if(arg_FULL OR (arg_ONE_LIBRARY AND NOT first))
      set(full FULL)
    endif()
    set(target ${test_target}_test_${flavour})
    set(precompiled NONE)
    set(compiled "")
    if(arg_COMPILED)
      set(compiled spar_compiled_mpi_${flavour})
    endif()
    if(NOT arg_OWN_MAIN)
      set(precompiled spar_test_base_${flavour})
    elseif(arg_LARGE)
      set(precompiled spar_precompiled) # which the quick set compiles anyway
    endif()
    spar_add_program(${target} SOURCES ${arg_SOURCES} LIBRARIES spar_mpi_${flavour} ${compiled}
                     ${arg_LIBRARIES} PRECOMPILED ${precompiled} ${full})
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    if(arg_LARGE)
      spar_lighten(${target})
    endif()
    if(arg_EXTENDED)
      spar_extend(${target})
    endif()
    if(NOT arg_OWN_MAIN)
      target_link_libraries(${target} PRIVATE spar_test_base_${flavour} spar_test_support)
    endif()
    set(mpirun "${PROJECT_SOURCE_DIR}/scripts/mpirun" ${flavour})
    set(names "")
    foreach(ranks IN LISTS arg_RANKS arg_FULL_RANKS)
      set(name ${test_name}.${flavour}.${ranks})
      add_test(NAME ${name} COMMAND ${mpirun} ${ranks} $<TARGET_FILE:${target}>)
      list(APPEND names ${name})
    endforeach()
    if(arg_HOSTS)
      set(name ${test_name}.${flavour}.hosts)
      string(REPLACE "," "+" sum ${arg_HOSTS})
      math(EXPR ranks ${sum})
      add_test(NAME ${name} COMMAND "${PROJECT_SOURCE_DIR}/scripts/hosts" ${arg_HOSTS} 1gbit ${mpirun} ${ranks}
                                    $<TARGET_FILE:${target}>)
      list(APPEND names ${name})
    endif()
    foreach(name IN LISTS names)
      set_tests_properties(
        ${name}
        PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "mpi;${flavour};${arg_LABELS};$<LOWER_CASE:${full}>"
                   SKIP_RETURN_CODE 77
                   ENVIRONMENT "SPAR_YIELD=always;SPAR_MPI_TIMEOUT=${watchdog};UBSAN_OPTIONS=print_stacktrace=1")
      # Ranks poll, so running beside other tests takes longer than running one after the other.
      if(NOT name MATCHES "\\.1$")
        set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
      endif()
    endforeach()
    foreach(ranks IN LISTS arg_FULL_RANKS)
      set_property(TEST ${test_name}.${flavour}.${ranks} APPEND PROPERTY LABELS full)
    endforeach()
    if(arg_HOSTS AND (arg_FULL_HOSTS OR NOT first))
      set_property(TEST ${test_name}.${flavour}.hosts APPEND PROPERTY LABELS full)
    endif()
  endforeach()
endfunction()

# spar_add_ucx_test(layer/name [SOURCES file...] [LIBRARIES lib...] [RANKS p...] [FULL_RANKS p...] [HOSTS ranks,...]
#                   [TIMEOUT seconds] [FULL] [LARGE] [EXTENDED] [COMPILED])
# Adds the tests layer.name.memory.<p> and layer.name.tcp.<p>, over shared memory and over TCP, for every number p of
# ranks; tests of FULL_RANKS have the label full. HOSTS adds the test layer.name.hosts with this label, which runs over
# emulated hosts with these numbers of ranks. The program has the main() of tests/support/ucx_main.cpp. COMPILED
# links the compiled library.
function(spar_add_ucx_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FULL;LARGE;EXTENDED;COMPILED" "HOSTS;TIMEOUT"
                        "SOURCES;LIBRARIES;RANKS;FULL_RANKS")
  if(NOT GTest_FOUND OR NOT TARGET spar_ucx OR (spar_large_only AND NOT arg_LARGE))
    return()
  endif()
  spar_test_names("${path}")
  if(NOT arg_SOURCES)
    set(arg_SOURCES "${path}_test.cpp")
  endif()
  if(NOT arg_RANKS)
    set(arg_RANKS 1 2 3 4 5)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(full "")
  if(arg_FULL OR (arg_LARGE AND SPAR_SANITIZE))
    set(full FULL)
  endif()
  set(target ${test_target}_test)
  spar_add_program(${target} SOURCES ${arg_SOURCES} LIBRARIES spar_ucx spar_test_base_ucx spar_test_support
                   ${arg_LIBRARIES} PRECOMPILED spar_test_base_ucx ${full})
  if(arg_COMPILED)
    target_link_libraries(${target} PRIVATE spar_compiled_ucx)
  endif()
  if(arg_LARGE)
    spar_lighten(${target})
  endif()
  if(arg_EXTENDED)
    spar_extend(${target})
  endif()
  foreach(ranks IN LISTS arg_RANKS arg_FULL_RANKS)
    foreach(way IN ITEMS memory tcp)
      set(name ${test_name}.${way}.${ranks})
      set(transports all)
      if(way STREQUAL "tcp")
        set(transports "tcp,self")
      endif()
      add_test(NAME ${name} COMMAND "${PROJECT_SOURCE_DIR}/scripts/ranks" ${ranks} $<TARGET_FILE:${target}>)
      set_tests_properties(
        ${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "ucx;$<LOWER_CASE:${full}>"
                           ENVIRONMENT "UCX_TLS=${transports};${spar_test_environment}")
      if(ranks IN_LIST arg_FULL_RANKS)
        set_property(TEST ${name} APPEND PROPERTY LABELS full)
      endif()
      if(ranks GREATER 2) # some tests bound the time of a call
        set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
      endif()
    endforeach()
  endforeach()
  if(arg_HOSTS)
    string(REPLACE "," "+" sum ${arg_HOSTS})
    math(EXPR ranks ${sum})
    add_test(NAME ${test_name}.hosts COMMAND "${PROJECT_SOURCE_DIR}/scripts/hosts" ${arg_HOSTS} 1gbit
                                             "${PROJECT_SOURCE_DIR}/scripts/ranks" ${ranks} $<TARGET_FILE:${target}>)
    set_tests_properties(${test_name}.hosts PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "ucx;full" RUN_SERIAL TRUE
                                                       SKIP_RETURN_CODE 77 ENVIRONMENT "${spar_test_environment}")
  endif()
endfunction()

# spar_add_process_test(layer/name [argument...] MPI argument... UCX argument...)
# Adds the tests of one source over every MPI library and over UCX: calls spar_add_mpi_test and spar_add_ucx_test with
# the arguments for both, then with those for each.
function(spar_add_process_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "MPI;UCX")
  spar_add_mpi_test(${path} ${arg_UNPARSED_ARGUMENTS} ${arg_MPI})
  spar_add_ucx_test(${path} ${arg_UNPARSED_ARGUMENTS} ${arg_UCX})
endfunction()

# spar_add_compile_failure(name SOURCE file EXPECT regex [ERRORS count] [OPTIONS option...])
# Adds a test that compiling the file with the options fails with a message that matches EXPECT and with as many errors
# as ERRORS says, each of a static assertion, and, with --full, that it succeeds with -DPOSITIVE_CONTROL.
function(spar_add_compile_failure name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE;EXPECT;ERRORS" "OPTIONS")
  if(NOT SPAR_REPOSITORY_CHECKS)
    return()
  endif()
  # These tests parse the headers forty times, so a first test precompiles them.
  set(precompiled "${PROJECT_BINARY_DIR}/compile_failure")
  if(NOT TEST compile_failure.precompile)
    file(MAKE_DIRECTORY "${precompiled}/spar")
    add_test(
      NAME compile_failure.precompile
      COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -w "-I${PROJECT_SOURCE_DIR}/include" -x c++-header
              "${PROJECT_SOURCE_DIR}/include/spar/spar.hpp" -o "${precompiled}/spar/spar.hpp.gch")
    set_tests_properties(compile_failure.precompile PROPERTIES TIMEOUT 120 LABELS "compile_failure"
                                                               FIXTURES_SETUP compile_failure)
  endif()
  add_test(
    NAME compile_failure.${name}
    COMMAND
      "${CMAKE_COMMAND}" "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DINCLUDE=${PROJECT_SOURCE_DIR}/include"
      "-DPRECOMPILED=${precompiled}" "-DSOURCE=${CMAKE_CURRENT_SOURCE_DIR}/${arg_SOURCE}" "-DEXPECT=${arg_EXPECT}"
      "-DOPTIONS=${arg_OPTIONS}" "-DERRORS=${arg_ERRORS}" -P
      "${PROJECT_SOURCE_DIR}/cmake/compile_failure.cmake")
  set_tests_properties(compile_failure.${name} PROPERTIES TIMEOUT 120 LABELS "compile_failure" FIXTURES_REQUIRED
                                                                                               compile_failure)
endfunction()

# The preset that scripts run by tests use for building.
get_filename_component(spar_preset "${PROJECT_BINARY_DIR}" NAME)

# spar_add_check(name COMMAND command... [TIMEOUT seconds] [LABELS label...] [SERIAL]): adds a script as a test. The
# script exits with 0 on success and 77 if a requirement is missing. SERIAL runs it alone, because it uses all cores.
# Checks with the longest time limit start first.
function(spar_add_check name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT" "COMMAND;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(
    ${name}
    PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77
               RUN_SERIAL ${arg_SERIAL} ENVIRONMENT "SPAR_PRESET=${spar_preset}")
endfunction()
