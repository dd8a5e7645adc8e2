// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sends arbitrary bytes as control messages to rank 1 of 4, which has a call in flight: the rank acts only on complete
// messages from ranks that exist.
#include "fuzz/fuzz.hpp"

#include <spar/transport/threads.hpp>

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace {

/// A call in flight in which the rank does not wait.
class call_in_flight {
 public:
  explicit call_in_flight(spar::endpoint& node) : node_(&node) {
    call_.agreed = {.digest = 1, .element = spar::element_code::float32, .dimension = 100};
    node.calls().number(call_);
    node.open(call_, 0);
  }
  call_in_flight(const call_in_flight&) = delete;
  ~call_in_flight() { node_->finish(call_, 0); }
  /// Whether a note describes another call with the same number.
  [[nodiscard]] bool contradicts(std::string_view text) const {
    spar::detail::call_note note;
    if (text.size() < sizeof(note)) return false;
    std::memcpy(static_cast<void*>(&note), text.data(), sizeof(note));
    return note.sequence % spar::header::sequences == call_.sequence &&
           (note.digest != call_.agreed.digest || note.history != call_.history ||
            note.element != call_.agreed.element || note.index != call_.agreed.index);
  }

 private:
  spar::endpoint* node_;
  spar::call_record call_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  spar::thread_group group(4);
  spar::threads_port& node = group.rank(1).port();
  const call_in_flight call(node);
  std::map<spar::rank_t, std::string> told; // by rank: the parts of its call note received so far
  while (in.left() > 0 && !node.dead()) {
    const bool repaired = in.take<std::uint8_t>() != 0;
    auto note = in.take<spar::control_message>();
    if (repaired) note.checksum = note.expected_checksum(); // no mutation would find the right checksum
    try {
      note.validate(node.size());
      if (note.what == spar::control_message::purpose::call) told[note.source].append(note.text.data(), note.length);
      spar::on_control_message(node, note);
    } catch (const spar::mismatch&) {
      fuzz::demand(note.what == spar::control_message::purpose::call && note.last == 1 &&
                       call.contradicts(told[note.source]),
                   "a mismatch without a note of another call");
      fuzz::refused = true;
      return 0;
    } catch (const spar::error&) { // the call ends
      fuzz::refused = true;
      return 0;
    }
    if (note.what == spar::control_message::purpose::call && note.last == 1) told[note.source].clear();
    fuzz::demand(note.source >= 0 && note.source < node.size(), "a message from an invalid rank was accepted");
    fuzz::demand(!node.dead() || (note.what == spar::control_message::purpose::abort && note.last == 1),
                 "the communicator is dead before the reason was complete");
  }
  if (node.dead()) {
    fuzz::demand(node.failure().failed_rank() >= 0 && node.failure().failed_rank() < node.size(),
                 "the failed rank is out of range");
    try {
      node.failure().raise_peer_failed();
    } catch (const spar::peer_failed& e) {
      fuzz::demand(std::string(e.what()).size() < spar::max_text_length + 100, "the reason is too long");
    }
  }
  return 0;
}
