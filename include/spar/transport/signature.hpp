// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What all ranks of a call must agree on, and what they are told where they do not.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/message.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace spar {

/// FNV-1a folded to 16 bits, the code of a name on the wire.
constexpr std::uint16_t name_code(std::string_view name) noexcept {
  std::uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<std::uint16_t>(hash ^ (hash >> 16));
}

/// The code of an algorithm's name, with a number that is made of its options.
constexpr std::uint16_t algorithm_code(std::string_view name, std::uint64_t option) noexcept {
  return static_cast<std::uint16_t>(name_code(name) ^ static_cast<std::uint16_t>(option ^ option >> 16));
}

/// In place of the indices' type: the call is of dense values.
struct no_indices {};

/// What the code of an algorithm's name is changed by in a call of dense values.
inline constexpr std::uint16_t dense_form = name_code("of dense values");

/// The signature of a call with values of T and indices of Index, or `no_indices`; `option` is what else must be the
/// same, as a root.
template <element T, class Index, class Algorithm, class Op>
  requires index_type<Index> || std::same_as<Index, no_indices>
constexpr signature signature_of(std::uint64_t dimension, std::uint64_t option = 0) noexcept {
  signature agreed{algorithm_code(Algorithm::name, option), name_code(Op::name), code_of<T>, element_code::uint32,
                   dimension};
  if constexpr (index_type<Index>) {
    agreed.index = code_of<Index>;
  } else {
    agreed.form = dense_form;
    agreed.algorithm = static_cast<std::uint16_t>(agreed.algorithm ^ dense_form);
  }
  return agreed;
}

/// What the header of every message of a call says; `sequence` is the number of the call.
constexpr header header_of(const signature& agreed, std::uint64_t sequence) noexcept {
  return {.sequence = static_cast<std::uint32_t>(sequence % header::sequences),
          .algorithm = agreed.algorithm,
          .operation = agreed.operation,
          .element = agreed.element,
          .index = agreed.index,
          .dimension = agreed.dimension};
}

/// Whether a header is of that call.
constexpr bool is_of(const header& h, const signature& agreed, std::uint64_t sequence) noexcept {
  return h.sequence == sequence % header::sequences && h.dimension == agreed.dimension && h.element == agreed.element &&
         h.index == agreed.index && h.algorithm == agreed.algorithm && h.operation == agreed.operation;
}

namespace detail {

/// All names in the library: what a code of another rank may stand for.
inline constexpr std::string_view known_names[] = {"all",
                                                   "average",
                                                   "bfloat16",
                                                   "binomial_broadcast",
                                                   "binomial_reduce",
                                                   "bruck_allgather",
                                                   "bucket_topk",
                                                   "compressed",
                                                   "compressed_flexreduce",
                                                   "compressed_recursive_doubling",
                                                   "compressed_ring",
                                                   "coo",
                                                   "dense",
                                                   "doubling_of_compressed_messages",
                                                   "everyone",
                                                   "exact_topk",
                                                   "flexreduce",
                                                   "gather_and_merge",
                                                   "gaussian",
                                                   "gtopk",
                                                   "half",
                                                   "majority",
                                                   "maximum",
                                                   "minimum",
                                                   "named",
                                                   "none",
                                                   "ok_topk",
                                                   "product",
                                                   "qsgd2",
                                                   "qsgd4",
                                                   "qsgd8",
                                                   "quorum",
                                                   "rabenseifner",
                                                   "recursive_doubling",
                                                   "ring",
                                                   "ring_allgather",
                                                   "ring_of_compressed_messages",
                                                   "ring_reduce_scatter",
                                                   "solo",
                                                   "sparcml",
                                                   "split_allgather",
                                                   "split_reduce_scatter",
                                                   "sum",
                                                   "threshold_reuse",
                                                   "tree_dense",
                                                   "tree_sparcml",
                                                   "zfp"};

[[gnu::noinline, gnu::cold]] inline std::string name_of(std::uint16_t code) {
  for (const std::string_view name : known_names) {
    if (name_code(name) == code) return std::string(name);
    if ((name_code(name) ^ dense_form) == code) return std::string(name) + " of dense values";
  }
  return sentence("another one or other options (code ", code, ")");
}

[[gnu::noinline, gnu::cold]] inline std::string name_of(element_code code) {
  constexpr const char* names[] = {"none",   "float",  "double", "int32",    "int64",
                                   "uint32", "uint64", "half",   "bfloat16", "bytes"};
  const auto number = static_cast<unsigned>(code);
  return number < std::size(names) ? names[number] : sentence("a type of the user (code ", number, ")");
}

/// The header of a message from `peer` is not that of the call of this `rank`: throws `mismatch`, which names both
/// sides.
[[noreturn, gnu::noinline, gnu::cold]] inline void throw_mismatch(const header& h, rank_t peer, const header& ours,
                                                                  rank_t rank) {
  const auto disagree = [&](sentence_part what, sentence_part theirs, sentence_part own) {
    raise<mismatch>({"ranks disagree on ", what, ": rank ", peer, " has ", theirs, ", rank ", rank, " has ", own});
  };
  if (h.sequence != ours.sequence) disagree("the number of the collective", h.sequence, ours.sequence);
  if (h.dimension != ours.dimension) disagree("the dimension n", h.dimension, ours.dimension);
  if (h.element != ours.element) disagree("the element type", name_of(h.element), name_of(ours.element));
  if (h.index != ours.index) disagree("the index type", name_of(h.index), name_of(ours.index));
  if (h.algorithm != ours.algorithm) disagree("the algorithm", name_of(h.algorithm), name_of(ours.algorithm));
  if (h.operation != ours.operation) disagree("the operation", name_of(h.operation), name_of(ours.operation));
  raise<mismatch>({"ranks disagree on the lane: rank ", peer, " has ", static_cast<unsigned>(h.lane), ", rank ", rank,
                   " has ", static_cast<unsigned>(ours.lane)});
}

} // namespace detail

} // namespace spar
