# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Install rules of the library, and the package files that find_package(spar [COMPONENTS compiled mpi ucx zfp cuda nccl
# perf]) and pkg-config read. A component has the name of its Debian package, without a version; the headers are the
# component spar.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME spar)

set(spar_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/spar")

install(TARGETS spar EXPORT spar-targets)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/tools/spar_perf/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/spar/spar_perf"
  FILES_MATCHING
  PATTERN "*.hpp"
  PATTERN "*.cuh"
  PATTERN "*.cpp"
  PATTERN "sources.cmake"
  PATTERN "main.cpp" EXCLUDE
  PATTERN "options_main.cpp" EXCLUDE)
install(EXPORT spar-targets NAMESPACE spar:: DESTINATION "${spar_package_dir}")
# The compiled library is installed as far as it has been built.
install(TARGETS spar_compiled EXPORT spar-static-targets OPTIONAL COMPONENT libspar-dev)
install(TARGETS spar_compiled_shared EXPORT spar-shared-targets OPTIONAL
        LIBRARY COMPONENT libspar NAMELINK_COMPONENT libspar-dev)
foreach(kind IN ITEMS static shared)
  install(EXPORT spar-${kind}-targets NAMESPACE spar:: DESTINATION "${spar_package_dir}" COMPONENT libspar-dev)
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/fortran/spar.f90" "${PROJECT_SOURCE_DIR}/src/fortran/spar_mpi.f90"
              "${PROJECT_SOURCE_DIR}/src/fortran/spar_ucx.f90"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/spar" COMPONENT libspar-dev)

configure_package_config_file(cmake/spar-config.cmake.in "${PROJECT_BINARY_DIR}/spar-config.cmake"
                              INSTALL_DESTINATION "${spar_package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/spar-config-version.cmake" COMPATIBILITY SameMinorVersion
                                 ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/spar-config.cmake" "${PROJECT_BINARY_DIR}/spar-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/spar_find_cuda.cmake"
        DESTINATION "${spar_package_dir}")
configure_file(cmake/spar.pc.in "${PROJECT_BINARY_DIR}/spar.pc" @ONLY)
file(RELATIVE_PATH spar_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/spar-compiled.pc.in "${PROJECT_BINARY_DIR}/spar-compiled.pc" @ONLY)
# The path to the prefix is in these files.
install(FILES "${PROJECT_BINARY_DIR}/spar.pc" DESTINATION share/pkgconfig)
install(FILES "${PROJECT_BINARY_DIR}/spar-compiled.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT libspar-dev)
# Debian expects the licence under this name.
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/spar" RENAME copyright)
