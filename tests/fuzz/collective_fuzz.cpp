// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs one rank of every collective while its peers send arbitrary messages: the call must end with a valid result, or
// with an error that describes what is wrong with the messages.
#include "fuzz/hostile.hpp"
#include "support/compositions.hpp"
#include "support/varint.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

namespace {

using spar_test::stored;

/// The sum of the entries that a composition selects, as a stream, without a residual.
template <class Algorithm, class Index>
struct selecting : spar::algorithm_defaults {
  static constexpr std::string_view name = Algorithm::name;
  Algorithm algorithm;

  explicit selecting(const Algorithm& its) : algorithm(its) {}

  template <class Net, class T, class Op>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, std::span<T> x, Op op) const& {
    typename Algorithm::state now;
    typename Algorithm::report last;
    const spar::selector::nothing_to_prepare nothing;
    auto result = co_await algorithm.template reduce<Index>(net, &now, &last, x, op, nothing);
    co_return std::move(result.sum);
  }
};

/// A plan for two hosts with half of the ranks each.
spar::flex_plan plan_for(spar::rank_t ranks, std::uint64_t n) {
  std::vector<spar::rank_t> host_of;
  for (spar::rank_t r = 0; r < ranks; ++r) host_of.push_back(r < ranks / 2 ? 0 : 1);
  return spar::flex_plan(spar::tree_of_hosts(host_of), n);
}

template <class T, class Index>
void call(unsigned which, fuzz::hostile& net, const spar::stream_view<T, Index>& mine, std::span<T> x,
          spar::rank_t root) {
  constexpr spar::sum op;
  const std::uint64_t n = mine.dimension();
  const auto valid = [n](std::span<const Index> i) { return spar::kernel::first_bad_index(i, n) == i.size(); };
  const auto run = [&]<class Algorithm, class... Args>(const Algorithm& algorithm, Args... args) {
    return net.run(spar::signature_of<T, Index, spar::sum>(n, algorithm), algorithm, args...);
  };
  const auto sparse = [&](const auto& algorithm, auto... args) { // the sum of all entries, or of this rank's block
    const spar::sparse_stream<T, Index> sum = run(algorithm, args...);
    fuzz::demand(valid(sum.view().indices()), "the result has invalid indices");
    fuzz::demand(sum.dimension() == n && sum.count() <= n, "the result has a wrong size");
  };
  using coded = spar::storage::then<spar_test::varint, spar::storage::as_bfloat16>;
  switch (which % 31) {
  case 0:
    return sparse(spar::recursive_doubling{}, mine, op);
  case 1:
    return sparse(spar::ssar_split{}, mine, op);
  case 2:
    return sparse(spar::dsar_split{}, mine, op);
  case 3:
    return sparse(spar_test::quantised_split<4>{}, mine, op);
  case 4:
    return sparse(spar::ring{}, mine, op);
  case 5:
    return sparse(spar::rabenseifner{}, mine, op);
  case 6:
    return sparse(spar::split_reduce_scatter{}, mine, op);
  case 7:
    return sparse(spar::binomial_reduce{}, mine, root, op);
  case 8:
    return sparse(spar::binomial_broadcast{}, mine, root);
  case 9:
    return run(spar::recursive_doubling{}, x, op);
  case 10:
    return run(spar::ring{}, x, op);
  case 11:
    return run(spar::rabenseifner{}, x, op);
  case 12:
    return run(spar::binomial_reduce{}, x, root, op);
  case 13:
    return run(spar::binomial_broadcast{}, x, root);
  case 15:
    return sparse(spar::split_allgather<>{}, mine, op);
  case 16:
    return sparse(selecting<spar::gtopk_allreduce, Index>({.select = {.k = n / 8}}), x, op);
  case 17:
    return sparse(selecting<spar::ok_topk_allreduce<>, Index>({.select = {.k = n / 8}}), x, op);
  case 18:
    return run(spar::compose(spar::storage::as_bfloat16{}, spar::ring{.piece = 3}), x, op);
  case 19:
    return run(spar::compose(spar::storage::as_bfloat16{}, spar::recursive_doubling{.piece = 3}), x, op);
  case 20:
  case 21: {
    const spar::flex_plan plan = plan_for(net.size(), n);
    const auto flexreduce = spar::flexreduce(plan);
    return which % 31 == 20 ? run(flexreduce, x, op) : sparse(flexreduce, mine, op);
  }
  case 22:
    return sparse(stored<coded, spar::recursive_doubling>{}, mine, op);
  case 23:
    return sparse(stored<coded, spar::rabenseifner>{}, mine, op);
  case 24:
    return sparse(stored<coded, spar::ring>{}, mine, op);
  case 25:
    return sparse(stored<spar_test::varint, spar::ssar_split>{}, mine, op);
  case 26: {
    const spar::flex_plan plan = plan_for(net.size(), n);
    return sparse(spar::flexreduce(plan, coded{}), mine, op);
  }
  case 27:
    return sparse(spar::binomial_broadcast{}, mine, root, coded{});
  case 28:
    return run(spar::compose(spar::storage::as_bfloat16{}, spar::two_shot{.piece = 3}), x, op);
  case 29:
    return run(spar::compose(spar::storage::as_bfloat16{}, spar::one_shot{.piece = 3}), x, op);
  case 30:
    try {
      return run(spar::compose(spar::storage::bound{.error = 0.5}, spar::ring{.piece = 3}), x, op);
    } catch (const spar::invalid_argument&) { // a peer has values that are too large for codes
      fuzz::refused = true;
      return;
    }
  default:
    const auto all = run(spar::bruck_allgather{}, mine, false);
    for (std::size_t r = 0; r < all.size(); ++r)
      fuzz::demand(valid(all.part(r).indices()), "a part has invalid indices");
  }
}

template <class T, class Index>
void call_any(unsigned which, fuzz::input& in) {
  const spar::rank_t ranks = 1 + in.take<std::uint8_t>() % 9;
  fuzz::hostile net(in.take<std::uint8_t>() % ranks, ranks, in);
  const spar::rank_t root = in.take<std::uint8_t>() % ranks;
  const std::size_t n = in.take<std::uint8_t>(), stride = 1 + in.take<std::uint8_t>() % 16;
  std::vector<Index> indices;
  for (std::size_t i = 0; i < n; i += stride) indices.push_back(static_cast<Index>(i));
  std::vector<T> values(indices.size(), T{1}), x(n, T{1});
  try {
    call<T, Index>(which, net, spar::sparse_view(n, indices, values), x, root);
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
  const unsigned kind = in.take<std::uint8_t>();
  kind % 2 == 0 ? call_any<float, std::uint32_t>(kind / 2, in) : call_any<double, std::uint64_t>(kind / 2, in);
  return 0;
}
