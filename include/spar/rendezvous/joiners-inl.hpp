// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of joiners.hpp.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/rendezvous/joiners.hpp>
#include <spar/rendezvous/rendezvous-inl.hpp>
#include <spar/rendezvous/table.hpp>
#include <spar/rendezvous/tcp/protocol.hpp>
#include <spar/version.hpp>

#include <map>
#include <optional>

namespace spar::inline v0_1::detail {

/// The keys of a place: what the process tells, the growth that takes it or the reason why none will, and a word by
/// which the process says that it is still there.
inline std::string place_key(std::uint64_t place) { return sentence("spar/join/", place); }
inline std::string taker_key(std::uint64_t place) { return sentence("spar/join/", place, "/taker"); }
inline std::string presence_key(std::uint64_t place) { return sentence("spar/join/", place, "/here"); }

inline std::string report_key(std::string_view prefix, rank_t r) { return sentence(prefix, r); }
inline std::string decision_key(std::string_view prefix) { return sentence(prefix, "decision"); }

SPAR_INLINE std::string encode(const growth& from) {
  std::vector<std::string> texts{std::string(), from.settings};
  append_number(texts[0], from.next_place, 8);
  texts.insert(texts.end(), from.all.begin(), from.all.end());
  return encode_table(texts);
}

SPAR_INLINE growth decode_growth(std::string_view bytes) {
  std::vector<std::string> texts = decode_table(bytes);
  if (texts.size() < 3) raise<corrupt_message>({"a group grows to ", texts.size(), " - 2 ranks; expected at least 1"});
  std::string_view next = texts[0];
  growth decided{take_number(next, 8), std::move(texts[1]), {}};
  if (decided.next_place == 0 || !next.empty())
    raise<corrupt_message>({"the next place of a group that grows is ", decided.next_place, " in ", 8 + next.size(),
                            " bytes; expected at least 1 in 8 bytes"});
  texts.erase(texts.begin(), texts.begin() + 2);
  std::map<std::string_view, rank_t> ranks;
  for (const std::string& text : texts) {
    const auto own = static_cast<rank_t>(ranks.size());
    if (const auto [same, is_new] = ranks.try_emplace(text, own); !is_new)
      raise<corrupt_message>({"the ranks ", same->second, " and ", own, " of a group that grows are one process"});
  }
  decided.all = std::move(texts);
  return decided;
}

/// The growth that `bytes` describes, in which the rank `own` of the group has told `text`, or none if a joiner has
/// given up. Throws `peer_failed` if a rank of the group has refused, and `corrupt_message` if `bytes` is malformed.
inline growth growth_or_throw(std::string_view bytes, rank_t own, std::string_view text) {
  try {
    throw_refusal(bytes);
  } catch (const timeout&) {
    return {};
  } catch (const mismatch& why) {
    raise<peer_failed>({"the communicator does not grow: ", why.what()});
  }
  growth decided = decode_growth(bytes);
  const auto place = static_cast<std::size_t>(own);
  if (place >= decided.all.size() || decided.all[place] != text) {
    raise<corrupt_message>({"a group grows to ", decided.all.size(), " ranks, of which none is its rank ", own});
  }
  return decided;
}

/// Waits for the value of `key` as long as `with` has patience with `peer`.
inline std::optional<std::string> wait_patiently(rendezvous_store& meeting, const std::string& key, rank_t peer,
                                                 patience& with) {
  constexpr double longest_wait = 0.05; // seconds until the rank asks `with` again
  for (;;) {
    const double left = with.left(peer);
    auto value = meeting.wait(key, std::min(std::max(left, 0.), longest_wait));
    if (value || left <= 0) return value;
  }
}

SPAR_INLINE std::vector<joiner> take_joiners(rendezvous_store& meeting, std::string_view prefix, std::uint64_t& next,
                                             void (*validate)(std::string_view text)) {
  std::vector<joiner> taken;
  for (;; ++next) {
    const auto asks = meeting.wait(place_key(next), 0);
    if (!asks) return taken;
    try {
      const arrival its = decode_arrival(*asks);
      if (its.version != version) {
        raise<mismatch>({"a process that joins runs spar ", its.version, ", but rank 0 runs spar ", version, ": ",
                         its.process, "; start all ranks from one build"});
      }
      validate(its.text);
      for (const joiner& other : taken) {
        if (other.text == its.text)
          raise<mismatch>({its.process, " joins at the place ", next,
                           " with the text of another process, at the place ", other.place});
      }
      if (meeting.put(taker_key(next), prefix) == prefix) taken.push_back({next, std::string(its.text)});
    } catch (const transport_error&) {
      throw;
    } catch (const error& why) {
      meeting.put(taker_key(next), encode_refusal(why));
    }
  }
}

SPAR_INLINE growth lead_growth(rendezvous_store& meeting, std::string_view prefix, rank_t size, std::string_view text,
                               std::string_view settings, const std::vector<joiner>& joiners, patience& with) {
  growth decided{joiners.back().place + 1, std::string(settings), {std::string(text)}};
  for (rank_t r = 1; r < size; ++r) {
    auto report = wait_patiently(meeting, report_key(prefix, r), r, with);
    if (!report) {
      const std::string why = sentence("rank 0 has given up rank ", r);
      return growth_or_throw(refuse_growth(meeting, prefix, why), 0, text);
    }
    decided.all.push_back(*std::move(report));
  }
  for (std::size_t i = 0; i < joiners.size(); ++i) {
    if (wait_patiently(meeting, presence_key(joiners[i].place), size + static_cast<rank_t>(i), with))
      decided.all.push_back(joiners[i].text);
  }
  return growth_or_throw(meeting.put(decision_key(prefix), encode(decided)), 0, text);
}

SPAR_INLINE growth follow_growth(rendezvous_store& meeting, std::string_view prefix, rank_t own, std::string_view text,
                                 patience& with) {
  meeting.put(report_key(prefix, own), text);
  auto decision = wait_patiently(meeting, decision_key(prefix), 0, with);
  if (!decision) decision = refuse_growth(meeting, prefix, sentence("rank ", own, " has given up rank 0"));
  return growth_or_throw(*decision, own, text);
}

SPAR_INLINE std::string refuse_growth(rendezvous_store& meeting, std::string_view prefix, std::string_view why) {
  return meeting.put(decision_key(prefix), encode_refusal(mismatch(std::string(why))));
}

SPAR_INLINE growth join_group(rendezvous_store& meeting, std::string_view text, double seconds) {
  const double until = monotonic_seconds() + seconds;
  const std::string process = name_of_process();
  const std::string asks = encode(arrival{version, "", process, 1, text});
  const auto wait_or_refuse = [&](const std::string& key, std::string_view what) {
    auto value = meeting.wait(key, std::max(until - monotonic_seconds(), 0.));
    if (value) return *std::move(value);
    const timeout late(sentence(process, " has waited ", seconds, " s for ", what, "; they may have ended"));
    const std::string refusal = encode_refusal(late);
    std::string kept = meeting.put(key, refusal);
    if (kept == refusal) throw late;
    return kept;
  };
  for (std::uint64_t place = 0;; ++place) {
    while (meeting.put(place_key(place), asks) != asks) ++place;
    const std::string taker = wait_or_refuse(taker_key(place), "the ranks of the job to call grow");
    throw_refusal(taker);
    meeting.put(presence_key(place), "here");
    const std::string decision = wait_or_refuse(decision_key(taker), "the ranks that grow to decide");
    if (!is_refusal(decision)) {
      growth decided = decode_growth(decision);
      for (const std::string& one : decided.all) {
        if (one == text) return decided;
      }
    }
    rest(0.01); // rank 0 takes who asks, one after the other, and must come to an end
  }
}

} // namespace spar::inline v0_1::detail
