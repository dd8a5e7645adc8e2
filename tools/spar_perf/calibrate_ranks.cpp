// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures the parameters of the network model on ranks that run in parallel.
#include "calibrate.hpp"
#include "patterns.hpp"
#include "units.hpp"

#include <spar/core/util/splitmix.hpp>
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace spar::perf {

namespace {

/// Each rank sends `at_once` messages to every other rank in turn, and receives as much at the same time, as in a round
/// of a schedule.
struct exchange : spar::algorithm_defaults {
  static constexpr std::string_view name = "exchange";

  template <spar::transport Net>
  spar::task<void> operator()(spar::channel<Net> net, std::span<const float> out, std::span<float> in, int turns,
                              std::size_t at_once) const& {
    const spar::rank_t p = net.size();
    for (int turn = 0; turn < turns; ++turn) {
      for (spar::rank_t distance = 1; distance < p; ++distance) {
        spar::fixed_vector<decltype(net.send(0, spar::view_message(out)))> sending(net.memory(), at_once);
        spar::fixed_vector<spar::message_buffer> buffers(net.memory(), at_once);
        for (std::size_t i = 0; i < at_once; ++i) {
          sending.push_back(net.send((net.rank() + distance) % p, spar::view_message(out)));
          buffers.emplace_back(net.memory()).place(0, in.subspan(i * out.size(), out.size()));
        }
        for (std::size_t i = 0; i < at_once; ++i) {
          co_await net.receive((net.rank() + p - distance) % p, buffers[i]);
          co_await sending[i];
        }
      }
    }
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace

spar::network_model calibrate(spar::any_transport& net, const options& o) {
  if (net.size() < 2) throw usage_error("--calibrate needs at least two ranks");
  constexpr std::size_t n = std::size_t{1} << 20; // values of a dense vector, larger than the caches close to the core
  constexpr std::size_t k = n / 32;               // entries of a sparse stream
  constexpr std::size_t largest = n / 2;          // values of the largest message
  std::vector<float> out(n, 1.0F), in(n, 1.0F);

  const auto contribution = [&](std::uint64_t seed) {
    const workload w{n, k, 1, pattern_kind::uniform, seed};
    std::vector<std::uint32_t> indices;
    for (const std::uint64_t i : positions(w, 0)) indices.push_back(static_cast<std::uint32_t>(i));
    return indices;
  };
  const std::vector<std::uint32_t> left = contribution(o.seed), right = contribution(o.seed + 1);
  const std::vector<float> ones(k, 1.0F);
  // Values behind a threshold, of which most are close to the smallest.
  std::vector<float> heavy(k);
  for (std::size_t e = 0; e < k; ++e) {
    const double uniform = static_cast<double>(spar::detail::splitmix(e) >> 11) * 0x1p-53; // in [0, 1)
    heavy[e] = static_cast<float>((e % 2 == 0 ? 0.01 : -0.01) / std::sqrt(1 - uniform));
  }
  const spar::coo_span<float, std::uint32_t> entries{left, heavy};
  const spar::storage::coded<> code;
  std::vector<std::byte> bytes(code.bound<float, std::uint32_t>({0, n}, k));
  std::vector<std::uint32_t> decoded_indices(k);
  std::vector<float> decoded_values(k);
  const auto code_entries = [&] {
    const std::size_t encoded = code.encode(entries, {0, n}, std::span(bytes));
    code.decode<float, std::uint32_t>(std::span(bytes).first(encoded), {0, n}, {decoded_indices, decoded_values});
  };
  const auto stream_of = [&](const auto& indices) { return spar::sparse_view(n, indices, ones); };

  struct quantity {
    std::size_t values; // of a message
    int turns;
    std::size_t at_once = 1;
    std::vector<double> seconds{}; // of a message, or of all that are in flight at once
  };
  std::vector<quantity> messages;
  for (std::size_t values = 2; values <= largest; values *= 4) {
    messages.push_back({values, static_cast<int>(std::clamp<std::size_t>((largest / 8) / values, 1, 32))});
  }
  constexpr std::size_t several = 8;
  messages.push_back({messages[0].values, messages[0].turns, several});
  std::vector<double> merging, adding, coding;
  const auto timed = [&](auto work, double amount, std::vector<double>& seconds, bool keep) {
    double nothing = 0;
    spar::allreduce(net, std::span(&nothing, 1), spar::recursive_doubling{}); // a barrier
    const double begin = net.now();
    work();
    double one = (net.now() - begin) / amount;
    spar::allreduce(net, std::span(&one, 1), spar::recursive_doubling{}, spar::maximum{});
    if (keep) seconds.push_back(one);
  };
  for (int i = -o.warmup; i < o.iterations; ++i) {
    for (quantity& q : messages) {
      const auto send = [&] {
        const std::span<const float> sent(out.data(), q.values);
        const std::span<float> received(in.data(), q.at_once * q.values);
        const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(q.values, exchange{});
        spar::start_collective(net, agreed, exchange{}, sent, received, q.turns, q.at_once).wait();
      };
      timed(send, static_cast<double>(q.turns) * static_cast<double>(net.size() - 1), q.seconds, i >= 0);
    }
    timed([&] { (void)spar::merge(stream_of(left), stream_of(right), {0, n}, n, spar::sum{}, net.memory()); },
          static_cast<double>(2 * k), merging, i >= 0);
    timed([&] { spar::kernel::reduce(in.data(), out.data(), n, spar::sum{}); }, static_cast<double>(n), adding, i >= 0);
    timed(code_entries, static_cast<double>(k), coding, i >= 0);
  }

  spar::network_model network;
  std::vector<exchange_time> times;
  for (const quantity& q : messages) {
    if (q.at_once == 1) times.push_back({static_cast<double>(4 * q.values), median(q.seconds)});
  }
  fit_line(times, network);
  network.alpha_shared = shared_alpha(network, times[0].seconds, median(messages.back().seconds), several);
  network.gamma_sparse = median(merging);
  network.gamma_dense = median(adding);
  network.gamma_coded = median(coding);
  return network;
}

} // namespace spar::perf
