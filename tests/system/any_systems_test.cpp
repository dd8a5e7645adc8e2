// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every system that a text names, with every type of values, on 1 to 9 ranks: the compiled library has the bits, the
// messages and the virtual time of the headers.
#include <spar/any_compose.hpp>
#include <spar/collective/allreduce/gather_and_merge.hpp>
#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/collective/topk/tree_of_topk.hpp>
#include <spar/selector/named_selector.hpp>
#include <spar/selector/nonzeros.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/system/text/composition_text.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t n = 700;

/// What a call has done on one rank.
struct outcome {
  std::vector<std::byte> bytes{};
  std::uint64_t messages = 0;
  std::uint64_t payload = 0;
  double virtual_time = 0; // in the simulator
  bool operator==(const outcome&) const = default;
};
std::ostream& operator<<(std::ostream& out, const outcome& o) {
  return out << o.bytes.size() << " bytes in " << o.messages << " messages of " << o.payload << " bytes, "
             << o.virtual_time << " s";
}
using outcomes = std::vector<outcome>; // one for each rank

template <class X>
void append(std::vector<std::byte>& to, std::span<const X> from) {
  const auto bytes = std::as_bytes(from);
  to.insert(to.end(), bytes.begin(), bytes.end());
}
template <class Sum>
void append_sum(std::vector<std::byte>& to, const Sum& sum) {
  append(to, sum.indices());
  append(to, sum.values());
}

/// The values of one rank in one step, of which every fifth is an entry of its stream.
template <class T, class Index>
struct input {
  input(spar::rank_t rank, int step) {
    for (std::size_t i = 0; i < n; ++i) {
      const auto mixed =
          (i * 7919 + static_cast<std::size_t>(rank) * 104729 + static_cast<std::size_t>(step) * 99) % 97;
      dense.push_back(static_cast<T>(static_cast<int>(mixed) - 48));
      if ((i + static_cast<std::size_t>(rank)) % 5 != 0) continue;
      indices.push_back(static_cast<Index>(i));
      values.push_back(dense.back());
    }
  }
  std::vector<T> dense, values;
  std::vector<Index> indices;
};

/// A call in flight, with what it borrows.
template <class Input, class Pending>
struct call {
  Input mine;
  Pending pending;
};

/// On each rank: `start(net, input)` returns a handle; `finish(handle, input, bytes)` appends the result.
template <class T, class Index, class Start, class Finish>
outcomes run(bool simulated, spar::rank_t ranks, int step, const Start& start, const Finish& finish) {
  outcomes all(static_cast<std::size_t>(ranks));
  const auto begin = [&](spar::any_transport& net) {
    input<T, Index> mine(net.rank(), step);
    auto pending = start(net, mine); // refers to the memory of the vectors, which does not move
    return call<input<T, Index>, decltype(pending)>{std::move(mine), std::move(pending)};
  };
  const auto end = [&](spar::any_transport& net, auto& its) {
    outcome& mine = all[static_cast<std::size_t>(net.rank())];
    finish(its.pending, its.mine, mine.bytes);
    mine.messages = its.pending.statistics().messages_sent;
    mine.payload = its.pending.statistics().bytes_sent;
    if (simulated) mine.virtual_time = net.now();
  };
  if (!simulated) {
    spar::any_group::threads(ranks).run([&](spar::any_transport& net) {
      auto its = begin(net);
      end(net, its);
    });
    return all;
  }
  spar::any_group group = spar::any_group::simulated(ranks);
  std::vector<decltype(begin(group.rank(0)))> calls;
  for (spar::rank_t r = 0; r < ranks; ++r) calls.push_back(begin(group.rank(r)));
  for (spar::rank_t r = 0; r < ranks; ++r) end(group.rank(r), calls[static_cast<std::size_t>(r)]);
  return all;
}

/// Which types of values a system has in the library.
enum class contained { for_all, for_floating, for_codecs };
template <class T, class Index>
constexpr bool contains(contained what) {
  if (what == contained::for_all) return true;
  if (what == contained::for_floating) return spar::is_floating<T>;
  return (std::same_as<T, float> || std::same_as<T, double>) && sizeof(Index) == 4;
}

