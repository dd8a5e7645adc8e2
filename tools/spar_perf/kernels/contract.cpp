// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "contract.hpp"

#include "inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string_view>
#include <vector>

namespace spar::perf {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
/// The smallest normal number of IEEE half: a codec that rounds may flush blocks with smaller magnitudes to zero.
constexpr double smallest_scale = 0x1p-14;

struct named_vector {
  std::string name;
  std::vector<float> values;
  bool varied = false; ///< whether all magnitudes are different
};

/// The vectors of n values on which a contract is checked.
std::vector<named_vector> vectors_of(std::size_t n) {
  std::vector<named_vector> all;
  const auto add = [&](const char* name, auto value) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = value(i);
    all.push_back({fmt::format("{} of {} values", name, n), std::move(x)});
  };
  for (const input_kind kind : {input_kind::uniform, input_kind::gaussian, input_kind::heavy, input_kind::runs}) {
    const auto name = input_names[static_cast<std::size_t>(kind)];
    all.push_back({fmt::format("{} of {} values", name, n), input_vector(kind, n, 0), kind != input_kind::runs});
  }
  add("zeros", [](std::size_t) { return 0.0F; });
  add("equal values", [](std::size_t) { return -2.5F; });
  add("two magnitudes with both signs",
      [](std::size_t i) { return (i % 3 == 0 ? 1.0F : 2.0F) * (i % 2 == 0 ? 1 : -1); });
  add("one nonzero", [n](std::size_t i) { return i == n / 2 ? 1e-30F : 0.0F; });
  add("negative zeros among values", [](std::size_t i) { return i % 4 == 0 ? 3.0F + static_cast<float>(i) : -0.0F; });
  add("subnormal values", [](std::size_t i) { return 1e-42F * static_cast<float>(i % 7); });
  add("large values",
      [](std::size_t i) { return (1 + static_cast<float>(i % 100) / 128) * (i % 2 == 0 ? 0x1p124F : -0x1p124F); });
  add("an infinity", [n](std::size_t i) { return i == n / 3 ? -infinity : static_cast<float>(i % 5) - 2; });
  return all;
}

/// The vector that has a NaN among different magnitudes.
named_vector with_nan(std::size_t n) {
  named_vector x{fmt::format("a NaN among {} values", n), input_vector(input_kind::gaussian, n, 0), true};
  x.values[n / 2] = nan;
  return x;
}

/// More NaN than most selectors select, with different bits.
named_vector with_many_nan(std::size_t n) {
  named_vector x{fmt::format("many NaN among {} values", n), input_vector(input_kind::gaussian, n, 0)};
  for (std::size_t i = 0; i < n; i += 3)
    x.values[i] = std::bit_cast<float>((i % 2 == 0 ? 0x7fc00000U : 0xffc00000U) + static_cast<std::uint32_t>(i));
  return x;
}

constexpr std::size_t lengths[] = {0, 1, 2, 63, 64, 65, 1000, 4096};
/// The lengths for a selector that selects more than 4096 entries, and so refuses all of `lengths`.
constexpr std::size_t long_lengths[] = {std::size_t{1} << 16, std::size_t{1} << 20};

std::string value_text(float value) {
  return fmt::format("{} (bits {:08x})", value, std::bit_cast<std::uint32_t>(value));
}

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

/// Throws `broken_contract` with what the policy's contract says and what happened.
template <class... Args>
[[noreturn]] void fail(std::string_view slot, const std::string& name, fmt::format_string<const Args&...> what,
                       const Args&... args) {
  const std::string sentence = fmt::vformat(fmt::string_view(what), fmt::make_format_args(args...));
  throw broken_contract(fmt::format("the {} {} breaks its contract: {}", slot, name, sentence));
}

// --- selectors ---

