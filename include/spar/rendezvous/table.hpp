// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the ranks of a job put into their store to exchange texts: an arrival of each rank, and the decision of rank 0,
// which is a table of all texts or the reason why there is none.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spar::inline v0_1::detail {

/// What a rank puts into the store. Another process with the same rank would put another text.
struct arrival {
  std::string_view version, job, process; ///< of spar; of the job; of the process, in words
  rank_t size;                            ///< the number of ranks that this rank expects
  std::string_view text;                  ///< what the rank gives to all
};
std::string encode(const arrival& from);
/// Throws `corrupt_message` if `bytes` is malformed.
arrival decode_arrival(std::string_view bytes);

/// The reason why an exchange fails, in place of the arrival of a missing rank or of the table.
std::string encode_refusal(const error& why);
[[nodiscard]] bool is_refusal(std::string_view bytes) noexcept;
/// Throws the error that `encode_refusal` has encoded, if `bytes` is one: a `timeout`, a `peer_failed`, or else a
/// `mismatch`.
void throw_refusal(std::string_view bytes);

std::string encode_table(const std::vector<std::string>& texts);
/// Throws `corrupt_message` if `bytes` is malformed.
std::vector<std::string> decode_table(std::string_view bytes);

/// The job in words, also if it has no identity.
std::string name_of_job(std::string_view job);

/// "rank 3", "ranks 3 and 5", or the first eight and how many more.
std::string list_of_ranks(const std::vector<rank_t>& ranks);

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/rendezvous/table-inl.hpp>
#endif
