// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The names of systems, which are checked before any system is compiled.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::perf {

/// The systems that `register_systems` registers for float, in the same order.
inline constexpr std::string_view system_names =
    "sparcml ssar_split dsar_split rec_doubling ring rabenseifner allgather dense nonzeros flexreduce blueconnect "
    "hierarchical tree_dense tree_sparcml dsar_qsgd8 dsar_qsgd4 dsar_qsgd2 topka gaussiank topkdsa gtopk ok_topk "
    "tree_ok_topk";
/// ncclAllReduce, on values in device memory.
inline constexpr std::string_view nccl_system = "nccl";
/// At the end of the text of a composition: each message is compressed separately.
inline constexpr std::string_view by_message = "+p2p";

/// The slots of a composition, and the names of the parts that fill them, as `--list` prints them.
std::vector<std::pair<std::string, std::string>> parts_of_slots();

/// Whether `word` is one of the words of `text`.
bool is_word_of(std::string_view word, std::string_view text);

/// Whether `name` is the text of a composition, which `by_message` may follow.
bool is_composition(const std::string& name);

/// Throws `usage_error` unless `system` is the text of a composition (docs/guide/text.md), such a text inside a partial
/// system, mpi, nccl, or one of the program's `own` systems.
void check_system(const std::string& system, const std::vector<std::string>& own);

} // namespace spar::perf
