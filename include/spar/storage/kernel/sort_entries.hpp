// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sorts entries by their indices: a radix sort from the lowest digit to the highest (Knuth, The Art of Computer
// Programming, volume 3, section 5.2.5, algorithm R), which keeps the order of entries with equal indices.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/util/algobase.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>

namespace spar::inline v0_1::kernel {

/// An index and what is sorted with it.
template <class Index, class Payload>
struct keyed {
  Index index;     ///< the index, by which entries are sorted
  Payload payload; ///< a value, or the position of a value
};

/// Returns the entries `(index_of(e), payload_of(e))` for e < count, sorted by index; entries with equal indices stay
/// in the order of e. All indices are below 2^bits, for `bits` > 0. The scratch memory comes from `memory`.
template <class Index, class Payload, class IndexOf, class PayloadOf>
buffer<keyed<Index, Payload>> sort_entries(std::size_t count, unsigned bits, IndexOf index_of, PayloadOf payload_of,
                                           std::pmr::memory_resource& memory) {
  using entry = keyed<Index, Payload>;
  // A digit has at most 10 bits, because the places at which a pass writes must stay in the cache, and so few that the
  // table of a digit is hardly longer than the list.
  const unsigned most = std::min(std::max(static_cast<unsigned>(std::bit_width(count)), 6U), 10U);
  const unsigned passes = (bits + most - 1) / most;
  const unsigned digit_bits = (bits + passes - 1) / passes;
  const std::size_t digits = std::size_t{1} << digit_bits;
  const auto digit = [=](Index index, unsigned pass) {
    return static_cast<std::size_t>(index >> pass * digit_bits) & (digits - 1);
  };
  buffer<entry> from(memory, count), to(memory, count);
  buffer<std::size_t> tables(memory, 2 * digits);
  std::size_t* at = tables.data();              // for each digit, the place of the next entry that has it
  std::size_t* counts = tables.data() + digits; // for each digit of the next pass, the number of entries that have it
  std::fill_n(counts, digits, std::size_t{0});
  for (std::size_t e = 0; e < count; ++e) ++counts[digit(index_of(e), 0)];

  const auto scatter = [&](auto read, unsigned pass) {
    std::swap(at, counts);
    std::size_t sum = 0;
    for (std::size_t d = 0; d < digits; ++d) sum += std::exchange(at[d], sum);
    entry* const out = to.data();
    if (pass + 1 == passes) {
      for (std::size_t e = 0; e < count; ++e) {
        const entry each = read(e);
        out[at[digit(each.index, pass)]++] = each;
      }
    } else {
      std::fill_n(counts, digits, std::size_t{0});
      for (std::size_t e = 0; e < count; ++e) {
        const entry each = read(e);
        ++counts[digit(each.index, pass + 1)];
        out[at[digit(each.index, pass)]++] = each;
      }
    }
    std::swap(from, to);
  };
  scatter([&](std::size_t e) { return entry{index_of(e), payload_of(e)}; }, 0);
  for (unsigned pass = 1; pass < passes; ++pass) scatter([in = from.data()](std::size_t e) { return in[e]; }, pass);
  return from;
}

} // namespace spar::inline v0_1::kernel
