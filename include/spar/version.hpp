// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The version of the library, as macros and as text. CMake, pkg-config and Conan read the three macros below.
#pragma once

#include <spar/core/compiler.hpp>

#include <string_view>

/// The first number of the version.
#define SPAR_VERSION_MAJOR 0
/// The second number of the version.
#define SPAR_VERSION_MINOR 1
/// The third number of the version.
#define SPAR_VERSION_PATCH 0

namespace spar::inline v0_1 {

/// \cond
#define SPAR_VERSION_JOIN(major, minor, patch) #major "." #minor "." #patch
#define SPAR_VERSION_TEXT(major, minor, patch) SPAR_VERSION_JOIN(major, minor, patch)
/// \endcond

/// "major.minor.patch", by Semantic Versioning. Until 1.0.0, a minor version may change interfaces.
inline constexpr std::string_view version =
    SPAR_VERSION_TEXT(SPAR_VERSION_MAJOR, SPAR_VERSION_MINOR, SPAR_VERSION_PATCH);

#undef SPAR_VERSION_TEXT
#undef SPAR_VERSION_JOIN

} // namespace spar::inline v0_1
