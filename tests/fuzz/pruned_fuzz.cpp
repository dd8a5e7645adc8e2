// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes arbitrary messages as those of Ok-Topk that sends only the values that can win: slices without small values,
// requests, answers, and winners. The call must end with valid sums, or with an error.
#include "fuzz/hostile.hpp"
#include "support/varint.hpp"

#include <spar/collective/topk/pruned_owners.hpp>

namespace {

/// The messages of `pruned_owners` in a call that reuses the threshold 1.25: the largest sums of all owners.
struct pruned : spar::algorithm_defaults {
  static constexpr std::string_view name = spar::pruned_owners::name;

  template <class Net, class T, class Index, class Op>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine,
                                                       Op op) const& {
    const spar::uniform_ownership owner{mine.dimension(), net.size()};
    const auto ranks = static_cast<std::size_t>(net.size());
    spar::pruned_exchange exchange(net, mine, owner, spar_test::varint(), spar::kernel::magnitude_of(T{1.25}));
    const auto sums = co_await exchange.reduce(op);
    spar::buffer<std::uint64_t> shares(net.memory(), ranks + 1); // each other rank owns two of the largest sums
    shares.data()[0] = 0;
    for (std::size_t r = 0; r < ranks; ++r)
      shares.data()[r + 1] = shares.data()[r] + (r == static_cast<std::size_t>(net.rank()) ? sums.count() : 2);
    const std::span<const std::uint64_t> all = std::as_const(shares).span();
    co_return co_await spar::gather_winners(net, sums.view(), all, exchange);
  }
};

template <class T, class Index>
void call_any(fuzz::input& in) {
  const spar::rank_t ranks = 1 + in.take<std::uint8_t>() % 9;
  fuzz::hostile net(in.take<std::uint8_t>() % ranks, ranks, in);
  const std::uint64_t n = in.take<std::uint8_t>(), stride = 1 + in.take<std::uint8_t>() % 16;
  std::vector<Index> indices;
  for (std::uint64_t i = 0; i < n; i += stride) indices.push_back(static_cast<Index>(i));
  const std::vector<T> values(indices.size(), T{1});
  const pruned algorithm;
  try {
    const spar::sparse_stream<T, Index> sums = net.run(spar::signature_of<T, Index, spar::sum>(n, algorithm), algorithm,
                                                       spar::sparse_view(n, indices, values), spar::sum{});
    const auto valid = spar::kernel::first_bad_index(sums.view().indices(), n) == sums.count();
    fuzz::demand(valid && sums.dimension() == n, "the result has invalid indices");
    fuzz::demand(!net.misfit(), "a call returned a result although a message had a wrong size");
  } catch (const spar::corrupt_message&) {
    fuzz::refused = true;
  } catch (const spar::mismatch&) {
    fuzz::refused = true;
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  in.take<std::uint8_t>() % 2 == 0 ? call_any<float, std::uint32_t>(in) : call_any<double, std::uint64_t>(in);
  return 0;
}
