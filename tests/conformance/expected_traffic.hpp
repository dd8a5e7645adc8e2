// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a rank sends in each algorithm, by the formulas of docs/reference/costs.md, computed from the index sets of all
// ranks alone, without the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace spar_test {

struct traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const traffic&, const traffic&) = default;
  traffic& operator+=(traffic other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
};

/// The ranks' index sets and the sizes of values and indices. As in docs/reference/costs.md: P ranks, m = floor(log2
/// P), A = 2^m, e bytes per entry, s bytes per value.
struct costs {
  std::uint64_t n;
  std::vector<std::set<std::uint64_t>> indices; // by rank
  std::uint64_t value_bytes = 4;
  std::uint64_t index_bytes = 4;

  [[nodiscard]] std::uint64_t ranks() const { return indices.size(); }
  [[nodiscard]] std::uint64_t entry() const { return value_bytes + index_bytes; }

  // --- sizes ---

  [[nodiscard]] std::uint64_t begin_of(std::uint64_t block, std::uint64_t blocks) const {
    const std::uint64_t larger = block < n % blocks ? block : n % blocks;
    return block * (n / blocks) + larger;
  }
  [[nodiscard]] std::uint64_t block_size(std::uint64_t block, std::uint64_t blocks) const {
    return begin_of(block + 1, blocks) - begin_of(block, blocks);
  }
  /// |union of the index sets of `group`, restricted to [begin, end)|
  [[nodiscard]] std::uint64_t together(const std::vector<std::uint64_t>& group, std::uint64_t begin,
                                       std::uint64_t end) const {
    std::set<std::uint64_t> all;
    for (const std::uint64_t r : group) {
      for (const std::uint64_t i : indices[r])
        if (i >= begin && i < end) all.insert(i);
    }
    return all.size();
  }
  [[nodiscard]] std::uint64_t together(const std::vector<std::uint64_t>& group) const { return together(group, 0, n); }
  [[nodiscard]] std::vector<std::uint64_t> everyone() const {
    std::vector<std::uint64_t> group(ranks());
    for (std::uint64_t r = 0; r < ranks(); ++r) group[r] = r;
    return group;
  }

  // --- folding onto A = 2^m ranks ---

  [[nodiscard]] std::uint64_t log2_floor() const {
    std::uint64_t m = 0;
    while ((std::uint64_t{2} << m) <= ranks()) ++m;
    return m;
  }
  [[nodiscard]] std::uint64_t log2_ceil() const {
    return log2_floor() + ((std::uint64_t{1} << log2_floor()) < ranks());
  }
  [[nodiscard]] std::uint64_t active() const { return std::uint64_t{1} << log2_floor(); }
  [[nodiscard]] std::uint64_t folded() const { return ranks() - active(); } // number of pairs
  [[nodiscard]] bool paired(std::uint64_t rank) const { return rank < 2 * folded(); }
  [[nodiscard]] bool idle(std::uint64_t rank) const { return paired(rank) && rank % 2 == 0; }
  [[nodiscard]] std::uint64_t number_of(std::uint64_t rank) const { return paired(rank) ? rank / 2 : rank - folded(); }
  /// The ranks whose input the active rank `number` holds after folding.
  [[nodiscard]] std::vector<std::uint64_t> members(std::uint64_t number) const {
    if (number < folded()) return {2 * number, 2 * number + 1};
    return {number + folded()};
  }
  /// The members of all active ranks whose number differs from `number` only in the bits of `mask`.
  [[nodiscard]] std::vector<std::uint64_t> group(std::uint64_t number, std::uint64_t mask) const {
    std::vector<std::uint64_t> all;
    for (std::uint64_t other = 0; other < active(); ++other) {
      if (((other ^ number) & ~mask) != 0) continue;
      for (const std::uint64_t r : members(other)) all.push_back(r);
    }
    return all;
  }

  // --- sparse algorithms, as long as no stream turns dense ---

  [[nodiscard]] traffic recursive_doubling(std::uint64_t rank) const {
    if (idle(rank)) return {1, entry() * indices[rank].size()};
    traffic sent;
    for (std::uint64_t distance = 1; distance < active(); distance *= 2)
      sent += {1, entry() * together(group(number_of(rank), distance - 1))};
    if (paired(rank)) sent += {1, entry() * together(everyone())};
    return sent;
  }