void check_selection(const selector_policy& select, const std::string& input, const std::vector<float>& before,
                     const std::vector<float>& after, const sparse_stream<float>& selected) {
  const std::size_t n = before.size();
  if (selected.is_dense()) fail("selector", select.name, "on {} it returns a dense stream", input);
  if (selected.dimension() != n) {
    fail("selector", select.name, "on {} the stream has dimension {}, expected {}", input, selected.dimension(), n);
  }
  const auto indices = selected.view().entries().indices;
  const auto values = selected.view().entries().values;
  std::vector<float> left = before;
  for (std::size_t e = 0; e < indices.size(); ++e) {
    const std::uint32_t i = indices[e];
    if (i >= n) fail("selector", select.name, "on {} entry {} has the index {}, expected below {}", input, e, i, n);
    if (e > 0 && i <= indices[e - 1]) {
      fail("selector", select.name, "on {} entry {} has the index {} after {}; indices must ascend", input, e, i,
           indices[e - 1]);
    }
    if (values[e] == 0) fail("selector", select.name, "on {} it selects the zero at index {}", input, i);
    if (!same_bits(values[e], before[i])) {
      fail("selector", select.name, "on {} it selects {} at index {}, where the vector had {}", input,
           value_text(values[e]), i, value_text(before[i]));
    }
    left[i] = 0;
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (same_bits(after[i], left[i])) continue;
    const bool taken = std::binary_search(indices.begin(), indices.end(), static_cast<std::uint32_t>(i));
    if (taken) {
      fail("selector", select.name, "on {} it selects the value at index {}, but leaves {} in the vector; expected 0",
           input, i, value_text(after[i]));
    }
    fail("selector", select.name, "on {} it does not select the value {} at index {}, but changes it to {}", input,
         value_text(before[i]), i, value_text(after[i]));
  }
}

/// The bounds are what the selector aims at, so only fewer than half as many entries, or far more than twice as many,
/// are wrong, and only for many values of different magnitudes.
void check_bounds(const selector_policy& select, const std::string& input, std::size_t n, std::size_t count) {
  const auto bounds = select.bounds(n);
  if (!bounds) return;
  if (count > 2 * bounds->most + n / 32 + 8 || 2 * (count + 4) < bounds->least) {
    fail("selector", select.name, "on {} it selects {} entries; its bounds are {} to {}", input, count, bounds->least,
         bounds->most);
  }
}

bool same_entries(entries a, entries b) {
  return std::equal(a.indices.begin(), a.indices.end(), b.indices.begin(), b.indices.end()) &&
         std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(), same_bits);
}

/// The selection and the rest are the same if `prepare` computes the values during the call.
void check_prepare(const selector_policy& select, const named_vector& input) {
  pool memory;
  std::vector<float> x = input.values, y(x.size());
  const auto expected = select.start()(std::span(x), memory);
  const auto selected = select.prepared(input.values, std::span(y), memory);
  if (same_entries(selected.view().entries(), expected.view().entries()) && std::ranges::equal(x, y, same_bits)) return;
  fail("selector", select.name,
       "on {} it selects {} entries of values that prepare computes, and {} of the same values without prepare; a "
       "selector calls prepare once for each value, before it reads the value",
       input.name, selected.count(), expected.count());
}

/// Checks three calls, each with what the calls before have left.
void check_calls(const selector_policy& select, const named_vector& input) {
  pool memory;
  const std::size_t n = input.values.size();
  const auto first = select.start(), second = select.start();
  std::vector<float> x = input.values, y = input.values;
  for (int call = 0; call < 3; ++call) {
    const std::vector<float> before = x;
    const auto selected = first(std::span(x), memory), again = second(std::span(y), memory);
    const std::string what = call == 0 ? input.name : fmt::format("{}, call {}", input.name, call + 1);
    check_selection(select, what, before, x, selected);
    if (call == 0 && input.varied && n >= 1000) check_bounds(select, what, n, selected.count());
    if (!same_entries(selected.view().entries(), again.view().entries())) {
      fail("selector", select.name, "on {} two runs select different entries: {} and {}", what, selected.count(),
           again.count());
    }
    for (std::size_t i = 0; i < n; ++i) y[i] = x[i] = x[i] + (call == 0 ? input.values[i] / 2 : 0);
  }
  if (select.prepared) check_prepare(select, input);
}

/// NaN ranks above every number, so a selector that ranks values selects a NaN, unless it may select nothing. Any other
/// selector leaves the NaN as it is, or selects it.
void check_nan(const selector_policy& select, std::size_t n) {
  const named_vector input = with_nan(n);
  check_calls(select, input);
  if (!select.ranks_values) return;
  pool memory;
  std::vector<float> x = input.values;
  const auto selected = select.start()(std::span(x), memory);
  if (!std::isnan(x[n / 2])) return;
  const auto bounds = select.bounds(n);
  if (selected.count() == 0 && bounds && bounds->least == 0) return;
  fail("selector", select.name,
       "on {} it selects {} entries, but not the NaN at index {}, which ranks above every number (a selector "
       "that does not look at values says so by `static constexpr bool ranks_values = false;`)",
       input.name, selected.count(), n / 2);
}

