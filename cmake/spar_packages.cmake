# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Install rules of the tools, which omit what has not been built, and the packages that scripts/package makes: one for
# each component of spar_install.cmake and spar_mpi.cmake, and spar-tools. The tools
# are what a user of an installed spar needs: spar_perf measures a machine and writes the network files that spar reads,
# plot_perf and plot_timeline draw its results and traces, spar_topology plans trees of hosts, and spar_preload runs
# unmodified MPI programs with libspar_mpi.so. plot_training is left out, because it draws only results of the examples.

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME spar-tools)
add_custom_target(spar_tools)
add_custom_target(spar_packages)
add_dependencies(spar_packages spar_tools spar_compiled_shared spar_compiled_mpi)
if(TARGET spar_compiled_ucx)
  add_dependencies(spar_packages spar_compiled_ucx)
endif()
if(TARGET spar_compiled_cuda)
  add_dependencies(spar_packages spar_compiled_cuda)
endif()

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
  endforeach()"
  COMPONENT spar-tools)

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
set(CPACK_PACKAGE_FILE_NAME "spar-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON) # on the same version
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

# spar_package(component description [NAME name] [SECTION section] [NEEDS component...] [DEPENDS package...]
#              [SUGGESTS package...]): makes a Debian package of a component.
function(spar_package component description)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "NAME;SECTION" "NEEDS;DEPENDS;SUGGESTS")
  if(NOT arg_NAME)
    set(arg_NAME "${component}")
  endif()
  if(NOT arg_SECTION)
    set(arg_SECTION libdevel)
  endif()
  list(JOIN arg_DEPENDS ", " depends)
  list(JOIN arg_SUGGESTS ", " suggests)
  string(TOUPPER "CPACK_DEBIAN_${component}_" prefix)
  set(${prefix}PACKAGE_NAME "${arg_NAME}" PARENT_SCOPE)
  set(${prefix}PACKAGE_SECTION "${arg_SECTION}" PARENT_SCOPE)
  set(${prefix}PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(${prefix}PACKAGE_SUGGESTS "${suggests}" PARENT_SCOPE)
  set(${prefix}PACKAGE_SHLIBDEPS ON PARENT_SCOPE)
  set(${prefix}DESCRIPTION "${description}" PARENT_SCOPE)
  string(TOUPPER "CPACK_COMPONENT_${component}_DEPENDS" needs)
  set(${needs} "${arg_NEEDS}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} "${component}" PARENT_SCOPE)
  if(NOT component STREQUAL "spar") # whose copyright every installation has
    install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${arg_NAME}"
            RENAME copyright COMPONENT "${component}" EXCLUDE_FROM_ALL)
  endif()
endfunction()

spar_package(
  spar "C++20 headers of spar, which implements allreduce and related
collectives over MPI, threads and a simulated network."
  SUGGESTS g++ pkg-config cmake mpi-default-dev libcli11-dev libfmt-dev nlohmann-json3-dev libbenchmark-dev)
spar_package(
  spar-tools "spar_perf measures collectives on a machine, spar_preload runs
unmodified MPI programs with spar's MPI_Allreduce, and spar_topology plans
trees of hosts."
  SECTION utils SUGGESTS python3-matplotlib)
get_target_property(spar_soversion spar_compiled_shared SOVERSION)
spar_package(libspar "The compiled library, for programs in C++, C and Fortran." NAME "libspar${spar_soversion}"
             SECTION libs)
spar_package(libspar-dev "The compiled library for linking, also statically, and its module of Fortran."
             NEEDS spar libspar)
foreach(flavour IN LISTS spar_mpi_flavours)
  spar_package(libspar-${flavour}-dev "Communicators of the compiled library over the MPI library ${flavour}."
               NEEDS libspar-dev DEPENDS lib${flavour}-dev)
endforeach()
if(TARGET spar_ucx)
  spar_package(libspar-ucx-dev "Communicators of the compiled library over UCX." NEEDS libspar-dev DEPENDS libucx-dev)
endif()
if(TARGET spar_compiled_cuda)
  spar_package(libspar-cuda-dev "Kernels of the compiled library for values in memory of CUDA devices."
               NEEDS libspar-dev)
endif()
include(CPack)
