// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes random calls through the C interface and through that of C++, and compares results, messages and bytes.
#pragma once

#include <spar/spar.h>
#include <spar/spar.hpp>
#include <spar/storage/coalesce.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace c_test {

/// One rank's communicators, of C++ and of C, on which all ranks make the same random calls.
template <class Net, class T, class Index>
class conformance {
 public:
  conformance(Net& net, spar_comm comm, unsigned seed)
      : net_(net), comm_(comm), common_(seed), own_(seed * 1000 + static_cast<unsigned>(net.rank())) {}

  void call() {
    switch (below(8)) {
    case 0:
      return with_operation([&](int c, auto op) { values(c, op); });
    case 1:
      return with_operation([&](int c, auto op) { streams(c, op); });
    case 2:
      return with_operation([&](int c, auto op) { scatter_values(c, op); });
    case 3:
      return with_operation([&](int c, auto op) { scatter_streams(c, op); });
    case 4:
      return gather_values();
    case 5:
      return gather_streams();
    case 6:
      return send_values();
    default:
      return with_operation([&](int c, auto op) { coalesced(c, op); });
    }
  }

 private:
  static constexpr int type = static_cast<int>(spar::code_of<T>);
  static constexpr int bits = 8 * sizeof(Index);

  /// A number that is equal on all ranks.
  std::uint64_t below(std::uint64_t bound) {
    return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(common_);
  }
  T value() {
    const int number = std::uniform_int_distribution<int>(-1000, 1000)(own_);
    return std::is_floating_point_v<T> ? static_cast<T>(number) / static_cast<T>(7) : static_cast<T>(number);
  }
  template <class F>
  void with_operation(const F& f) {
    switch (below(3)) {
    case 0:
      return f(SPAR_SUM, spar::sum());
    case 1:
      return f(SPAR_MAX, spar::maximum());
    default:
      return f(SPAR_AVERAGE, spar::average());
    }
  }

  std::vector<T> random_values(std::uint64_t n) {
    std::vector<T> x(n);
    for (T& v : x) v = value();
    return x;
  }
  void choose_entries(std::uint64_t n, std::uint64_t most, bool ascending) {
    const std::uint64_t count = n == 0 ? 0 : std::uniform_int_distribution<std::uint64_t>(0, most)(own_);
    indices_.resize(count);
    for (Index& i : indices_) i = static_cast<Index>(std::uniform_int_distribution<std::uint64_t>(0, n - 1)(own_));
    if (ascending) {
      std::sort(indices_.begin(), indices_.end());
      indices_.erase(std::unique(indices_.begin(), indices_.end()), indices_.end());
    }
    values_ = random_values(indices_.size());
    given_ = {.n = static_cast<std::int64_t>(n),
              .count = static_cast<std::int64_t>(indices_.size()),
              .indices = indices_.data(),
              .values = values_.data(),
              .first = 0,
              .index_bits = bits,
              .type = type};
  }
  [[nodiscard]] spar::stream_view<T, Index> entries() const {
    return spar::sparse_view(static_cast<std::uint64_t>(given_.n), indices_, values_);
  }

