// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The contract checks of spar_perf accept the library's policies, and find each rule that a policy breaks.
#include "../../tools/spar_perf/kernels/contract.hpp"
#include "../../tools/spar_perf/kernels/inputs.hpp"
#include "../../tools/spar_perf/units.hpp"
#include "support/models.hpp"
#include "support/varint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::perf {
namespace {

TEST(contract, is_kept_by_the_selectors) {
  const auto keeps = [](auto select) {
    EXPECT_NO_THROW(check_contract(erased_selector(std::string(select.name), select)));
  };
  spar_test::for_each_model(spar_test::all_selectors, [&]<class Selector>(const spar_test::model<Selector>& of) {
    if constexpr (!std::is_same_v<Selector, everything>) keeps(of.part);
  });
  keeps(selector::exact_topk{.k = 700});
  keeps(selector::exact_topk{.k = 5000}); // is checked with longer vectors
  keeps(selector::threshold_reuse{.density = 0.05, .period = 2, .epsilon = 0});
  keeps(selector::gaussian{.density = 0.001}); // selects far more than it aims at
}

TEST(contract, is_kept_by_the_codecs_and_operations) {
  spar_test::for_each_model(spar_test::stream_codecs, [](const auto& of) {
    EXPECT_NO_THROW(check_contract(erased_stream_codec(std::string(of.name), of.part, 0)));
  });
  EXPECT_NO_THROW(check_contract(erased_stream_codec("varint", spar_test::varint{}, 0)));
  EXPECT_NO_THROW(check_contract(erased_stream_codec("rounded", spar_test::rounded{}, 0x1p-8)));
  spar_test::for_each_model(spar_test::block_codecs, [](const auto& of) {
    EXPECT_NO_THROW(check_contract(erased_block_codec(std::string(of.name), of.part, 0)));
  });
  EXPECT_NO_THROW(check_contract(erased_block_codec("qsgd", storage::qsgd<4>{}, 0)));
  EXPECT_NO_THROW(check_contract(erased_block_codec("qsgd", storage::qsgd<2>{.bucket = 64}, 0)));
  EXPECT_NO_THROW(check_contract(erased_block_codec("zfp", storage::zfp{.rate = 8}, 0)));
  EXPECT_NO_THROW(check_contract(
      erased_block_codec("zfp", storage::zfp{.rate = 16, .non_finite = storage::unsupported::exact}, 0)));
  EXPECT_NO_THROW(check_contract(erased_operation("sum", sum{})));
  EXPECT_NO_THROW(check_contract(erased_operation("maximum", maximum{})));
  EXPECT_NO_THROW(check_contract(erased_operation("product", product{})));
}

/// Expects one sentence that contains `says`.
template <class Policy>
void breaks(const Policy& policy, const std::string& says) {
  try {
    check_contract(policy);
    ADD_FAILURE() << "no rule is broken; expected: " << says;
  } catch (const broken_contract& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find(says), std::string::npos) << text;
    EXPECT_NE(text.find(" own breaks its contract: "), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

/// exact_topk of 5 % with a defect: `defect(x, selected, memory)` runs behind the selection.
using defect_of_selection = std::function<void(std::span<float>, sparse_stream<float>&, pool&)>;
selector_policy defective(const defect_of_selection& defect) {
  selector_policy policy = erased_selector("own", selector::exact_topk{.density = 0.05});
  policy.prepared = nullptr; // it has no defect
  policy.start = [right = policy.start, defect]() -> selector_policy::calls {
    return [select = right(), defect](std::span<float> x, pool& memory) {
      auto selected = select(x, memory);
      defect(x, selected, memory);
      return selected;
    };
  };
  return policy;
}

TEST(contract, finds_what_a_selector_does_wrong) {
  using stream = sparse_stream<float>;
  breaks(defective([](std::span<float> x, stream& s, pool&) {
           if (s.count() > 3) x[s.indices()[3]] = 0.5F;
         }),
         "but leaves 0.5");
  breaks(defective([](std::span<float> x, stream& s, pool&) {
           if (s.count() > 3) x[s.indices()[3] == 0 ? 1 : s.indices()[3] - 1] += 1;
         }),
         "does not select the value");
  breaks(defective([](std::span<float>, stream& s, pool&) {
           if (s.count() > 3) s.values()[3] *= 2;
         }),
         "it selects");
  breaks(defective([](std::span<float>, stream& s, pool&) {
           if (s.count() > 3) s.shrink(s.count() - 1); // loses an entry
         }),
         "does not select the value");
  breaks(defective([](std::span<float>, stream& s, pool&) {
           if (s.count() > 3) {
             std::swap(s.indices()[1], s.indices()[2]);
             std::swap(s.values()[1], s.values()[2]);
           }
         }),
         "indices must ascend");
  breaks(defective([](std::span<float> x, stream& s, pool&) {
           if (s.count() > 0) s.indices()[s.count() - 1] = static_cast<std::uint32_t>(x.size());
         }),
         "expected below");
  breaks(defective([](std::span<float> x, stream& s, pool& memory) { s = stream::sparse(memory, x.size() + 1, 0); }),
         "the stream has dimension");
  breaks(defective([](std::span<float> x, stream& s, pool& memory) { // selects zeros, if there are any
           for (std::size_t i = 0; i < x.size() && s.count() == 0; ++i) {
             s = stream::sparse(memory, x.size(), 1);
             s.indices()[0] = 0;
             s.values()[0] = 0;
           }
         }),
         "it selects the zero at index 0");
  const auto give_back = [](std::span<float> x, stream& s, std::size_t kept) {
    for (std::size_t e = kept; e < s.count(); ++e) x[s.indices()[e]] = s.values()[e];
    s.shrink(kept);
  };
  breaks(defective([=](std::span<float> x, stream& s, pool&) { give_back(x, s, 0); }),
         "selects 0 entries, but not the NaN");
  breaks(defective([=](std::span<float> x, stream& s, pool&) {
           if (s.count() > 3) give_back(x, s, 1);
         }),
         "on uniform of 1000 values it selects 1 entries; its bounds are 50 to 50");
  breaks(defective([](std::span<float> x, stream&, pool&) { // changes the bits of NaN
           for (float& v : x) v = std::isnan(v) ? std::numeric_limits<float>::quiet_NaN() : v;
         }),
         "many NaN among");
  breaks(defective([](std::span<float> x, stream& s, pool& memory) { // selects everything if there is a NaN
           bool any = false;
           for (const float v : s.values()) any = any || std::isnan(v);
           if (!any) return;
           for (std::size_t e = 0; e < s.count(); ++e) x[s.indices()[e]] = s.values()[e];
           s = spar::select(selector::nonzeros{}, x, memory);
         }),
         "on a NaN among 1000 values it selects 1000 entries; its bounds are 50 to 50");
}

/// Selects k of n positions at random, the same on all ranks, whatever the values are. `Lossy` drops a NaN.
template <bool Lossy = false>
struct random_k {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "random_k";
  static constexpr bool ranks_values = false;

  struct state {
    std::uint64_t calls = 0;

    void shared_state(auto&& f) { f(calls); }
    void own_state(auto&&) {}
  };
  std::uint64_t k = 0;
  std::uint64_t seed = 1;

  void validate(std::uint64_t n) const {
    if (k > n) raise<invalid_argument>({"random_k selects ", k, " entries of ", n});
  }
  void options(auto&& f) const { f("k", k), f("seed", seed); }
  [[nodiscard]] selector::topk_bounds bounds(std::uint64_t) const { return {.least = k, .k = k, .most = k}; }
  template <class Index, class T, class Prepare>
  ready<sparse_stream<T, Index>> operator()(const host_work& work, std::span<T> x, state& now,
                                            const Prepare& prepare) const {
    prepare(0, x.size());
    std::vector<Index> positions(x.size());
    std::iota(positions.begin(), positions.end(), Index{0});
    std::shuffle(positions.begin(), positions.end(), std::mt19937_64(seed + now.calls++));
    positions.resize(k);
    std::sort(positions.begin(), positions.end());
    auto selected = sparse_stream<T, Index>::sparse(work.memory(), x.size(), k);
    std::size_t count = 0;
    for (const Index i : positions) {
      if (x[i] == T{}) continue; // zeros are not sent
      selected.indices()[count] = i;
      selected.values()[count++] = std::exchange(x[i], T{});
    }
    selected.shrink(count);
    for (T& v : x) v = Lossy && std::isnan(v) ? T{} : v;
    return ready(std::move(selected));
  }
};

TEST(contract, is_kept_by_a_selector_that_does_not_look_at_values) {
  for (const std::uint64_t k : {0U, 50U, 700U}) {
    const selector_policy policy = erased_selector("own", random_k<>{.k = k});
    EXPECT_NO_THROW(check_contract(policy));
    if (k != 50) continue;
    selector_policy silent = policy; // it does not say that it does not rank values
    silent.ranks_values = true;
    breaks(silent, "but not the NaN");
    breaks(silent, "static constexpr bool ranks_values = false");
  }
  breaks(erased_selector("own", random_k<true>{.k = 50}), "does not select the value"); // a NaN must not get lost
  static_assert(!ranks_values<random_k<>> && ranks_values<selector::exact_topk>);
}

/// A selector that calls `prepare` after it has read the values.
struct reads_too_early : selector::exact_topk {
  template <class Index, class Work, class T, class Prepare>
  auto operator()(Work& work, std::span<T> x, no_state& now, const Prepare& prepare) const {
    auto selected = selector::exact_topk::operator()<Index>(work, x, now, selector::nothing_to_prepare{});
    prepare(0, x.size());
    return selected;
  }
};

TEST(contract, finds_a_selector_that_reads_values_before_they_are_computed) {
  breaks(erased_selector("own", reads_too_early{{.density = 0.05}}),
         "it selects 0 entries of values that prepare computes, and 1 of the same values without prepare");
}

TEST(contract, says_why_a_selector_cannot_be_checked) {
  try {
    check_contract(erased_selector("own", selector::exact_topk{.k = std::size_t{1} << 21}));
    ADD_FAILURE() << "accepted";
  } catch (const invalid_argument& e) {
    EXPECT_STREQ(e.what(), "the selector's k is 2097152; expected at most n = 1048576");
  }
}

TEST(contract, finds_a_selector_without_bounds_that_is_not_deterministic_or_ignores_nan) {
  const auto at_least = [](float (*threshold)(int call)) {
    selector_policy policy;
    policy.name = "own";
    policy.validate = [](std::uint64_t) {};
    policy.bounds = [](std::uint64_t) { return std::nullopt; };
    const auto call = std::make_shared<int>(0);
    policy.start = [=]() -> selector_policy::calls {
      return [=](std::span<float> x, pool& memory) {
        const float least = threshold((*call)++);
        auto s = sparse_stream<float>::sparse(memory, x.size(), x.size());
        std::size_t kept = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (!(std::abs(x[i]) >= least)) continue; // false for NaN
          s.indices()[kept] = static_cast<std::uint32_t>(i);
          s.values()[kept++] = std::exchange(x[i], 0.0F);
        }
        s.shrink(kept);
        return s;
      };
    };
    return policy;
  };
  breaks(at_least([](int) { return 0.5F; }), "but not the NaN");
  breaks(at_least([](int call) { return call % 2 == 0 ? 0.5F : 0.6F; }), "two runs select different entries");
}

stream_policy coo() { return erased_stream_codec("own", storage::coo{}, 0); }

TEST(contract, finds_what_a_stream_codec_does_wrong) {
  stream_policy codec = coo();
  codec.bound = [](index_range, std::size_t count) { return 8 * count + 3; };
  codec.encode = [right = coo().encode](entries from, index_range range, std::span<std::byte> to) {
    to.data()[to.size()] = std::byte{1};
    return right(from, range, to);
  };
  breaks(codec, "writes at byte 3 of a buffer of 3 bytes");
  codec = coo();
  codec.bound = [](index_range, std::size_t count) { return 8 * count / 2; };
  codec.encode = [](entries from, index_range, std::span<std::byte>) { return 8 * from.size(); };
  breaks(codec, "but bound announces at most");
  codec = coo();
  codec.decode = [right = codec.decode](std::span<const std::byte> from, index_range range,
                                        entry_room<float, std::uint32_t> to) {
    right(from, range, to);
    if (to.values.size() > 3) to.values[3] += 1;
  };
  breaks(codec, "a codec that rounds must state its relative error");
  codec = coo();
  codec.error = 1; // divides by the largest value, and 1 / largest may be infinite
  codec.decode = [right = codec.decode](std::span<const std::byte> from, index_range range,
                                        entry_room<float, std::uint32_t> to) {
    right(from, range, to);
    float largest = 0;
    for (const float v : to.values) largest = std::max(largest, std::abs(v));
    if (largest > 0) {
      for (float& v : to.values) v = v * (1 / largest) * largest;
    }
  };
  breaks(codec, "the stated error is 1 of the largest value");
  codec = coo();
  codec.error = 1; // loses special values
  codec.decode = [right = codec.decode](std::span<const std::byte> from, index_range range,
                                        entry_room<float, std::uint32_t> to) {
    right(from, range, to);
    for (float& v : to.values) v = std::isnan(v) ? 0 : v;
  };
  breaks(codec, "NaN and infinities must not become finite");
  codec = coo();
  codec.decode = [right = codec.decode](std::span<const std::byte> from, index_range range,
                                        entry_room<float, std::uint32_t> to) {
    right(from, range, to);
    if (to.indices.size() > 3) ++to.indices[to.indices.size() - 1];
  };
  breaks(codec, "index");
  codec = coo();
  codec.decode = [](std::span<const std::byte> from, index_range, entry_room<float, std::uint32_t> to) {
    if (from.size() != 8 * to.indices.size()) throw corrupt_message("length");
    if (from.empty()) return;
    std::memcpy(to.indices.data(), from.data(), 4 * to.indices.size()); // unchecked
    std::memcpy(to.values.data(), from.data() + 4 * to.indices.size(), 4 * to.values.size());
  };
  breaks(codec, "expected ascending indices from");
  codec = coo();
  codec.decode = [right = codec.decode](std::span<const std::byte> from, index_range range,
                                        entry_room<float, std::uint32_t> to) {
    if (from.size() % 8 != 0) throw std::runtime_error("odd");
    right(from, range, to);
  };
  breaks(codec, "throws 'odd'; expected corrupt_message");
  codec = coo();
  codec.decode = [right = codec.decode](std::span<const std::byte> from, index_range range,
                                        entry_room<float, std::uint32_t> to) {
    to.indices.data()[to.indices.size()] = 1;
    right(from, range, to);
  };
  breaks(codec, "writes outside its arrays");
  codec = coo();
  codec.decode = [](std::span<const std::byte>, index_range, entry_room<float, std::uint32_t>) {
    throw corrupt_message("never");
  };
  breaks(codec, "decode refuses 0 entries");
  codec = coo();
  codec.encode = [right = codec.encode](entries from, index_range range, std::span<std::byte> to) {
    std::vector<std::byte> all(to.size());
    const std::size_t bytes = right(from, range, all);
    if (bytes > 0) std::copy_n(all.begin(), bytes - 1, to.begin()); // leaves the last byte out
    return bytes;
  };
  breaks(codec, "two encodings of 1 entries differ");
}

TEST(contract, finds_what_a_block_codec_does_wrong) {
  const block_policy right = erased_block_codec("own", storage::as_bfloat16{}, 0);
  block_policy codec = right;
  codec.error = 0;
  breaks(codec, "a codec that rounds must state its relative error");
  codec = right;
  codec.error = 0x1p-12;
  breaks(codec, "the stated error is");
  codec = right;
  codec.encode = [right](std::span<const float> from, std::span<std::byte> to, block_position at) {
    right.encode(from, to, at);
    to.data()[to.size()] = std::byte{1};
  };
  breaks(codec, "writes at byte 0 of a buffer of 0 bytes");
  codec = right;
  codec.encode = [right, calls = 0](std::span<const float> from, std::span<std::byte> to, block_position at) mutable {
    right.encode(from, to, at);
    if (!to.empty()) to[0] ^= std::byte{static_cast<unsigned char>(++calls % 2)};
  };
  breaks(codec, "two encodings of");
  codec = right;
  codec.encode = [right](std::span<const float> from, std::span<std::byte> to, block_position at) {
    std::vector<std::byte> all(to.size());
    right.encode(from, all, at);
    if (!all.empty()) std::copy(all.begin(), all.end() - 1, to.begin()); // leaves the last byte out
  };
  breaks(codec, "two encodings of");
  codec = right;
  codec.decode = [right](std::span<const std::byte> from, std::span<float> to) {
    right.decode(from, to);
    to.data()[to.size()] = 1;
  };
  breaks(codec, "decode of uniform of 0 values writes outside");
}

/// A codec that rounds to 8 bits, relative to the largest magnitude of the block.
block_policy eight_bits() {
  block_policy codec;
  codec.name = "own";
  codec.error = 0.004;
  codec.bytes = [](std::size_t count) { return count + 4; };
  codec.can_encode = [](std::span<const float>) { return true; };
  codec.encode = [](std::span<const float> from, std::span<std::byte> to, block_position) {
    float largest = 0;
    for (const float v : from) largest = std::max(largest, std::abs(v)); // ignores NaN
    const float scale = largest / 127;
    std::memcpy(to.data(), &scale, 4);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const float level = scale > 0 && std::isfinite(scale) && std::isfinite(from[i]) ? from[i] / scale : 0;
      to[i + 4] = static_cast<std::byte>(static_cast<std::int8_t>(std::lround(std::clamp(level, -127.0F, 127.0F))));
    }
  };
  codec.decode = [](std::span<const std::byte> from, std::span<float> to) {
    float scale = 0;
    std::memcpy(&scale, from.data(), 4);
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = scale * static_cast<float>(static_cast<std::int8_t>(from[i + 4]));
  };
  return codec;
}

TEST(contract, finds_a_block_codec_that_hides_nan_or_enlarges_small_values) {
  block_policy codec = eight_bits();
  breaks(codec, "comes back as 0 (bits 00000000), but was nan (bits 7fc00000); NaN and infinities must not");
  codec.can_encode = [](std::span<const float> values) { // now NaN is refused
    return std::none_of(values.begin(), values.end(), [](float v) { return std::isnan(v); });
  };
  EXPECT_NO_THROW(check_contract(codec)); // an infinity makes the block NaN, and a subnormal scale loses precision
  block_policy lost = codec;
  lost.decode = [right = codec.decode](std::span<const std::byte> from, std::span<float> to) {
    right(from, to);
    for (float& v : to) v = std::isfinite(v) ? v : 0;
  };
  breaks(lost, "but was -inf (bits ff800000); NaN and infinities must not become finite");
  block_policy larger = codec;
  larger.decode = [right = codec.decode](std::span<const std::byte> from, std::span<float> to) {
    right(from, to);
    for (float& v : to) v = std::abs(v) > 0 ? v + 1e-20F : v;
  };
  breaks(larger, "the stated error is 1 of the largest value 1.00");
  codec.can_encode = [](std::span<const float>) { return false; };
  breaks(codec, "can_encode refuses every vector of 1 to 4096 values");
}

TEST(contract, finds_what_an_operation_does_wrong) {
  merge_policy op = erased_operation("own", sum{});
  op.apply = [](float a, float b) { return a - b; };
  breaks(op, "its neutral element");
  op.apply = [](float a, float b) { return a == 0 ? b : a; };
  breaks(op, "it does not commute");
  op.apply = [](float a, float b) { return a == 0 || b == 0 ? a + b : a * b / 2; };
  EXPECT_NO_THROW(check_contract(op)); // associative but for the neutral element
  op.apply = [](float a, float b) { return a == 0 || b == 0 ? a + b : (a + b) / 2; };
  breaks(op, "it is not associative");
}

TEST(kernel_inputs, gradients_are_read_from_a_file) {
  const std::string path = testing::TempDir() + "gradients.f32";
  const std::vector<float> values{1, -2, 3.5F};
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(values.data()), 12);
  EXPECT_EQ(read_gradients(path), values);
  EXPECT_EQ(input_vector(input_kind::gradients, 2, 0, values), (std::vector<float>{1, -2}));
  std::ofstream(path, std::ios::binary).write("12345", 5);
  EXPECT_THROW(read_gradients(path), usage_error);
  EXPECT_THROW(read_gradients(testing::TempDir()), usage_error); // a folder
  std::remove(path.c_str());
  EXPECT_THROW(read_gradients(path), usage_error);
}

TEST(kernel_inputs, drift_changes_a_little_from_step_to_step) {
  const auto first = input_vector(input_kind::drift, 1000, 0), second = input_vector(input_kind::drift, 1000, 1);
  double change = 0, size = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    change += std::abs(static_cast<double>(first[i]) - static_cast<double>(second[i]));
    size += std::abs(static_cast<double>(first[i]));
  }
  EXPECT_GT(change, 0.05 * size);
  EXPECT_LT(change, 0.3 * size);
}

} // namespace
} // namespace spar::perf
