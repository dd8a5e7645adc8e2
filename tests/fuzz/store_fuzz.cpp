// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes arbitrary bytes as what strangers and clients send to the server of a rendezvous, and as what ranks find in
// its store. What is accepted, encoded again, gives the same bytes.
#include "fuzz/fuzz.hpp"

#include <spar/rendezvous/joiners.hpp>
#include <spar/rendezvous/table.hpp>
#include <spar/rendezvous/tcp/protocol.hpp>
#include <spar/version.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace {

using namespace spar::detail;

void demand_same(std::string_view decoded, std::string_view encoded) {
  fuzz::demand(decoded == encoded, "what was decoded is encoded differently");
}

void decode_greeting(std::string_view bytes) {
  const auto frame = first_frame(bytes, most_greeting_bytes);
  if (!frame) return;
  fuzz::demand(frame->size() <= bytes.size() && frame->size() <= most_greeting_bytes, "a frame is too long");
  if (frame->kind == frame_kind::hello) {
    const hello_message hello = decode_hello(frame->body);
    demand_same(bytes.substr(0, frame->size()), encode(hello));
    fuzz::demand(hello.job.size() <= most_job_bytes, "a job is too long");
  } else if (frame->kind == frame_kind::challenge) {
    fuzz::demand(decode_challenge(frame->body).nonce.size() == nonce_bytes, "a nonce has another length");
  }
}

void decode_requests(std::string_view bytes) {
  while (const auto frame = first_frame(bytes, most_frame_bytes)) {
    const store_request request = decode_request(*frame);
    demand_same(bytes.substr(0, frame->size()), encode(request));
    fuzz::demand(!request.key.empty() && request.key.size() <= most_key_bytes, "a key has an invalid length");
    bytes.remove_prefix(frame->size());
  }
}

void decode_entry(std::string_view bytes, bool table) {
  if (!table) {
    const arrival decoded = decode_arrival(bytes);
    fuzz::demand(decoded.size >= 1, "a rank expects no ranks");
    demand_same(bytes, encode(decoded));
  } else {
    throw_refusal(bytes);
    demand_same(bytes, encode_table(decode_table(bytes)));
  }
}

/// What a process that joins puts into the store ends no group: rank 0 takes the process, or refuses it at its place.
void take_joiner(std::string_view bytes) {
  spar::memory_store store;
  store.put("spar/join/0", bytes);
  std::uint64_t next = 0;
  const auto taken = take_joiners(store, "group/", next, [](std::string_view text) {
    if (!text.starts_with('t')) spar::raise<spar::corrupt_message>({"a malformed text"});
  });
  fuzz::demand(next == 1, "a process is neither taken nor refused");
  const std::string answer = store.wait("spar/join/0/taker", 0).value_or("");
  fuzz::demand(taken.empty() ? is_refusal(answer) : answer == "group/", "a process that is not taken is not refused");
  throw_refusal(answer);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  const auto what = in.take<std::uint8_t>() % 7;
  const fuzz::exact_bytes bytes = in.bytes(in.left());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    if (what == 0) decode_greeting(text);
    if (what == 1) decode_requests(text);
    if (what == 2 || what == 3) decode_entry(text, what == 3);
    if (what == 4) demand_same(text, encode(decode_growth(text)));
    if (what == 5) take_joiner(text);
    if (what == 6) take_joiner(encode(arrival{spar::version, "", "process", 1, text}));
  } catch (const spar::error&) {
    fuzz::refused = true;
  }
  return 0;
}
