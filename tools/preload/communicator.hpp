// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator of the program whose calls of MPI_Allreduce spar takes over.
#pragma once

#include "reductions.hpp"
#include "settings.hpp"

#include <spar/core/statistics.hpp>
#include <spar/mpi.hpp>
#include <spar/system/text/composition_text.hpp>
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

/// Whether the settings allow this call to be compressed: only sums of float and double.
inline bool is_lossy(const settings& chosen, const reduction& what) noexcept {
  return chosen.lossy() && what.is_sum && (what.type == number::float32 || what.type == number::float64);
}

/// Whether spar takes over a call on vectors of `bytes` bytes: from the size on at which measurements found spar no
/// slower than the MPI library.
inline bool takes(const settings& chosen, std::size_t bytes, const reduction& what, int ranks,
                  bool on_one_host) noexcept {
  if (is_lossy(chosen, what)) return bytes >= chosen.min_bytes;
  if (on_one_host) return bytes >= chosen.min_exact_bytes_on_one_host;
  return bytes >= std::max(chosen.min_exact_bytes, chosen.min_exact_bytes_a_rank * static_cast<std::uint64_t>(ranks));
}

class communicator {
 public:
  /// Collective over `comm`. Uses a new communicator of the same ranks without the attributes of `comm`, because
  /// copying an attribute would call functions of the program. `devices`: whether some rank might pass device memory.
  communicator(MPI_Comm comm, const settings& chosen, bool devices);

  /// Whether spar takes over a call on vectors of `bytes` bytes; the same on all ranks.
  [[nodiscard]] bool takes(std::size_t bytes, const reduction& what) const noexcept {
    return preload::takes(settings_, bytes, what, net_->size(), on_one_host_);
  }
  /// Reduces n numbers in place. Throws the exceptions of spar::allreduce.
  void allreduce(void* numbers, std::size_t n, const reduction& what);
  /// Returns the result of `make`, which this rank needs before it can start its call. If `make` throws, aborts the
  /// communicator, so that pending and later calls of the other ranks fail instead of waiting for this rank forever.
  /// (An error within a call aborts without this function.)
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

  /// The statistics of the last call.
  [[nodiscard]] const spar::statistics& last_call() noexcept { return net_->last_call(); }

 private:
  template <class Word>
  void exact(Word* x, std::size_t n, const reduction& what);
  template <class T>
  void lossy(T* x, std::size_t n);
  /// With SPAR_VERBOSE=1, prints `text()` on rank 0, unless the previous message was for the same number of values.
  template <class Text>
  void tell(std::size_t n, Text text);

  /// How to reduce n values of `value_bytes` bytes each over the tree of hosts.
  struct course {
    std::uint64_t n;
    std::size_t value_bytes;
    std::optional<spar::flex_plan> plan; ///< empty: use Rabenseifner's algorithm
  };
  /// Returns the cached course for n values, or creates it: training reduces the same few lengths again and again.
  const course& course_of(std::uint64_t n, std::size_t value_bytes);

  settings settings_;
  spar::composition_text parts_; ///< of the text in `settings_`
  bool devices_;
  bool on_one_host_ = true;
  std::size_t reported_ = 0; // the number of values in the last message of `tell`
  std::optional<spar::mpi> net_;
  std::optional<spar::tree> hosts_; // empty if the algorithm needs no tree
  std::vector<std::unique_ptr<course>> courses_;
};

} // namespace preload