  void same(const std::vector<T>& x, const std::vector<T>& y) {
    ASSERT_EQ(x.size(), y.size());
    EXPECT_TRUE(x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
  }
  static void same(const spar::stream_view<T, Index>& x, const spar_vector& y) {
    EXPECT_EQ(y.type, type);
    EXPECT_EQ(y.index_bits, bits);
    ASSERT_EQ(static_cast<std::int64_t>(x.dimension()), y.n);
    ASSERT_EQ(static_cast<std::int64_t>(x.count()), y.count);
    if (y.count == 0) return;
    ASSERT_EQ(x.is_dense(), y.indices == nullptr);
    EXPECT_EQ(static_cast<std::int64_t>(x.first()), y.first);
    EXPECT_EQ(std::memcmp(x.values().data(), y.values, x.count() * sizeof(T)), 0);
    if (!x.is_dense()) {
      EXPECT_EQ(std::memcmp(x.indices().data(), y.indices, x.count() * sizeof(Index)), 0);
    }
  }
  void ok(int status) { EXPECT_EQ(status, SPAR_SUCCESS) << spar_error_text(comm_); }
  void same_traffic() {
    spar_statistics c{};
    ok(spar_comm_last_call(comm_, &c));
    EXPECT_EQ(c.messages_sent, static_cast<std::int64_t>(net_.last_call().messages_sent));
    EXPECT_EQ(c.bytes_sent, static_cast<std::int64_t>(net_.last_call().bytes_sent));
    EXPECT_EQ(c.bytes_received, static_cast<std::int64_t>(net_.last_call().bytes_received));
    EXPECT_EQ(c.plain_bytes_sent, static_cast<std::int64_t>(net_.last_call().plain_bytes_sent));
  }
  /// Waits for the request of a call if there is one.
  void finish(spar_request* request) {
    int done = 0;
    if (below(2) == 0) ok(spar_test(*request, &done));
    ok(spar_wait(request));
    EXPECT_EQ(*request, nullptr);
  }

  template <class Op>
  void values(int c, Op op) {
    std::vector<T> x = random_values(below(300)), y = x, z(x.size());
    const auto n = static_cast<std::int64_t>(x.size());
    const bool by_ring = below(2) == 0;
    if (by_ring)
      spar::allreduce(net_, x, spar::ring{}, op);
    else
      spar::allreduce(net_, x, spar::sparcml{}, op);
    const char* const algorithm = by_ring ? "ring" : nullptr;
    spar_request request = nullptr;
    switch (below(4)) {
    case 0:
      ok(spar_allreduce(comm_, y.data(), y.data(), n, type, c, algorithm));
      break;
    case 1:
      ok(spar_allreduce(comm_, y.data(), z.data(), n, type, c, algorithm)), y.swap(z);
      break;
    case 2:
      ok(spar_start_allreduce(comm_, y.data(), y.data(), n, type, c, algorithm, &request)), finish(&request);
      break;
    default:
      ok(spar_start_allreduce(comm_, y.data(), z.data(), n, type, c, algorithm, &request)), finish(&request), y.swap(z);
    }
    same(x, y);
    same_traffic();
  }
  template <class Op>
  void streams(int c, Op op) {
    const std::uint64_t n = 1 + below(1000);
    choose_entries(n, 1 + below(n), true);
    const auto total = spar::allreduce(net_, entries(), spar::sparcml{}, op);
    spar_stream result = nullptr;
    spar_request request = nullptr;
    if (below(2) == 0)
      ok(spar_allreduce_sparse(comm_, &given_, c, "sparcml", &result));
    else
      ok(spar_start_allreduce_sparse(comm_, &given_, c, nullptr, &result, &request)), finish(&request);
    same_stream(total.view(), result, op);
    same_traffic();
  }
  template <class Op>
  void same_stream(const spar::stream_view<T, Index>& expected, spar_stream& result, Op op) {
    spar_vector view{};
    ok(spar_stream_view(result, &view));
    same(expected, view);
    std::vector<T> x(expected.dimension()), y(x.size());
    expected.to_dense(std::span(x), op);
    ok(spar_stream_to_dense(result, y.data(), static_cast<std::int64_t>(y.size())));
    same(x, y);
    ok(spar_stream_free(&result));
  }

  /// Random bounds of blocks, equal on all ranks.
  std::vector<std::uint64_t> random_bounds(std::uint64_t n) {
    std::vector<std::uint64_t> bounds{0, n};
    while (bounds.size() <= static_cast<std::size_t>(net_.size())) bounds.push_back(below(n + 1));
    std::sort(bounds.begin(), bounds.end());
    return bounds;
  }
  template <class Op>
  void scatter_values(int c, Op op) {
    std::vector<T> x = random_values(below(300)), y = x;
    const auto n = static_cast<std::int64_t>(x.size());
    std::int64_t begin = 0, end = 0;
    if (below(2) == 0) {
      spar::reduce_scatter(net_, x, spar::ring_reduce_scatter{}, op);
      ok(spar_reduce_scatter(comm_, y.data(), n, type, c, nullptr));
      ok(spar_block(n, net_.size(), net_.rank(), &begin, &end));
    } else {
      const auto bounds = random_bounds(x.size());
      const std::vector<std::int64_t> to_c(bounds.begin(), bounds.end());
      spar::reduce_scatter(net_, x, spar::bounded_ownership(bounds), spar::ring_reduce_scatter{}, op);
      spar_request request = nullptr;
      ok(spar_start_reduce_scatter(comm_, y.data(), n, type, c, to_c.data(), &request)), finish(&request);
      begin = to_c[static_cast<std::size_t>(net_.rank())];
      end = to_c[static_cast<std::size_t>(net_.rank()) + 1];
    }
    same(std::vector<T>(x.begin() + begin, x.begin() + end), std::vector<T>(y.begin() + begin, y.begin() + end));
    same_traffic();
  }
  template <class Op>
  void scatter_streams(int c, Op op) {
    const std::uint64_t n = 1 + below(1000);
    choose_entries(n, 1 + below(n), true);
    const auto bounds = random_bounds(n);
    const std::vector<std::int64_t> to_c(bounds.begin(), bounds.end());
    const auto block =
        spar::reduce_scatter(net_, entries(), spar::bounded_ownership(bounds), spar::split_reduce_scatter{}, op);
    spar_stream result = nullptr;
    ok(spar_reduce_scatter_sparse(comm_, &given_, c, to_c.data(), &result));
    same_stream(block.view(), result, op);
    same_traffic();
  }
  void gather_values() {
    std::vector<T> x = random_values(below(300)), y = x;
    spar::allgather(net_, x);
    ok(spar_allgather(comm_, y.data(), static_cast<std::int64_t>(y.size()), type));
    same(x, y);
    same_traffic();
  }
  void gather_streams() {
    const std::uint64_t n = 1 + below(1000);
    choose_entries(n, 20, true);
    const auto all = spar::allgather(net_, entries());
    spar_gathered result = nullptr;
    ok(spar_allgather_sparse(comm_, &given_, &result));
    for (spar::rank_t r = 0; r < net_.size(); ++r) {
      spar_vector view{};
      ok(spar_gathered_view(result, r, &view));
      same(all.part(static_cast<std::size_t>(r)), view);
    }
    ok(spar_gathered_free(&result));
    same_traffic();
  }
  void send_values() {
    std::vector<T> x = random_values(below(300)), y = x;
    const auto root = static_cast<spar::rank_t>(below(static_cast<std::uint64_t>(net_.size())));
    spar::broadcast(net_, x, root);
    ok(spar_broadcast(comm_, y.data(), static_cast<std::int64_t>(y.size()), type, root));
    same(x, y);
    same_traffic();
  }
  template <class Op>
  void coalesced(int c, Op op) {
    const std::uint64_t n = 1 + below(1000);
    choose_entries(n, 200, false);
    const auto stream = spar::coalesce(*std::pmr::new_delete_resource(), n, indices_, values_, op);
    spar_stream result = nullptr;
    ok(spar_coalesce(&given_, c, &result));
    same_stream(stream.view(), result, op);
  }

  Net& net_;
  spar_comm comm_;
  std::mt19937 common_; // the same on all ranks
  std::mt19937 own_;
  std::vector<Index> indices_;
  std::vector<T> values_;
  spar_vector given_{};
};

/// Makes `calls` random calls for each of some types.
template <class Net>
void compare_with_c(Net& net, spar_comm comm, int calls) {
  conformance<Net, float, std::uint32_t> floats(net, comm, 1);
  conformance<Net, std::int64_t, std::uint64_t> integers(net, comm, 2);
  for (int call = 0; call < calls; ++call) floats.call(), integers.call();
}

} // namespace c_test
