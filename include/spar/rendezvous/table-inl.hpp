// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of table.hpp.
#pragma once

#include <spar/rendezvous/table.hpp>
#include <spar/rendezvous/tcp/protocol.hpp>

#include <limits>

namespace spar::inline v0_1 {

namespace detail {

/// The first byte of what is in the store.
enum class entry_kind : char { arrival = 'a', failure = 'f', mismatch = 'm', timeout = 'o', table = 't' };

inline std::string entry_of(entry_kind kind) { return std::string(1, static_cast<char>(kind)); }

inline void append_text(std::string& to, std::string_view text) {
  append_number(to, text.size(), 4);
  to.append(text);
}
inline std::string_view take_text(std::string_view& from) { return take_bytes(from, take_number(from, 4)); }

inline void expect_kind(std::string_view& bytes, entry_kind kind) {
  if (take_bytes(bytes, 1)[0] != static_cast<char>(kind))
    raise<corrupt_message>({"an entry of a rendezvous' store does not begin with ", entry_of(kind)});
}

SPAR_INLINE std::string encode(const arrival& from) {
  std::string bytes = entry_of(entry_kind::arrival);
  append_text(bytes, from.version);
  append_text(bytes, from.job);
  append_text(bytes, from.process);
  append_number(bytes, static_cast<std::uint32_t>(from.size), 4);
  return bytes.append(from.text);
}

SPAR_INLINE arrival decode_arrival(std::string_view bytes) {
  expect_kind(bytes, entry_kind::arrival);
  arrival decoded{};
  decoded.version = take_text(bytes);
  decoded.job = take_text(bytes);
  decoded.process = take_text(bytes);
  const std::uint64_t size = take_number(bytes, 4);
  if (size < 1 || size > std::uint64_t{std::numeric_limits<rank_t>::max()})
    raise<corrupt_message>({"a rank expects ", size, " ranks; expected at least 1"});
  decoded.size = static_cast<rank_t>(size);
  decoded.text = bytes;
  return decoded;
}

SPAR_INLINE std::string encode_refusal(const error& why) {
  const entry_kind kind = dynamic_cast<const timeout*>(&why) != nullptr       ? entry_kind::timeout
                          : dynamic_cast<const peer_failed*>(&why) != nullptr ? entry_kind::failure
                                                                              : entry_kind::mismatch;
  return entry_of(kind).append(why.what());
}

SPAR_INLINE bool is_refusal(std::string_view bytes) noexcept {
  return bytes.starts_with(static_cast<char>(entry_kind::failure)) ||
         bytes.starts_with(static_cast<char>(entry_kind::mismatch)) ||
         bytes.starts_with(static_cast<char>(entry_kind::timeout));
}

SPAR_INLINE void throw_refusal(std::string_view bytes) {
  if (bytes.empty()) return;
  if (bytes[0] == static_cast<char>(entry_kind::failure)) raise<peer_failed>({bytes.substr(1)});
  if (bytes[0] == static_cast<char>(entry_kind::mismatch)) raise<mismatch>({bytes.substr(1)});
  if (bytes[0] == static_cast<char>(entry_kind::timeout)) raise<timeout>({bytes.substr(1)});
}

SPAR_INLINE std::string encode_table(const std::vector<std::string>& texts) {
  std::string bytes = entry_of(entry_kind::table);
  for (const std::string& text : texts) append_text(bytes, text);
  return bytes;
}

SPAR_INLINE std::vector<std::string> decode_table(std::string_view bytes) {
  expect_kind(bytes, entry_kind::table);
  std::vector<std::string> texts;
  while (!bytes.empty()) texts.emplace_back(take_text(bytes));
  return texts;
}

SPAR_INLINE std::string name_of_job(std::string_view job) {
  if (job.empty()) return "a job without an identity (SPAR_JOB)";
  std::string name = sentence("the job \"", job, "\"");
  for (char& letter : name) { // of a stranger: a terminal must not read it as a command
    if (static_cast<unsigned char>(letter) < ' ' || letter == '\x7f') letter = '?';
  }
  return name;
}

SPAR_INLINE std::string list_of_ranks(const std::vector<rank_t>& ranks) {
  constexpr std::size_t most = 8;
  std::string list(ranks.size() == 1 ? "rank " : "ranks ");
  for (std::size_t i = 0; i < ranks.size() && i < most; ++i) {
    const bool last = i + 1 == ranks.size();
    list.append(sentence(i == 0 ? "" : last ? " and " : ", ", ranks[i]));
  }
  return ranks.size() <= most ? list : sentence(list, " and ", ranks.size() - most, " more");
}

} // namespace detail

} // namespace spar::inline v0_1