  [[nodiscard]] traffic ring(std::uint64_t rank) const {
    const std::uint64_t p = ranks();
    traffic sent;
    for (std::uint64_t step = 1; step < p; ++step) {
      const std::uint64_t block = (rank + p - step) % p;
      std::vector<std::uint64_t> passed; // the ranks whose shares the block has collected
      for (std::uint64_t r = 1; r <= step; ++r) passed.push_back((block + r) % p);
      sent += {1, entry() * together(passed, begin_of(block, p), begin_of(block + 1, p))};
    }
    for (std::uint64_t step = 0; step + 1 < p; ++step) {
      const std::uint64_t block = (rank + p - step) % p;
      sent += {1, entry() * together(everyone(), begin_of(block, p), begin_of(block + 1, p))};
    }
    return sent;
  }

  [[nodiscard]] traffic rabenseifner(std::uint64_t rank) const {
    if (idle(rank)) return {1, entry() * indices[rank].size()};
    const std::uint64_t number = number_of(rank);
    traffic sent;
    std::uint64_t mask = 0;
    for (std::uint64_t blocks = active() / 2; blocks > 0; blocks /= 2) {
      const std::uint64_t given = (number ^ blocks) & ~(blocks - 1);
      sent +=
          {1, entry() * together(group(number, mask), begin_of(given, active()), begin_of(given + blocks, active()))};
      mask |= blocks;
    }
    for (std::uint64_t blocks = 1; blocks < active(); blocks *= 2) {
      const std::uint64_t own = number & ~(blocks - 1);
      sent += {1, entry() * together(everyone(), begin_of(own, active()), begin_of(own + blocks, active()))};
    }
    if (paired(rank)) sent += {1, entry() * together(everyone())};
    return sent;
  }

  [[nodiscard]] traffic split(std::uint64_t rank) const {
    traffic sent;
    for (std::uint64_t block = 0; block < ranks(); ++block) {
      if (block == rank) continue;
      sent += {1, entry() * together({rank}, begin_of(block, ranks()), begin_of(block + 1, ranks()))};
    }
    return sent;
  }

  /// Allgather in ceil(log2 P) rounds; part r has `bytes(r)` bytes.
  template <class Bytes>
  [[nodiscard]] traffic bruck(std::uint64_t rank, const Bytes& bytes) const {
    traffic sent;
    for (std::uint64_t distance = 1; distance < ranks(); distance *= 2) {
      sent += {1, 0};
      for (std::uint64_t part = 0; part < distance && part < ranks() - distance; ++part)
        sent.bytes += bytes((rank + part) % ranks());
    }
    return sent;
  }