// --- codecs ---

constexpr std::byte guard{0xA5};

/// A buffer between guard bytes, at an odd address. The buffer contains `content` before anything is written.
class guarded {
 public:
  explicit guarded(std::size_t bytes, std::byte content = guard) : all_(margin, guard), bytes_(bytes) {
    all_.insert(all_.end(), bytes, content);
    all_.insert(all_.end(), margin, guard);
  }
  [[nodiscard]] std::span<std::byte> room() { return std::span(all_).subspan(margin, bytes_); }
  /// The number of the first byte at or behind `used` that is not a guard any more, or of one in front; else nothing.
  [[nodiscard]] std::optional<std::ptrdiff_t> touched(std::size_t used) const {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (i >= margin && i < margin + used) continue;
      if (all_[i] != guard) return static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(margin);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t margin = 67; // odd, so that the room is not aligned
  std::vector<std::byte> all_;
  std::size_t bytes_;
};

/// The largest magnitude; infinite if a value is NaN.
double largest_of(std::span<const float> values) {
  double largest = 0;
  for (const float v : values) largest = std::isnan(v) ? infinity : std::max(largest, std::abs(static_cast<double>(v)));
  return largest;
}

/// Throws `broken_contract` unless a codec with the relative error `codec.error` may decode values[i] of `what` as
/// `decoded`. See `block_codec` for what a codec that rounds may do.
template <class Codec>
void check_decoded(std::string_view slot, const Codec& codec, const std::string& what, std::span<const float> values,
                   std::size_t i, float decoded, double largest) {
  const float value = values[i];
  if (codec.error == 0) {
    if (same_bits(decoded, value)) return;
    fail(slot, codec.name,
         "of {}, value {} comes back as {}, but was {}; a codec that rounds must state its relative error", what, i,
         value_text(decoded), value_text(value));
  }
  if (!std::isfinite(value)) {
    if (!std::isfinite(decoded)) return;
    fail(slot, codec.name, "of {}, value {} comes back as {}, but was {}; NaN and infinities must not become finite",
         what, i, value_text(decoded), value_text(value));
  }
  if (!std::isfinite(largest)) return; // the scale of the block is lost
  const double error = largest < smallest_scale ? std::max(1.0, codec.error) : codec.error;
  if (std::abs(static_cast<double>(decoded) - static_cast<double>(value)) <= error * largest) return;
  fail(slot, codec.name, "of {}, value {} comes back as {}, but was {}; the stated error is {} of the largest value {}",
       what, i, value_text(decoded), value_text(value), error, largest);
}

struct test_stream {
  index_range range;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  [[nodiscard]] entries view() const { return {indices, values}; }
};

std::vector<test_stream> streams_to_encode() {
  std::vector<test_stream> all;
  for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{12345}, (std::uint64_t{1} << 32) - 5000}) {
    for (const std::size_t count : {0U, 1U, 7U, 300U}) {
      for (const bool runs : {false, true}) {
        test_stream s{{begin, begin + 5000}, input_indices(runs, 5000, count, 3), {}};
        const std::vector<float> x = input_vector(input_kind::heavy, s.indices.size(), 0);
        for (std::uint32_t& i : s.indices) i = static_cast<std::uint32_t>(begin + i);
        for (const float scale : {1.0F, 0.0F, 1e-42F, 0x1p110F}) {
          s.values = x;
          for (float& v : s.values) v *= scale;
          all.push_back(s);
        }
        if (s.values.size() <= 5) continue;
        s.values = x;
        s.values[1] = nan, s.values[3] = -infinity, s.values[5] = 1e-42F;
        all.push_back(std::move(s));
      }
    }
    all.push_back({{begin, begin + 1}, {static_cast<std::uint32_t>(begin)}, {1.5F}});
    test_stream full{{begin, begin + 64}, {}, std::vector<float>(64, 2.0F)};
    for (std::uint64_t i = 0; i < 64; ++i) full.indices.push_back(static_cast<std::uint32_t>(begin + i));
    all.push_back(std::move(full));
  }
  return all;
}

