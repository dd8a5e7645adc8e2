// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Activates the rounds of a partial collective (eager-SGD, section 4.1.1): a broadcast of control messages makes all
// ranks run a round. Any rank, or several ranks at once, may begin the broadcast: its edges are the union of the
// binomial trees of all ranks.
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

namespace spar::inline v0_1::detail {

/// The text of a control message about a round or a call of a partial collective.
struct round_note {
  enum class kind : std::uint8_t {
    made,    // the sender has created its partial allreduce; `round` is the dimension n; a list of the options follows
    start,   // all ranks are to run round `round`
    called,  // the sender has made call number `round`
    drained, // rank `who` has made `round` - 1 calls and has called `drain`
    left     // rank `who` has destroyed its partial allreduce after `round` - 1 calls
  };

  std::uint32_t control_subscriber = 0;
  kind what{};
  std::uint8_t edge = 0; // the message goes to the rank at distance 2^edge
  std::uint16_t reserved = 0;
  std::uint64_t round = 0; // the number of a round or call, from 1; in `made`, the dimension n
  // In `made`, the digest of what must be equal on all ranks, such as the algorithm and its options.
  std::uint64_t digest = 0;
  rank_t who = 0;
  std::uint32_t reserved_too = 0;
};
static_assert(sizeof(round_note) == 32 && std::is_trivially_copyable_v<round_note>);

/// One rank's part of the broadcasts. A rank has ceil(log2 P) edges; edge j leads to the rank at distance 2^j. A
/// message that arrives over edge j is forwarded over all edges after j, so the rank at distance d from the first
/// sender gets the message over the edges j for which bit j of d is 1. A rank sends at most one `start` message per
/// edge and round, even if several ranks begin the round.
template <transport Net, participation Participation>
class activation {
 public:
  /// `description` is that of the algorithm, the participation and the options, of which `agreed` has the digest.
  activation(Net& net, const Participation& who, std::uint64_t n, const signature& agreed, std::string description)
      : net_(&net), who_(who), n_(n), digest_(agreed.digest), description_(std::move(description)) {}

  /// The number of the last activated round: all ranks are to run rounds 1 to `started()`.
  [[nodiscard]] std::uint64_t started() const noexcept { return started_; }
  /// Returns the note with the fewest calls among the `drained` and `left` notes that this rank has sent or received,
  /// or a note with round 0 if there is none.
  [[nodiscard]] const round_note& closing() const noexcept { return closing_; }
  /// The number of control messages that this rank has sent to start rounds and to report its calls.
  [[nodiscard]] std::uint64_t messages() const noexcept { return messages_; }

  /// Sends this rank's dimension, and the digest and the description of its algorithm, participation and options, to
  /// the next rank, which throws `mismatch` if its own differ. Without this message, ranks that disagree on the
  /// participation could wait forever: no rank would start a round, and no other message would reveal the mismatch.
  void greet(std::uint32_t control_subscriber) {
    if (net_->size() == 1) return;
    const round_note note{
        .control_subscriber = control_subscriber, .what = round_note::kind::made, .round = n_, .digest = digest_};
    const std::string text = std::string(reinterpret_cast<const char*>(&note), sizeof(note)) + description_;
    send_text(*net_, control_message::purpose::round, text, (net_->rank() + 1) % net_->size());
  }

  /// Called when this rank makes call `round`: starts round `round`, reports the call to the rank that counts the
  /// calls, or does nothing, as the participation prescribes.
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

  /// Sends a note that this rank has drained or destroyed its partial allreduce (`why`) after `round` - 1 calls. Skips
  /// each edge over which this rank has already forwarded a `drained` or `left` note with the same or a later round.
  /// The next rank always gets the note: edge 0 leads to the next rank, and notes are never forwarded over edge 0.
  void close(std::uint32_t control_subscriber, round_note::kind why, std::uint64_t round) {
    take({.control_subscriber = control_subscriber, .what = why, .round = round, .who = net_->rank()}, 0);
  }

  /// Processes a control message from rank `source`. Throws `corrupt_message` if the message is malformed, and
  /// `mismatch` if the dimension, the algorithm, the participation or the options of `source` differ from this rank's.
  void on_message(rank_t source, std::string_view text) {
    round_note note;
    std::memcpy(&note, text.data(), std::min(text.size(), sizeof(note)));
    const bool made = note.what == round_note::kind::made;
    const bool sound = (made ? text.size() >= sizeof(note) : text.size() == sizeof(note)) &&
                       note.what <= round_note::kind::left && note.edge < edges() && note.who >= 0 &&
                       note.who < net_->size() && (note.round > 0 || made);
    if (!sound)
      raise<corrupt_message>({"rank ", source, " sent a malformed control message of ", text.size(),
                              " bytes about a round of a partial allreduce; expected a note of ", sizeof(note),
                              " bytes with valid fields"});
    subscriber_ = note.control_subscriber;
    if (made) {
      check_note(note, source, std::string(text.substr(sizeof(note))));
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

  void check_note(const round_note& theirs, rank_t peer, const std::string& description) const {
    if (theirs.round != n_) {
      raise<mismatch>({"ranks disagree on the dimension n of a partial allreduce: rank ", peer, " has ", theirs.round,
                       ", rank ", net_->rank(), " has ", n_});
    }
    if (theirs.digest != digest_) {
      const option_difference between(description.c_str(), description_.c_str());
      raise<mismatch>(
          {"ranks disagree on the algorithm, the participation or the options of a partial allreduce: rank ", peer,
           " has ", between.theirs(), ", rank ", net_->rank(), " has ", between.own()});
    }
  }

  void start(std::uint64_t round) {
    if (round > started_) take({.control_subscriber = subscriber_, .what = round_note::kind::start, .round = round}, 0);
  }

  /// Counts call number `round` of one rank. A rank makes its next call only after round `round` has run, so one
  /// counter is enough: calls of two rounds are never counted at the same time.
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

  /// Records a note and sends it over edge `first` and all later edges of this rank. Skips each edge over which this
  /// rank has already sent a note with the same or a later round; this check compares `start` notes only with `start`
  /// notes, and `drained` and `left` notes only with `drained` and `left` notes.
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

  // Passes the bytes of `note` as a view and not as a string, so that starting a round allocates nothing.
  void send(const round_note& note, rank_t peer) {
    const std::string_view text(reinterpret_cast<const char*>(&note), sizeof(note));
    send_text(*net_, control_message::purpose::round, text, peer);
    if (note.what == round_note::kind::start || note.what == round_note::kind::called) ++messages_;
  }

  Net* net_;
  Participation who_;
  std::uint64_t n_;
  std::uint64_t digest_;
  std::string description_;
  std::uint32_t subscriber_ = 0;
  std::uint64_t started_ = 0;
  round_note closing_;
  std::uint64_t counted_round_ = 0;
  rank_t calls_ = 0;
  std::uint64_t messages_ = 0;
  // Two rounds for each edge: the round of the last `start` note, then the round of the last `drained` or `left` note.
  std::array<std::uint64_t, 64> sent_{};
};

} // namespace spar::inline v0_1::detail