  [[nodiscard]] traffic ssar_split(std::uint64_t rank) const {
    traffic sent = split(rank);
    sent += bruck(rank, [&](std::uint64_t block) {
      return 8 + entry() * together(everyone(), begin_of(block, ranks()), begin_of(block + 1, ranks()));
    });
    return sent;
  }
  /// The split phase, the counts of all blocks, and the smaller of the two allgathers.
  [[nodiscard]] traffic adaptive_split(std::uint64_t rank) const {
    const bool dense = together(everyone()) * entry() > n * value_bytes;
    traffic sent = dense ? dsar_split(rank) : ssar_split(rank);
    sent += bruck(rank, [](std::uint64_t) { return std::uint64_t{8}; });
    return sent;
  }
  [[nodiscard]] traffic dsar_split(std::uint64_t rank) const {
    traffic sent = split(rank);
    sent += bruck(rank, [&](std::uint64_t block) { return value_bytes * block_size(block, ranks()); });
    return sent;
  }
  /// Bytes of a quantised block: buckets of `bucket` values, `bits` per value and one scale per bucket.
  [[nodiscard]] std::uint64_t quantised_bytes(std::uint64_t values, std::uint64_t bits, std::uint64_t bucket) const {
    std::uint64_t bytes = 0;
    for (; values > 0; values -= values < bucket ? values : bucket)
      bytes += value_bytes + ((values < bucket ? values : bucket) * bits + 7) / 8;
    return bytes;
  }
  [[nodiscard]] traffic quantised_split(std::uint64_t rank, std::uint64_t bits, std::uint64_t bucket) const {
    traffic sent = split(rank);
    sent += bruck(rank, [&](std::uint64_t block) { return quantised_bytes(block_size(block, ranks()), bits, bucket); });
    return sent;
  }
  /// Whether a message of 4096 bytes holds `entries` entries and a number of 8 bytes, each piece padded to 16 bytes.
  [[nodiscard]] bool is_short(std::uint64_t entries) const {
    const auto padded = [](std::uint64_t bytes) { return (bytes + 15) / 16 * 16; };
    return padded(entries * index_bytes) + padded(entries * value_bytes) + 16 <= 4096;
  }
  /// Whether the group of `distance` active ranks around `number` has its sum: all streams before the sum were short.
  [[nodiscard]] bool sum_is_known(std::uint64_t number, std::uint64_t distance) const {
    if (distance == 1) {
      if (members(number).size() == 1) return true;
      return is_short(indices[2 * number].size()) && is_short(indices[2 * number + 1].size());
    }
    const std::uint64_t half = distance / 2;
    return sum_is_sent(number, half) && sum_is_sent(number ^ half, half);
  }
  [[nodiscard]] bool sum_is_sent(std::uint64_t number, std::uint64_t distance) const {
    return sum_is_known(number, distance) && is_short(together(group(number, distance - 1)));
  }
  /// Whether sparcml has its result after the messages of `sum_if_short`.
  [[nodiscard]] bool all_short() const { return sum_is_known(0, active()); }
  /// Recursive doubling of short sums, with the largest number of entries, of 8 bytes, in each message.
  [[nodiscard]] traffic sum_if_short(std::uint64_t rank) const {
    if (idle(rank)) return {1, 8 + (is_short(indices[rank].size()) ? entry() * indices[rank].size() : 0)};
    const std::uint64_t number = number_of(rank);
    traffic sent;
    for (std::uint64_t distance = 1; distance < active(); distance *= 2)
      sent += {1, 8 + (sum_is_sent(number, distance) ? entry() * together(group(number, distance - 1)) : 0)};
    if (paired(rank)) sent += {1, 8 + (all_short() ? entry() * together(everyone()) : 0)};
    return sent;
  }
  [[nodiscard]] traffic allgather(std::uint64_t rank) const {
    return bruck(rank, [&](std::uint64_t part) { return 8 + entry() * indices[part].size(); });
  }

  // --- dense algorithms ---

  [[nodiscard]] traffic dense_recursive_doubling(std::uint64_t rank, std::uint64_t values, std::uint64_t bytes) const {
    const std::uint64_t messages = idle(rank) ? 1 : log2_floor() + (paired(rank) ? 1U : 0U);
    return {messages, messages * values * bytes};
  }
  [[nodiscard]] traffic dense_recursive_doubling(std::uint64_t rank) const {
    return dense_recursive_doubling(rank, n, value_bytes);
  }
  [[nodiscard]] traffic dense_ring(std::uint64_t rank) const {
    const std::uint64_t p = ranks();
    if (p == 1) return {};
    return {2 * (p - 1), value_bytes * (2 * n - block_size(rank, p) - block_size((rank + 1) % p, p))};
  }
  [[nodiscard]] traffic dense_rabenseifner(std::uint64_t rank) const {
    if (idle(rank)) return {1, value_bytes * n};
    const std::uint64_t number = number_of(rank);
    traffic sent;
    for (std::uint64_t blocks = 1; blocks < active(); blocks *= 2) {
      const std::uint64_t own = number & ~(blocks - 1);
      const std::uint64_t other = own ^ blocks;
      sent += {2, value_bytes * (begin_of(own + blocks, active()) - begin_of(own, active()) +
                                 begin_of(other + blocks, active()) - begin_of(other, active()))};
    }
    if (paired(rank)) sent += {1, value_bytes * n};
    return sent;
  }

  // --- pieces ---

  [[nodiscard]] traffic broadcast(std::uint64_t rank, std::uint64_t root, std::uint64_t bytes) const {
    const std::uint64_t relative = (rank + ranks() - root) % ranks();
    traffic sent;
    for (std::uint64_t distance = 1; distance < ranks() && (relative & distance) == 0; distance *= 2)
      if (relative + distance < ranks()) sent += {1, bytes};
    return sent;
  }
};

} // namespace spar_test
