// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator of the program whose allreduces are taken over.
#pragma once

#include "reductions.hpp"
#include "settings.hpp"

#include <spar/core/statistics.hpp>
#include <spar/mpi.hpp>
#include <spar/topology/flex_plan.hpp>
#include <spar/topology/tree.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace preload {

/// Whether a call is one that may be compressed.
inline bool is_lossy(const settings& chosen, const reduction& what) noexcept {
  return chosen.lossy() && what.is_sum && (what.type == number::float32 || what.type == number::float64);
}

/// Whether a call of so many bytes is to be taken over: where that is not slower, as far as it was measured.
inline bool takes(const settings& chosen, std::size_t bytes, const reduction& what, int ranks,
                  bool on_one_host) noexcept {
  if (is_lossy(chosen, what)) return bytes >= chosen.min_bytes;
  if (on_one_host) return bytes >= chosen.min_exact_bytes_on_one_host;
  return bytes >= std::max(chosen.min_exact_bytes, chosen.min_exact_bytes_a_rank * static_cast<std::uint64_t>(ranks));
}

class communicator {
 public:
  /// Collective over `comm`, of which nothing is kept: not its attributes, whose copy functions are the program's.
  /// `devices`: some rank might bring device memory.
  communicator(MPI_Comm comm, const settings& chosen, bool devices);

  /// Whether a call of so many bytes is to be taken over. The same on all ranks.
  [[nodiscard]] bool takes(std::size_t bytes, const reduction& what) const noexcept {
    return preload::takes(settings_, bytes, what, net_->size(), on_one_host_);
  }
  /// In place, of n numbers. Throws what spar throws.
  void allreduce(void* numbers, std::size_t n, const reduction& what);
  /// What `make` returns, without which this rank cannot make its call. Where it throws, the calls of the others, who
  /// wait for this rank, and later ones end in errors; what fails in a call tells them by itself.
  template <class Make>
  auto needed(Make make) {
    try {
      return make();
    } catch (const std::exception& e) {
      spar::abort(*net_, e.what());
      throw;
    }
  }

  [[nodiscard]] bool may_have_devices() const noexcept { return devices_; }

  /// Of the last call.
  [[nodiscard]] const spar::statistics& last_call() noexcept { return net_->last_call(); }

 private:
  template <class Word>
  void exact(Word* x, std::size_t n, const reduction& what);
  template <class T>
  void lossy(T* x, std::size_t n);
  /// Says so on rank 0, where that is asked for and what was said last was not of so many values.
  template <class Text>
  void tell(std::size_t n, Text text);

  /// What is done for n values of so many bytes over the hosts of these ranks.
  struct course {
    std::uint64_t n;
    std::size_t value_bytes;
    std::optional<spar::flex_plan> plan; ///< without one by Rabenseifner's algorithm
  };
  /// Kept, as training reduces the same few lengths again and again.
  const course& course_of(std::uint64_t n, std::size_t value_bytes);

  settings settings_;
  bool devices_;
  bool on_one_host_ = true;
  std::size_t told_ = 0; // the number of values of which it was said last what is chosen
  std::optional<spar::mpi> net_;
  std::optional<spar::tree> hosts_; // where it is reduced over them
  std::vector<std::unique_ptr<course>> courses_;
};

} // namespace preload
