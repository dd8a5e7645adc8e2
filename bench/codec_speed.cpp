// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures block codecs of floats against a copy of the same floats, in the cache and from memory, on one core:
// codec_speed [ROUNDS]. Each round measures the copy and all codecs one after the other, so that other work on the
// machine disturbs all of them alike.
#include <spar/storage/codec.hpp>
#include <spar/storage/mx.hpp>

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
  std::vector<std::byte> bytes(3 * n + 4096);
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(random);
  const std::span<const float> from(x);
  const std::span<float> to = std::span(y).subspan(apart);
  std::uint64_t call = 0;
  std::vector<measured> all{{"copy", "", [&] { std::memcpy(to.data(), from.data(), from.size_bytes()); }}};
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
  const int calls = n < (std::size_t{1} << 18) ? static_cast<int>((std::size_t{1} << 18) / n) : 1;
  for (int r = 0; r < rounds; ++r)
    for (measured& m : all) m.times.push_back(seconds(m.call, calls));
  const auto& copy = all[0].times;
  const double best_copy = *std::min_element(copy.begin(), copy.end());
  for (const measured& m : all) {
    std::vector<double> ratios;
    for (std::size_t r = 0; r < copy.size(); ++r) ratios.push_back(copy[r] / m.times[r]);
    std::sort(ratios.begin(), ratios.end());
    const double best = *std::min_element(m.times.begin(), m.times.end());
    std::printf("| %zu | %s | %s | %.3f | %.2f | %.2f to %.2f |\n", n, m.codec, m.what,
                1e9 * best / static_cast<double>(n), best_copy / best, ratios[ratios.size() / 10],
                ratios[ratios.size() - 1 - ratios.size() / 10]);
  }
}

} // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  std::printf("ns: of a value, the best round. of a copy: the best copy's time divided by it; range: the middle 80 %% "
              "of the rounds' ratios. One core, %d rounds.\n\n",
              rounds);
  std::printf("| n | codec | | ns | of a copy | range |\n|---|---|---|---|---|---|\n");
  compare(std::size_t{1} << 14, rounds);
  compare(std::size_t{1} << 24, std::max(rounds / 4, 3));
}
