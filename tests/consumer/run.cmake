# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Installs spar into an empty prefix, then configures, builds and runs CONSUMER in the empty directory WORK.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "exit status ${status} of: ${line}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
run("${CMAKE_COMMAND}" --install "${SPAR_BINARY}" --prefix "${WORK}/prefix")
run("${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${CONSUMER}" -B "${WORK}/build" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DSPAR_SOURCE=${SPAR_SOURCE}")
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/consumer")
