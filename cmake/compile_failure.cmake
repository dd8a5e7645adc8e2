# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Compiles SOURCE with OPTIONS: compilation must fail with a message that matches EXPECT and, if ERRORS is a number,
# with this number of errors, each of a static assertion. With SPAR_FULL in the environment, also compiles SOURCE with
# -DPOSITIVE_CONTROL, which must succeed.

# PRECOMPILED contains spar/spar.hpp.gch, which g++ finds before the header; other compilers read the header.
set(command "${COMPILER}" -std=c++20 -fsyntax-only "-I${PRECOMPILED}" "-I${INCLUDE}" ${OPTIONS} "${SOURCE}")

if(DEFINED ENV{SPAR_FULL})
  execute_process(COMMAND ${command} -DPOSITIVE_CONTROL RESULT_VARIABLE status ERROR_VARIABLE errors OUTPUT_QUIET)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the file does not compile with -DPOSITIVE_CONTROL:\n${errors}")
  endif()
endif()

execute_process(COMMAND ${command} RESULT_VARIABLE status ERROR_VARIABLE errors OUTPUT_QUIET)
if(status EQUAL 0)
  message(FATAL_ERROR "the file compiles, but an error was expected")
endif()
string(REGEX MATCH "${EXPECT}" found "${errors}")
if(NOT found)
  message(FATAL_ERROR "expected a compiler error that matches \"${EXPECT}\", got:\n${errors}")
endif()
string(REGEX MATCHALL "[0-9]: error: " all "${errors}")
string(REGEX MATCHALL "[0-9]: error: static.assert" sentences "${errors}")
list(LENGTH all count)
list(LENGTH sentences sentence_count)
if(ERRORS AND NOT (count EQUAL ERRORS AND sentence_count EQUAL ERRORS))
  message(FATAL_ERROR "expected ${ERRORS} sentences, got ${sentence_count} in ${count} errors:\n${errors}")
endif()