/// Compares the headers with the library on `ranks` ranks.
template <class T, class Index, class Algorithm>
class comparison {
 public:
  comparison(std::string_view text, const Algorithm& algorithm, std::span<const spar::rank_t> hosts, bool simulated)
      : text_(text), algorithm_(&algorithm), hosts_(hosts), simulated_(simulated), any_(text, hosts) {}

  void of_values() const {
    const auto finish = [](auto& pending, auto& mine, auto& bytes) {
      pending.wait();
      append(bytes, std::span<const T>(mine.dense));
    };
    const auto by_any = [&](spar::any_transport& net, auto& mine) { return any_.start(net, mine.dense); };
    if constexpr (spar::dense_allreduce<Algorithm, spar::any_transport, T, spar::sum>) {
      const auto by_headers = [&](spar::any_transport& net, auto& mine) {
        return spar::start_allreduce(net, std::span(mine.dense), *algorithm_);
      };
      EXPECT_EQ(of(by_headers, finish), of(by_any, finish));
    } else {
      EXPECT_THROW(of(by_any, finish), spar::invalid_argument);
    }
  }
  void of_streams() const {
    const auto finish = [](auto& pending, auto&, auto& bytes) { append_sum(bytes, pending.wait()); };
    const auto by_any = [&](spar::any_transport& net, auto& mine) {
      return any_.start(net, n, mine.indices, mine.values);
    };
    if constexpr (spar::stream_allreduce<Algorithm, spar::any_transport, T, Index, spar::sum>) {
      const auto by_headers = [&](spar::any_transport& net, auto& mine) {
        return spar::start_allreduce(net, spar::sparse_view(n, mine.indices, mine.values), *algorithm_);
      };
      EXPECT_EQ(of(by_headers, finish), of(by_any, finish));
    } else {
      EXPECT_THROW(of(by_any, finish), spar::invalid_argument);
    }
  }
  void of_feedback() const {
    const auto finish = [](auto& pending, auto&, auto& bytes) {
      const auto result = pending.wait();
      append_sum(bytes, result.sum);
      append_sum(bytes, result.contributed);
    };
    std::vector<spar::error_feedback<T, Algorithm, Index>> reducers;
    std::vector<spar::any_feedback<T, Index>> any_reducers;
    for (std::size_t r = 0; r < hosts_.size(); ++r) {
      reducers.emplace_back(*algorithm_);
      any_reducers.emplace_back(text_, hosts_);
    }
    for (int step = 0; step < 3; ++step) {
      const auto by = [&](auto& of) {
        return [&](spar::any_transport& net, auto& mine) {
          return of[static_cast<std::size_t>(net.rank())].start_reduce(net, std::span<const T>(mine.dense));
        };
      };
      EXPECT_EQ(of(by(reducers), finish, step), of(by(any_reducers), finish, step));
      for (std::size_t r = 0; r < hosts_.size(); ++r) {
        const auto saved = reducers[r].save();
        const auto any_saved = any_reducers[r].save();
        EXPECT_TRUE(std::ranges::equal(saved, std::span(any_saved.data(), any_saved.size())));
      }
    }
  }

 private:
  template <class Start, class Finish>
  outcomes of(const Start& start, const Finish& finish, int step = 0) const {
    return run<T, Index>(simulated_, static_cast<spar::rank_t>(hosts_.size()), step, start, finish);
  }

  std::string_view text_;
  const Algorithm* algorithm_;
  std::span<const spar::rank_t> hosts_;
  bool simulated_;
  spar::any_allreduce<T, Index> any_;
};

