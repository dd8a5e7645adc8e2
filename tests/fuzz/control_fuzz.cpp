// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any bytes as control messages to rank 1 of 4: what is heeded is what was told, by somebody who exists.
#include "fuzz/fuzz.hpp"

#include <spar/core/endpoint.hpp>

#include <memory_resource>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  spar::endpoint node(1, 4, spar::pool_owner(*std::pmr::new_delete_resource()));
  while (in.left() > 0 && !node.dead()) {
    const bool repaired = in.take<std::uint8_t>() != 0;
    auto note = in.take<spar::control_message>();
    if (repaired) note.checksum = note.expected_checksum(); // which no mutation would find
    try {
      note.validate(node.size());
      node.heed(note);
    } catch (const spar::error&) { // the call ends
      fuzz::refused = true;
      return 0;
    }
    fuzz::demand(note.source >= 0 && note.source < node.size(), "it is from a rank that there is not");
    fuzz::demand(!node.dead() || (note.what == spar::control_message::purpose::abort && note.last == 1),
                 "it is dead without a whole reason");
  }
  if (node.dead()) {
    fuzz::demand(node.failed_rank() >= 0 && node.failed_rank() < node.size(), "a rank that there is not has failed");
    try {
      node.throw_dead();
    } catch (const spar::peer_failed& e) {
      fuzz::demand(std::string(e.what()).size() < spar::told_length + 100, "the reason is too long");
    }
  }
  return 0;
}
