// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads arbitrary bytes as an active message of UCX, or as what a rank tells about itself: what is accepted must have
// the sizes and ranks that it names, and writing it again must give the same bytes.
#include "fuzz/fuzz.hpp"

#include <spar/transport/ucx/frame.hpp>
#include <spar/transport/ucx/member.hpp>

#include <string>
#include <string_view>

namespace {

using frame = spar::detail::ucx_frame;

/// Sets the right checksum, which no mutation would find.
void repair(std::span<std::byte> bytes) {
  if (bytes.size() < sizeof(frame)) return;
  frame f;
  std::memcpy(&f, bytes.data(), sizeof(f));
  bytes = bytes.subspan(sizeof(f));
  if (f.tag == frame::control) {
    if (bytes.size() < sizeof(spar::control_message)) return;
    spar::control_message note;
    std::memcpy(&note, bytes.data(), sizeof(note));
    note.checksum = note.expected_checksum();
    std::memcpy(bytes.data(), &note, sizeof(note));
  } else if (bytes.size() == sizeof(spar::short_header)) {
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

void repair_member(std::span<std::byte> bytes) {
  std::uint32_t checksum = 0;
  if (bytes.size() < sizeof(checksum)) return;
  checksum = spar::crc32c(bytes.data() + sizeof(checksum), bytes.size() - sizeof(checksum));
  std::memcpy(bytes.data(), &checksum, sizeof(checksum));
}

void read_message(const fuzz::exact_bytes& bytes, std::size_t payload) {
  constexpr spar::rank_t ranks = 4;
  const spar::detail::ucx_incoming m(bytes, payload, ranks);
  fuzz::demand(m.source >= 0 && m.source < ranks, "a source is no rank");
  fuzz::demand(m.tag >= frame::hello && m.tag <= frame::last_tag, "a tag is out of range");
  if (m.tag == frame::control) {
    fuzz::demand(m.note.source == m.source && payload == 0, "a control message has another source, or a payload");
    frame::room again;
    const auto written = m.write(m.note, again);
    fuzz::demand(std::equal(written.begin(), written.end(), bytes.begin(), bytes.end()), "a control message changes");
  } else if (m.tag == frame::hello) {
    fuzz::demand(bytes.size() == sizeof(frame) && payload == 0, "a hello is longer than its frame");
  } else {
    fuzz::demand(m.head.payload_bytes() == payload, "a payload has another length than its header says");
  }
}

void read_member(std::string_view text) {
  const auto m = spar::detail::ucx_member::read("rank 1", text);
  fuzz::demand(!m.address.empty(), "an address is empty");
  fuzz::demand(m.text() == text, "what a rank tells changes when it is read and written again");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  const auto kind = in.take<std::uint8_t>(); // 0 and 1: a message, damaged or repaired; 2, and others: a member
  const std::size_t payload = in.take<std::uint32_t>();
  fuzz::exact_bytes bytes = in.bytes(std::min<std::size_t>(in.left(), 200));
  if (kind == 1) repair(bytes);
  if (kind > 2) repair_member(bytes);
  try {
    if (kind < 2)
      read_message(bytes, payload);
    else
      read_member({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const spar::corrupt_message&) {
    fuzz::refused = true;
  }
  return 0;
}
