// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Joins arbitrary messages as the parts of a sparse allgather: the result must have the expected number of valid parts,
// with the entries of the messages in order.
#include "fuzz/hostile.hpp"
#include "support/varint.hpp"

#include <spar/collective/wire/encoded_parts.hpp>
#include <spar/storage/gathered.hpp>
#include <spar/storage/wire.hpp>
#include <spar/workspace/host_work.hpp>

namespace {

template <class T, class Index>
void join_any(fuzz::input& in) {
  const std::size_t ranks = 2 + in.take<std::uint8_t>() % 16;
  const std::uint64_t n = in.take<std::uint32_t>();
  spar::pool memory;
  const std::array<Index, 2> own_indices{0, 1};
  const std::array<T, 2> own_values{1, 2};
  const std::size_t own = std::min<std::uint64_t>(n, in.take<std::uint8_t>() % 3);
  const auto mine = spar::sparse_view(n, std::span(own_indices).first(own), std::span(own_values).first(own));
  spar::scheduler scheduler(memory);
  const spar::host_work place(scheduler);
  spar::gathered<T, Index> have(mine, ranks, place);
  std::vector<Index> indices(own_indices.begin(), own_indices.begin() + own);
  while (have.size() < ranks) { // the rounds of Bruck's algorithm
    const std::size_t parts = std::min(have.size(), ranks - have.size());
    spar::message_buffer message(memory);
    spar::header agreed;
    agreed.dimension = n;
    fuzz::arrive(message, in, agreed);
    try {
      const auto ends = message.piece<std::uint64_t>(0);
      have.check_ends(message, ends, parts);
      spar::check_parts(message.piece<Index>(1), ends, [n](std::size_t) { return spar::index_range{0, n}; });
      const std::size_t first =
          have.size() + parts == ranks ? ranks - 1 : 0; // the last round begins with the last part
      have = have.joined(message, ends, place, first);
    } catch (const spar::corrupt_message&) {
      fuzz::refused = true;
      return;
    }
    const auto brought = message.piece<Index>(1);
    indices.insert(indices.end(), brought.begin(), brought.end());
  }

  std::size_t entry = 0;
  fuzz::demand(have.size() == ranks && have.count() == indices.size(), "parts or entries are missing");
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto part = have.part((r + 1) % ranks);
    spar::check_indices(part.indices(), {0, n});
    for (const Index i : part.indices()) fuzz::demand(i == indices[entry++], "a part has another entry than was sent");
  }
  fuzz::demand(entry == indices.size(), "some entries are in no part");
}

/// The rounds of Bruck's algorithm with encoded streams, in owned blocks or anywhere.
template <class T, class Index>
void join_any_code(fuzz::input& in) {
  const spar::rank_t ranks = 2 + in.take<std::uint8_t>() % 16;
  const std::uint64_t n = in.take<std::uint16_t>();
  const bool owned = in.take<std::uint8_t>() % 2 == 1;
  fuzz::hostile net(0, ranks, in);
  const spar::bruck_allgather allgather;
  const auto nothing = spar::stream_view<T, Index>::sparse(n, {}, {});
  const auto agreed = spar::signature_of<T, Index, spar::sum>(n, allgather);
  try {
    const auto all = net.run(agreed, allgather, nothing, owned, spar_test::varint{});
    fuzz::demand(all.size() == static_cast<std::size_t>(ranks), "parts are missing");
    const spar::uniform_ownership owner{n, ranks};
    for (spar::rank_t r = 0; r < ranks; ++r) {
      const auto part = all.part(static_cast<std::size_t>(r));
      spar::check_indices(part.indices(), owned ? owner[r] : spar::index_range{0, n});
    }
  } catch (const spar::corrupt_message&) {
    fuzz::refused = true;
  } catch (const spar::mismatch&) { // a message may have other elements than the call
    fuzz::refused = true;
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  switch (in.take<std::uint8_t>() % 4) {
  case 0:
    join_any<float, std::uint32_t>(in);
    break;
  case 1:
    join_any<double, std::uint64_t>(in);
    break;
  case 2:
    join_any_code<float, std::uint32_t>(in);
    break;
  default:
    join_any_code<double, std::uint64_t>(in);
  }
  return 0;
}
