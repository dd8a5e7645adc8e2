// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sends arbitrary notes about the rounds of a partial collective to rank 1 of 5. The rank must reject a note, or act on
// it and pass it on in notes that other ranks accept, at most once per round over each edge.
#include "fuzz/hostile.hpp"

#include <spar/collective/partial/activation.hpp>

#include <map>
#include <utility>

namespace {

constexpr spar::rank_t ranks = 5, listening = 1;
const spar::signature agreed{.digest = 7};

/// Stores the control messages that it posts.
class posting : public fuzz::hostile {
 public:
  posting(spar::rank_t rank, fuzz::input& in) : hostile(rank, ranks, in) {}
  void post(const spar::control_message& note, spar::rank_t peer) { posted.emplace_back(note, peer); }

  std::vector<std::pair<spar::control_message, spar::rank_t>> posted{};
};

template <class Participation>
void hear_any(fuzz::input& in, const Participation& who) {
  using note_of = spar::detail::round_note;
  posting net(listening, in);
  spar::detail::activation<posting, Participation> rounds(net, who, 100, agreed, {});
  std::map<std::pair<spar::rank_t, bool>, std::uint64_t> sent; // by peer and whether it closes: last round
  while (in.left() > 0) {
    auto note = in.take<note_of>();
    note.digest = agreed.digest;
    if (note.what == note_of::kind::made) note.round = 100;
    const std::string_view text(reinterpret_cast<const char*>(&note), sizeof note);
    const std::uint64_t started = rounds.started();
    net.posted.clear();
    try {
      rounds.on_message(0, text);
    } catch (const spar::corrupt_message&) {
      fuzz::refused = true;
      fuzz::demand(rounds.started() == started && net.posted.empty(), "a rejected note had an effect");
      return;
    }
    fuzz::demand(rounds.started() >= started, "the number of started rounds decreased");
    for (const auto& [message, peer] : net.posted) {
      fuzz::demand(peer >= 0 && peer < ranks && peer != listening,
                   "a note is sent to an invalid rank or to its sender");
      posting other(peer, in);
      spar::detail::activation<posting, Participation>(other, who, 100, agreed, {})
          .on_message(listening, {message.text.data(), message.length});
      note_of passed;
      std::memcpy(&passed, message.text.data(), sizeof passed);
      if (passed.what == note_of::kind::called) continue;
      std::uint64_t& last = sent[{peer, passed.what != note_of::kind::start}];
      fuzz::demand(passed.round > last, "a round is announced twice over an edge");
      last = passed.round;
    }
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  switch (in.take<std::uint8_t>() % 4) {
  case 0:
    hear_any(in, spar::everyone{});
    break;
  case 1:
    hear_any(in, spar::solo{});
    break;
  case 2:
    hear_any(in, spar::majority{});
    break;
  default:
    hear_any(in, spar::quorum{.q = 3});
  }
  return 0;
}