std::vector<std::byte> encoded(const stream_policy& codec, const test_stream& s) {
  const std::size_t bound = codec.bound(s.range, s.indices.size());
  guarded buffer(bound);
  const std::size_t bytes = codec.encode(s.view(), s.range, buffer.room());
  if (bytes > bound) {
    fail("stream codec", codec.name, "encode returns {} bytes for {} entries, but bound announces at most {}", bytes,
         s.indices.size(), bound);
  }
  if (const auto at = buffer.touched(bound)) {
    fail("stream codec", codec.name, "encode of {} entries writes at byte {} of a buffer of {} bytes", s.indices.size(),
         *at, bound);
  }
  guarded other(bound, ~guard); // a byte that `encode` leaves out differs
  const std::size_t again = codec.encode(s.view(), s.range, other.room());
  const auto first = buffer.room().first(bytes), second = other.room().first(std::min(again, bound));
  if (!std::equal(first.begin(), first.end(), second.begin(), second.end()))
    fail("stream codec", codec.name, "two encodings of {} entries differ", s.indices.size());
  return {first.begin(), first.end()};
}

/// Decodes bytes, which may be hostile, to `count` entries between guards. Returns whether `decode` accepted them.
bool decodes(const stream_policy& codec, std::span<const std::byte> bytes, index_range range, std::size_t count,
             std::vector<std::uint32_t>& indices, std::vector<float>& values, const std::string& what) {
  constexpr std::size_t margin = 8;
  constexpr std::uint32_t mark = 0xA5A5A5A5;
  std::vector<std::uint32_t> index_room(count + 2 * margin, mark), value_room(count + 2 * margin, mark);
  const auto inner = std::span(index_room).subspan(margin, count);
  const std::span<float> outer(reinterpret_cast<float*>(value_room.data()) + margin, count);
  bool accepted = true;
  try {
    codec.decode(bytes, range, {inner, outer});
  } catch (const corrupt_message&) {
    accepted = false;
  } catch (const std::exception& e) {
    fail("stream codec", codec.name, "decode of {} throws '{}'; expected corrupt_message", what, e.what());
  }
  for (std::size_t i = 0; i < margin; ++i) {
    for (const auto* room : {&index_room, &value_room}) {
      if ((*room)[i] != mark || (*room)[margin + count + i] != mark)
        fail("stream codec", codec.name, "decode of {} writes outside its arrays of {} entries", what, count);
    }
  }
  if (!accepted) return false;
  for (std::size_t e = 0; e < count; ++e) {
    if (inner[e] < range.begin || inner[e] >= range.end || (e > 0 && inner[e] <= inner[e - 1])) {
      fail("stream codec", codec.name,
           "decode of {} accepts the index {} at entry {}; expected ascending indices from {} "
           "to {}, or corrupt_message",
           what, inner[e], e, range.begin, range.end - 1);
    }
  }
  indices.assign(inner.begin(), inner.end());
  values.assign(outer.begin(), outer.end());
  return true;
}

void check_hostile(const stream_policy& codec, const test_stream& s, const std::vector<std::byte>& bytes) {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  const auto attempt = [&](const std::vector<std::byte>& hostile, const std::string& what) {
    decodes(codec, hostile, s.range, s.indices.size(), indices, values, what);
  };
  for (std::size_t length = 0; length < bytes.size(); length += bytes.size() / 40 + 1) {
    attempt({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)},
            fmt::format("the first {} of {} bytes", length, bytes.size()));
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{1});
  attempt(longer, fmt::format("{} bytes and one too many", bytes.size()));
  std::mt19937 random(5);
  for (int i = 0; i < 200 && !bytes.empty(); ++i) {
    std::vector<std::byte> flipped = bytes;
    const std::size_t at = random() % bytes.size();
    flipped[at] ^= std::byte{static_cast<unsigned char>(1U << random() % 8)};
    attempt(flipped, fmt::format("{} bytes, of which byte {} was damaged", bytes.size(), at));
    for (std::byte& b : flipped) b = std::byte{static_cast<unsigned char>(random() % 256)};
    attempt(flipped, fmt::format("{} random bytes", bytes.size()));
  }
}

} // namespace

void check_contract(const selector_policy& select) {
  bool checked = false;
  const auto accepts = [&](std::size_t n) {
    try {
      select.validate(n);
      return true;
    } catch (const invalid_argument&) { // such as k above n
      if (n == *std::rbegin(long_lengths)) throw;
      return false;
    }
  };
  const auto check = [&](std::size_t n) {
    if (!accepts(n)) return;
    for (const named_vector& input : vectors_of(n)) check_calls(select, input);
    if (n > 0) check_nan(select, n);
    check_calls(select, with_many_nan(n));
    checked = n > 0;
  };
  for (const std::size_t n : lengths) check(n);
  for (const std::size_t n : long_lengths) {
    if (!checked) check(n);
  }
}

