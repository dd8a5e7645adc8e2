// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ends a measurement early, with the results so far.
#pragma once

namespace spar::perf {

/// From now on, the first SIGINT and the first SIGTERM only make `interrupted` return true; a second one ends the
/// program.
void catch_interrupts();
[[nodiscard]] bool interrupted() noexcept;

} // namespace spar::perf
