// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures block codecs of floats against a copy and against an addition of the same floats, in the cache and from
// memory, on one core: codec_speed [ROUNDS]. Each round measures the copy, the addition and all codecs one after the
// other, so that other work on the machine disturbs all of them alike. The addition of 2^20 floats is the pass of the
// network model (`gamma_dense`), in which codecs state their cost.
#include <spar/core/op.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/mx.hpp>
#include <spar/storage/packed.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>
#include <spar/storage/zfp.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace {

struct measured {
  const char* codec;
  const char* what;
  std::function<void()> call;
  std::vector<double> times{};
};

double seconds(const std::function<void()>& call, int calls) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    call();
    __asm__ volatile("" ::: "memory");
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
}

void compare(std::size_t n, int rounds) {
  constexpr std::size_t apart = 2112; // a copy is slow between places that differ by whole pages
  std::vector<float> x(n), y(n + apart);
  std::vector<std::int32_t> codes(n), decoded(n + apart);
  std::vector<std::byte> bytes(3 * n + 4096);
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(random);
  for (std::size_t i = 0; i < n; ++i) codes[i] = static_cast<std::int32_t>(50 * x[i]);
  const std::span<const float> from(x);
  const std::span<float> to = std::span(y).subspan(apart);
  std::uint64_t call = 0;
  std::vector<measured> all{{"copy", "", [&] { std::memcpy(to.data(), from.data(), from.size_bytes()); }},
                            {"add", "", [&] { spar::kernel::reduce(to.data(), from.data(), n, spar::sum{}); }}};
  const auto add = [&](const char* name, auto codec) {
    const auto encoded = std::span(bytes).first(codec.template encoded_bytes<float>(n));
    all.push_back({name, "encode", [=, &call] { codec.encode(from, encoded, {.call = ++call}); }});
    all.push_back({name, "decode", [=] { codec.decode(std::span<const std::byte>(encoded), to); }});
    if constexpr (requires { codec.decode_and_add(std::span<const std::byte>(encoded), to); }) {
      all.push_back({name, "sum", [=] { codec.decode_and_add(std::span<const std::byte>(encoded), to); }});
    }
  };
  add("bf16", spar::storage::as_bfloat16{});
  add("half", spar::storage::as_half{});
  add("qsgd:8", spar::storage::qsgd<8>{});
  add("qsgd:4", spar::storage::qsgd<4>{});
  add("qsgd:2", spar::storage::qsgd<2>{});
  add("mx:e4m3", spar::storage::mx<spar::storage::e4m3>{});
  add("mx:e5m2", spar::storage::mx<spar::storage::e5m2>{});
  add("mx:e2m1", spar::storage::mx<spar::storage::e2m1>{});
  for (const auto& [name, rate] : {std::pair{"zfp:4", 4}, {"zfp:8", 8}, {"zfp:16", 16}, {"zfp:24", 24}})
    add(name, spar::storage::zfp{.rate = static_cast<double>(rate)});
  const spar::storage::packed pack;
  std::vector<std::byte> packed(pack.encoded_bytes<std::int32_t>(n));
  const std::span<std::int32_t> unpacked = std::span(decoded).subspan(apart);
  std::span<const std::byte> message;
  const auto encode = [&] { return pack.encode(std::span<const std::int32_t>(codes), std::span(packed), {}); };
  all.push_back({"packed", "encode", [&] { message = std::span<const std::byte>(packed).first(encode()); }});
  all.push_back({"packed", "decode", [&] { pack.decode(message, unpacked); }});
  all.push_back({"packed", "sum", [&] { pack.decode_and_add(message, unpacked); }});
  const int calls = n < (std::size_t{1} << 18) ? static_cast<int>((std::size_t{1} << 18) / n) : 1;
  for (int r = 0; r < rounds; ++r)
    for (measured& m : all) m.times.push_back(seconds(m.call, calls));
  const auto &copy = all[0].times, &addition = all[1].times;
  const double best_copy = *std::min_element(copy.begin(), copy.end());
  for (const measured& m : all) {
    std::vector<double> ratios, passes;
    for (std::size_t r = 0; r < copy.size(); ++r) ratios.push_back(copy[r] / m.times[r]);
    for (std::size_t r = 0; r < copy.size(); ++r) passes.push_back(m.times[r] / addition[r]);
    std::sort(ratios.begin(), ratios.end());
    std::sort(passes.begin(), passes.end());
    const double best = *std::min_element(m.times.begin(), m.times.end());
    std::printf("| %zu | %s | %s | %.3f | %.2f | %.2f to %.2f | %.2f |\n", n, m.codec, m.what,
                1e9 * best / static_cast<double>(n), best_copy / best, ratios[ratios.size() / 10],
                ratios[ratios.size() - 1 - ratios.size() / 10], passes[passes.size() / 2]);
  }
}

} // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  std::printf("ns: of a value, the best round. of a copy: the best copy's time divided by it; range: the middle 80 %% "
              "of the rounds' ratios. One core, %d rounds.\n\n",
              rounds);
  std::printf("| n | codec | | ns | of a copy | range | passes |\n|---|---|---|---|---|---|---|\n");
  compare(std::size_t{1} << 14, rounds);
  compare(std::size_t{1} << 20, rounds);
  compare(std::size_t{1} << 24, std::max(rounds / 4, 3));
}
