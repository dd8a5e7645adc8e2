# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Install rules of the library, and the package files that find_package(spar [COMPONENTS compiled mpi zfp perf]) and
# pkg-config read.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

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
# The compiled library is installed if the target spar_compiled has been built.
install(TARGETS spar_compiled EXPORT spar-compiled-targets OPTIONAL)
install(EXPORT spar-compiled-targets NAMESPACE spar:: DESTINATION "${spar_package_dir}")
install(FILES "${PROJECT_BINARY_DIR}/fortran/spar.f90" "${PROJECT_SOURCE_DIR}/src/fortran/spar_mpi.f90"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/spar")

configure_package_config_file(cmake/spar-config.cmake.in "${PROJECT_BINARY_DIR}/spar-config.cmake"
                              INSTALL_DESTINATION "${spar_package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/spar-config-version.cmake" COMPATIBILITY SameMinorVersion
                                 ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/spar-config.cmake" "${PROJECT_BINARY_DIR}/spar-config-version.cmake"
        DESTINATION "${spar_package_dir}")
configure_file(cmake/spar.pc.in "${PROJECT_BINARY_DIR}/spar.pc" @ONLY)
configure_file(cmake/spar-compiled.pc.in "${PROJECT_BINARY_DIR}/spar-compiled.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/spar.pc" "${PROJECT_BINARY_DIR}/spar-compiled.pc"
        DESTINATION share/pkgconfig) # the path to the prefix is in the files
# Debian expects the licence under this name.
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/spar" RENAME copyright)
