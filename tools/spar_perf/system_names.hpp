// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The names of systems, which are checked before any system is compiled.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spar::perf {

/// The systems that `register_systems` registers for float, in the same order.
inline constexpr std::string_view system_names =
    "sparcml ssar_split dsar_split rec_doubling ring rabenseifner allgather dense nonzeros flexreduce blueconnect "
    "hierarchical tree_dense tree_sparcml dsar_qsgd8 dsar_qsgd4 dsar_qsgd2 topka gaussiank topkdsa gtopk ok_topk "
    "tree_ok_topk";

/// Whether `word` is one of the words of `text`.
bool is_word_of(std::string_view word, std::string_view text);

/// Throws `usage_error` unless `system` is a system of spar_perf, for some type of values and some transport, or one of
/// the program's `own` systems.
void check_system(const std::string& system, const std::vector<std::string>& own);

} // namespace spar::perf
