// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads arbitrary bytes as an envelope: the pieces must lie inside these bytes, and writing and reading them again must
// give the same header and pieces.
#include "fuzz/fuzz.hpp"

#include <spar/runtime/messages/envelope.hpp>

namespace {

/// Sets the right checksum, which no mutation would find.
void repair(std::span<std::byte> bytes) {
  if (bytes.size() >= sizeof(spar::short_header) && bytes[0] == std::byte{spar::short_header::expected_magic}) {
    std::uint32_t fields = 0;
    std::uint64_t digest = 0;
    std::memcpy(&fields, bytes.data(), sizeof(fields));
    std::memcpy(&digest, bytes.data() + 8, sizeof(digest));
    const std::uint32_t checksum = spar::crc32c(digest, fields);
    std::memcpy(bytes.data() + 4, &checksum, sizeof(checksum));
  } else if (bytes.size() >= sizeof(spar::header)) {
    spar::header h;
    std::memcpy(&h, bytes.data(), sizeof(h));
    h.checksum = h.expected_checksum();
    std::memcpy(bytes.data(), &h, sizeof(h));
  }
}

/// Whether a channel accepts the message; any other message ends the call in a mismatch without details.
bool passes(const spar::header& h) {
  return h.index == spar::element_code::uint32 || h.index == spar::element_code::uint64;
}

bool same(spar::header a, spar::header b) {
  a.checksum = b.checksum = 0;
  a.order = b.order = 0;
  a.dimension = b.dimension = 0; // a channel sets the dimension
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  const bool repaired = in.take<std::uint8_t>() != 0;
  fuzz::exact_bytes bytes = in.bytes(std::min<std::size_t>(in.take<std::uint16_t>(), spar::envelope_bytes));
  if (repaired) repair(bytes);

  spar::header h;
  spar::payload_views pieces;
  try {
    pieces = spar::read_envelope(bytes, h);
  } catch (const spar::corrupt_message&) {
    fuzz::refused = true;
    return 0;
  }
  for (std::size_t i = 0; i < spar::max_pieces; ++i) {
    fuzz::demand(pieces[i].size() == (spar::is_enclosed(h) ? h.lengths[i] : 0), "a piece has a wrong length");
    if (pieces[i].empty()) continue;
    fuzz::demand(pieces[i].data() >= bytes.data() && pieces[i].data() + pieces[i].size() <= bytes.data() + bytes.size(),
                 "a piece is outside of the message");
  }
  if (!passes(h)) return 0;

  fuzz::exact_bytes room(spar::envelope_bytes);
  const fuzz::exact_bytes written(room.data(), room.data() + spar::write_envelope({h, pieces}, room.data()));
  spar::header again;
  const spar::payload_views read = spar::read_envelope(written, again);
  fuzz::demand(same(h, again), "the header changes when it is written and read again");
  for (std::size_t i = 0; i < spar::max_pieces; ++i) {
    fuzz::demand(std::equal(read[i].begin(), read[i].end(), pieces[i].begin(), pieces[i].end()),
                 "a piece is another one when it is written and read again");
  }
  return 0;
}
