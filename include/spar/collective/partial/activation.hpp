// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tells the ranks of a partial collective that a round is to run (eager-SGD, section 4.1.1): a broadcast along the
// union of the binomial trees of all ranks, which any rank may begin, also several ranks at once.
#pragma once

#include <spar/collective/partial/participation.hpp>
#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/signature.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::detail {

/// The text of a control message about rounds.
struct round_note {
  enum class kind : std::uint8_t {
    made,    // the source has created its object, with this dimension and digest; its description follows
    start,   // the round is to run
    called,  // the source has made the call with this number
    drained, // rank `who` has made `round` - 1 calls and drains
    left     // rank `who` has made `round` - 1 calls and has left
  };

  std::uint32_t control_subscriber = 0;
  kind what{};
  std::uint8_t edge = 0; // sent to the rank at distance 2^edge
  std::uint16_t reserved = 0;
  std::uint64_t round = 0;  // in `made`, the dimension
  std::uint64_t digest = 0; // in `made`, the digest of the terms that must be equal on all ranks
  rank_t who = 0;
  std::uint32_t reserved_too = 0;
};
static_assert(sizeof(round_note) == 32 && std::is_trivially_copyable_v<round_note>);

/// One rank's part of the broadcast. Over each of its ceil(log2 P) edges a rank sends at most one message per round,
/// whichever rank began the round. A message that arrives over edge j is forwarded over the edges after j, so it
/// reaches the rank at distance d over the edges that are the one bits of d.
template <transport Net, participation Participation>
class activation {
 public:
  activation(Net& net, const Participation& who, std::uint64_t n, const signature& agreed) noexcept
      : net_(&net), who_(who), n_(n), digest_(agreed.digest) {}

  /// All rounds up to this one are to run.
  [[nodiscard]] std::uint64_t started() const noexcept { return started_; }
  /// The note of a rank that will make no further call; the note's round is 0 if there is no such rank.
  [[nodiscard]] const round_note& closing() const noexcept { return closing_; }
  /// The number of messages that this rank has sent to start rounds and to report its calls.
  [[nodiscard]] std::uint64_t messages() const noexcept { return messages_; }

  /// Tells the next rank that this rank has created its object. If ranks disagree on who starts rounds, no round may
  /// ever start, and no other message would reveal the mismatch.
  void greet(std::uint32_t control_subscriber, std::string description) {
    description_ = std::move(description);
    if (net_->size() == 1) return;
    const round_note note{
        .control_subscriber = control_subscriber, .what = round_note::kind::made, .round = n_, .digest = digest_};
    const std::string text = std::string(reinterpret_cast<const char*>(&note), sizeof(note)) + description_;
    send_text(*net_, control_message::purpose::round, text, (net_->rank() + 1) % net_->size());
  }

  /// This rank makes the call with this number.
  void call(std::uint32_t control_subscriber, std::uint64_t round) {
    subscriber_ = control_subscriber;
    if constexpr (std::same_as<Participation, everyone>) {
      started_ = round;
    } else if constexpr (initiated<Participation>) {
      if (who_.initiates(net_->rank(), round, net_->size())) start(round);
    } else if (round > started_) {
      const rank_t counter = who_.counter(round, net_->size());
      const round_note note{.control_subscriber = control_subscriber, .what = round_note::kind::called, .round = round};
      if (counter == net_->rank())
        count(round);
      else
        send(note, counter);
    }
  }

  /// This rank makes no further call from call `round` on. Notes forwarded for other ranks may have used this rank's
  /// other edges, but never its first edge, so the next rank always receives this note.
  void close(std::uint32_t control_subscriber, round_note::kind why, std::uint64_t round) {
    take({.control_subscriber = control_subscriber, .what = why, .round = round, .who = net_->rank()}, 0);
  }

  /// Handles a message that has arrived. Throws `corrupt_message` if the message is malformed, `mismatch` if ranks
  /// disagree.
  void hear(rank_t source, std::string_view text) {
    round_note note;
    std::memcpy(&note, text.data(), std::min(text.size(), sizeof(note)));
    const bool made = note.what == round_note::kind::made;
    const bool sound = (made ? text.size() >= sizeof(note) : text.size() == sizeof(note)) &&
                       note.what <= round_note::kind::left && note.edge < edges() && note.who >= 0 &&
                       note.who < net_->size() && (note.round > 0 || made);
    if (!sound) raise<corrupt_message>({"malformed control message about a round of a partial collective"});
    subscriber_ = note.control_subscriber;
    if (made) {
      check(note, source, std::string(text.substr(sizeof(note))));
    } else if (note.what == round_note::kind::called) {
      if constexpr (counted<Participation>) count(note.round);
    } else {
      take(note, note.edge + 1);
    }
  }

 private:
  [[nodiscard]] int edges() const noexcept {
    return static_cast<int>(std::bit_width(static_cast<std::uint32_t>(net_->size() - 1)));
  }

  void check(const round_note& theirs, rank_t peer, const std::string& description) const {
    if (theirs.round != n_) {
      raise<mismatch>({"ranks disagree on the dimension n of a partial allreduce: rank ", peer, " has ", theirs.round,
                       ", rank ", net_->rank(), " has ", n_});
    }
    if (theirs.digest != digest_) {
      const option_difference between(description, description_);
      raise<mismatch>(
          {"ranks disagree on the algorithm, the participation or the options of a partial allreduce: rank ", peer,
           " has ", between.theirs(), ", rank ", net_->rank(), " has ", between.own()});
    }
  }

  void start(std::uint64_t round) {
    if (round > started_) take({.control_subscriber = subscriber_, .what = round_note::kind::start, .round = round}, 0);
  }

  /// Counts a call of some rank. A rank makes its next call only after the round has run, so only the calls of one
  /// round are counted at a time.
  void count(std::uint64_t round) {
    if (round < counted_round_) return;
    if (round > counted_round_) {
      counted_round_ = round;
      calls_ = 0;
    }
    if constexpr (counted<Participation>) {
      if (++calls_ >= who_.q) start(round);
    }
  }

  /// Records a note and forwards it over this rank's edges from `first` on.
  void take(round_note note, int first) {
    const bool closes = note.what != round_note::kind::start;
    if (!closes)
      started_ = std::max(started_, note.round);
    else if (closing_.round == 0 || note.round < closing_.round ||
             (note.round == closing_.round && note.what == round_note::kind::left))
      closing_ = note;
    for (int edge = first; edge < edges(); ++edge) {
      std::uint64_t& sent = sent_[static_cast<std::size_t>(2 * edge + (closes ? 1 : 0))];
      if (sent >= note.round) continue;
      sent = note.round;
      note.edge = static_cast<std::uint8_t>(edge);
      send(note, static_cast<rank_t>((net_->rank() + (std::int64_t{1} << edge)) % net_->size()));
    }
  }

  void send(const round_note& note, rank_t peer) { // allocates nothing
    const std::string_view text(reinterpret_cast<const char*>(&note), sizeof(note));
    send_text(*net_, control_message::purpose::round, text, peer);
    if (note.what == round_note::kind::start || note.what == round_note::kind::called) ++messages_;
  }

  Net* net_;
  Participation who_;
  std::uint64_t n_;
  std::uint64_t digest_;
  std::string description_{};
  std::uint32_t subscriber_ = 0;
  std::uint64_t started_ = 0;
  round_note closing_;
  std::uint64_t counted_round_ = 0;
  rank_t calls_ = 0;
  std::uint64_t messages_ = 0;
  std::array<std::uint64_t, 64> sent_{}; // per edge: the last round started, then the last closed
};

} // namespace spar::detail
