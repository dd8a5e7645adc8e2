# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Install rules of the tools, which omit what has not been built, and the packages that scripts/package makes. The tools
# are what a user of an installed spar needs: spar_perf measures a machine and writes the network files that spar reads,
# plot_perf and plot_timeline draw its results and traces, spar_topology plans trees of hosts, and spar_preload runs
# unmodified MPI programs with libspar_mpi.so. plot_training is left out, because it draws only results of the examples.

add_custom_target(spar_tools)

function(spar_install_tool target)
  if(TARGET ${target})
    add_dependencies(spar_tools ${target})
    install(TARGETS ${target} OPTIONAL ${ARGN})
  endif()
endfunction()

spar_install_tool(spar_perf)
spar_install_tool(spar_topology)
set(spar_preload_libraries "")
foreach(flavour IN LISTS spar_mpi_flavours)
  spar_install_tool(spar_perf_${flavour})
  spar_install_tool(spar_preload_${flavour} LIBRARY DESTINATION lib/spar/${flavour}) # where spar_preload looks for it
  if(TARGET spar_preload_${flavour})
    list(APPEND spar_preload_libraries "$<TARGET_FILE:spar_preload_${flavour}>")
  endif()
endforeach()
# The command spar_preload is of no use without a library, so it is installed only if one has been built.
install(
  CODE "set(libraries \"${spar_preload_libraries}\")
  foreach(library IN LISTS libraries)
    if(EXISTS \"\${library}\")
      file(INSTALL \"${PROJECT_SOURCE_DIR}/scripts/preload\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/bin\" TYPE PROGRAM
           RENAME spar_preload)
      break()
    endif()
  endforeach()")

install(FILES "${PROJECT_SOURCE_DIR}/tools/plotting.py" DESTINATION "${CMAKE_INSTALL_DATADIR}/spar")
foreach(tool IN ITEMS plot_perf plot_timeline)
  install(PROGRAMS "${PROJECT_SOURCE_DIR}/tools/${tool}" DESTINATION "${CMAKE_INSTALL_DATADIR}/spar")
  file(CREATE_LINK "../${CMAKE_INSTALL_DATADIR}/spar/${tool}" "${PROJECT_BINARY_DIR}/spar_${tool}" SYMBOLIC)
  install(FILES "${PROJECT_BINARY_DIR}/spar_${tool}" TYPE BIN)
endforeach()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME spar)
set(CPACK_PACKAGE_CONTACT "The spar authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION "spar is a header-only C++20 library of allreduce and related collectives over MPI, \
threads and a simulated network. This package also contains spar_perf, which measures collectives on a machine, and \
spar_preload, which runs unmodified MPI programs with spar's MPI_Allreduce.")
set(CPACK_PACKAGE_FILE_NAME "spar-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # depends on the MPI libraries for which the tools were built
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, pkg-config, cmake, mpi-default-dev, libcli11-dev, libfmt-dev, \
nlohmann-json3-dev, libbenchmark-dev, python3-matplotlib")
include(CPack)
