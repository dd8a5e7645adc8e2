// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loads arbitrary bytes as a saved state of Ok-Topk: a rejected state changes nothing, a loaded state is saved with the
// same bytes, and two ranks can go on with it.
#include "fuzz/fuzz.hpp"

#include <spar/core/util/crc32c.hpp>
#include <spar/optimizer/saved_state.hpp>
#include <spar/sim.hpp>

namespace {

using reducer = spar::ok_topk<float>;

reducer fresh() { return reducer({.select = {.k = 1, .period = 2}, .by = {.tau = 3}}); }

/// Up to 15 words and a residual of up to 31 values, with the matching header, names and checksum, which no mutation
/// would find.
fuzz::exact_bytes repaired(fuzz::input& in) {
  const std::size_t words = in.take<std::uint8_t>() % 16, length = in.take<std::uint8_t>() % 32;
  const auto good = fresh().save();
  spar::detail::saved_header head;
  std::memcpy(&head, good.data(), sizeof head);
  head.words = words;
  head.length = length;
  fuzz::exact_bytes bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(sizeof head + head.names));
  std::memcpy(bytes.data(), &head, sizeof head);
  const fuzz::exact_bytes body = in.bytes(words * sizeof(std::uint64_t) + length * sizeof(float));
  bytes.insert(bytes.end(), body.begin(), body.end());
  const std::uint32_t checksum = spar::crc32c(bytes.data(), bytes.size());
  bytes.resize(bytes.size() + sizeof checksum);
  std::memcpy(bytes.data() + bytes.size() - sizeof checksum, &checksum, sizeof checksum);
  return bytes;
}

struct go_on {
  const fuzz::exact_bytes* saved;
  std::size_t length;
  spar::task<void> operator()(spar::sim& net) const& {
    reducer reduce = fresh();
    reduce.load(*saved);
    std::vector<float> x(length, 1.0F);
    for (int i = 0; i < 2; ++i) {
      auto pending = reduce.start(net, std::span(x));
      co_await std::move(pending);
    }
  }
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  const fuzz::exact_bytes saved = in.take<std::uint8_t>() % 2 == 0 ? repaired(in) : in.bytes(in.left());
  reducer reduce = fresh();
  try {
    reduce.load(saved);
  } catch (const spar::invalid_argument&) {
    fuzz::refused = true;
    fuzz::demand(reduce.save() == fresh().save(), "a rejected state had an effect");
    return 0;
  }
  fuzz::demand(reduce.save() == saved, "the saved state differs from the loaded state");
  spar::simulator(2).run(go_on{&saved, reduce.residual().empty() ? 8 : reduce.residual().size()});
  return 0;
}