void check_contract(const stream_policy& codec) {
  for (const test_stream& s : streams_to_encode()) {
    const std::vector<std::byte> bytes = encoded(codec, s);
    std::vector<std::byte> shifted(bytes.size() + 1); // decode must accept any alignment
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
    std::vector<std::uint32_t> indices;
    std::vector<float> values;
    const std::string what = fmt::format("{} entries in [{}, {})", s.indices.size(), s.range.begin, s.range.end);
    if (!decodes(codec, std::span(shifted).subspan(1), s.range, s.indices.size(), indices, values, what))
      fail("stream codec", codec.name, "decode refuses {}, which encode has written", what);
    const double largest = largest_of(s.values);
    for (std::size_t e = 0; e < indices.size(); ++e) {
      if (indices[e] != s.indices[e]) {
        fail("stream codec", codec.name, "of {}, entry {} comes back with the index {}, expected {}", what, e,
             indices[e], s.indices[e]);
      }
      check_decoded("stream codec", codec, what, s.values, e, values[e], largest);
    }
    check_hostile(codec, s, bytes);
  }
}

void check_contract(const block_policy& codec) {
  bool carried = false;
  const auto check = [&](const named_vector& input) {
    const std::size_t n = input.values.size(), bytes = codec.bytes(n);
    if (!codec.can_encode(input.values)) return;
    carried = carried || n > 0;
    guarded first(bytes), second(bytes, ~guard); // a byte that `encode` leaves out differs
    const block_position at{3, 17};
    codec.encode(input.values, first.room(), at);
    codec.encode(input.values, second.room(), at);
    if (const auto where = first.touched(bytes)) {
      fail("block codec", codec.name, "encode of {} writes at byte {} of a buffer of {} bytes", input.name, *where,
           bytes);
    }
    if (!std::equal(first.room().begin(), first.room().end(), second.room().begin()))
      fail("block codec", codec.name, "two encodings of {} at the same position differ", input.name);
    std::vector<float> decoded(n + 2, -7.0F);
    codec.decode(first.room(), std::span(decoded).subspan(1, n));
    if (decoded.front() != -7.0F || decoded.back() != -7.0F)
      fail("block codec", codec.name, "decode of {} writes outside the values", input.name);
    const double largest = largest_of(input.values);
    for (std::size_t i = 0; i < n; ++i)
      check_decoded("block codec", codec, input.name, input.values, i, decoded[i + 1], largest);
  };
  for (const std::size_t n : {0U, 1U, 2U, 7U, 63U, 1000U, 1025U, 4096U}) {
    for (const named_vector& input : vectors_of(n)) check(input);
    if (n > 0) check(with_nan(n));
  }
  if (!carried) fail("block codec", codec.name, "can_encode refuses every vector of 1 to 4096 values");
}

void check_contract(const merge_policy& op) {
  std::vector<float> values = input_vector(input_kind::heavy, 40, 0);
  for (const float special : {0.0F, -0.0F, 1.0F, -1.0F, infinity, -infinity, 1e-42F}) values.push_back(special);
  for (const float a : values) {
    // A sum with -0.0 as the neutral element changes the sign of a zero, which is equal to the other zero.
    if (!(op.apply(op.neutral, a) == a && op.apply(a, op.neutral) == a)) {
      fail("operation", op.name, "its neutral element {} and {} give {} and {}", op.neutral, a, op.apply(op.neutral, a),
           op.apply(a, op.neutral));
    }
    for (const float b : values) {
      const float ab = op.apply(a, b), ba = op.apply(b, a);
      if (!same_bits(ab, ba) && !(std::isnan(ab) && std::isnan(ba)) && !(ab == 0 && ba == 0))
        fail("operation", op.name, "it does not commute: {} and {} give {}, exchanged {}", a, b, ab, ba);
    }
  }
  for (int a = -3; a <= 3; ++a) {
    for (int b = -3; b <= 3; ++b) {
      for (int c = -3; c <= 3; ++c) {
        const auto x = static_cast<float>(a), y = static_cast<float>(b), z = static_cast<float>(c);
        const float left = op.apply(op.apply(x, y), z), right = op.apply(x, op.apply(y, z));
        if (!(left == right)) {
          fail("operation", op.name, "it is not associative: from the left, {}, {} and {} give {}, from the right {}",
               a, b, c, left, right);
        }
      }
    }
  }
}

} // namespace spar::perf