/// Calls `f(text, algorithm, types)` for each system that the library contains.
void for_each_system(const spar::tree_plans& plans, const auto& f) {
  using contained::for_all, contained::for_floating, contained::for_codecs;
  using spar::compose, spar::selector::named_selector, spar::storage::named_codec;
  using coded_blocks = spar::storage::then<spar::storage::coo, named_codec>;
  const spar::on_tree over(plans);
  f("sparcml", compose(), for_all);
  f("ssar_split", compose(spar::ssar_split{}), for_all);
  f("dsar_split", compose(spar::dsar_split{}), for_all);
  f("rec_doubling", compose(spar::recursive_doubling{}), for_all);
  f("ring", compose(spar::ring{}), for_all);
  f("rabenseifner", compose(spar::rabenseifner{}), for_all);
  f("two_shot+bf16", compose(named_codec("bf16"), spar::two_shot{}), for_codecs);
  f("one_shot+qsgd:8", compose(named_codec("qsgd:8"), spar::one_shot{}), for_codecs);
  f("allgather", compose(spar::gather_and_merge{}), for_all);
  f("dense", compose(), for_all);
  f("automatic", compose(), for_all);
  f("nonzeros", compose(spar::selector::nonzeros{}), for_floating);
  f("flexreduce", compose(over, spar::chains{}), for_all);
  f("tree_dense", compose(over), for_all);
  f("tree_sparcml", compose(over, spar::quantile_owners{}), for_all);
  f("dsar_qsgd8", compose(coded_blocks{{}, named_codec("qsgd:8")}, spar::dsar_split{}), for_codecs);
  f("dsar_qsgd4", compose(coded_blocks{{}, named_codec("qsgd:4")}, spar::dsar_split{}), for_codecs);
  f("dsar_qsgd2", compose(coded_blocks{{}, named_codec("qsgd:2")}, spar::dsar_split{}), for_codecs);
  f("topka:k=20", compose(named_selector("exact_topk:k=20"), spar::gather_and_merge{}), for_floating);
  f("gaussiank:k=20", compose(named_selector("gaussian:k=20"), spar::gather_and_merge{}), for_floating);
  f("topkdsa:k=20", compose(named_selector("exact_topk:k=20"), spar::split_allgather<>{}), for_floating);
  f("gtopk:k=20", compose(named_selector("exact_topk:k=20"), spar::tree_of_topk{}), for_floating);
  f("ok_topk:k=20", compose(named_selector("threshold_reuse:k=20"), spar::balanced_owners{}), for_floating);
  f("tree_ok_topk:k=20", compose(named_selector("threshold_reuse:k=20"), over, spar::balanced_owners{}), for_floating);
}

TEST(any_systems, are_all_compared) {
  std::set<std::string_view> compared{"blueconnect", "hierarchical"}; // not in the library
  const spar::tree_plans plans(spar::tree::flat(2));
  for_each_system(plans, [&](std::string_view text, const auto&, contained) {
    compared.insert(text.substr(0, text.find_first_of(":+")));
  });
  for (const auto& system : spar::detail::systems) EXPECT_TRUE(compared.contains(system.name)) << system.name;
}

template <class T, class Index = std::uint32_t>
void expect_same() {
  for (spar::rank_t ranks = 1; ranks <= 9; ++ranks) {
    std::vector<spar::rank_t> hosts; // of one rank, of two, and of the others
    for (spar::rank_t r = 0; r < ranks; ++r) hosts.push_back(r == 0 ? 0 : r < 3 ? 1 : 2);
    const spar::tree_plans plans(spar::tree_of_hosts(hosts));
    for_each_system(plans, [&]<class Algorithm>(std::string_view text, const Algorithm& algorithm, contained types) {
      SCOPED_TRACE(testing::Message() << text << " on " << ranks << " ranks");
      if (testing::Test::HasFailure()) return;
      if (!contains<T, Index>(types)) {
        EXPECT_THROW((spar::any_allreduce<T, Index>(text, hosts)), spar::invalid_argument);
        return;
      }
      for (const bool simulated : {false, true}) {
        const comparison<T, Index, Algorithm> each(text, algorithm, hosts, simulated);
        each.of_values();
        each.of_streams();
        if constexpr (spar::is_floating<T> && std::same_as<decltype(algorithm.select), spar::selector::named_selector>)
          each.of_feedback();
      }
    });
  }
}

TEST(any_systems, are_those_of_the_headers_for_float) { expect_same<float>(); }
#if SPAR_ALL_CASES
TEST(any_systems, are_those_of_the_headers_for_double) { expect_same<double>(); }
TEST(any_systems, are_those_of_the_headers_for_int32) { expect_same<std::int32_t>(); }
TEST(any_systems, are_those_of_the_headers_for_int64_and_long_indices) { expect_same<std::int64_t, std::uint64_t>(); }
#ifdef SPAR_HAS_HALF
TEST(any_systems, are_those_of_the_headers_for_half) { expect_same<spar::half>(); }
#endif
#endif

} // namespace
