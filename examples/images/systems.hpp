// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems that the program compares: each turns the gradients of all ranks into one step of SGD.
#pragma once

#include "model.hpp"

#include <spar/collective/partial/participants.hpp>
#include <spar/mpi.hpp>
#include <spar/spar.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace images {

using update = spar::selected_sum<float, std::uint32_t>;

/// A system, with the state that it keeps from step to step.
class exchange {
 public:
  virtual ~exchange() = default;
  /// Subtracts from the weights the mean over all ranks of `rate` times the gradient, or of the entries that the system
  /// selects from it. Returns what was subtracted and this rank's contribution to it; empty if the system selects
  /// nothing.
  virtual update step(spar::mpi& world, std::span<float> weights, std::span<float> gradient, float rate) = 0;
  /// After the last step: subtracts the gradients that were too late for that step.
  virtual void finish(std::span<float> /*weights*/) {}
  /// Whether parts of the gradient are summed while others are computed, by `ready`.
  virtual bool overlaps() const { return false; }
  /// Starts to sum part `i` of `rate` times the gradient; before `step`, once for each of `setting::parts`.
  virtual void ready(std::size_t /*i*/, std::span<float> /*part*/, float /*rate*/) {}
  /// Takes part in rounds that other ranks have started; returns whether a round, or the sum of a part, is in progress.
  virtual bool progress() { return false; }
  /// The ranks whose gradients were in the last step; null if all were.
  virtual const spar::participants* participants() const { return nullptr; }
  /// Seconds in which the last step selected entries before it communicated; 0 if the system does not select.
  virtual double selecting() const { return 0; }
  /// The residual of this rank; empty if the system keeps none.
  virtual std::span<const float> residual() const { return {}; }
  /// The number of entries that this rank selected for the step, whether or not they are in the sum.
  virtual std::uint64_t selected(const update& made) const { return made.contributed.count(); }
  /// Bytes that a rank sends per step without spar, for n weights on P ranks.
  virtual double bytes_unseen(double /*n*/, double /*P*/) const { return 0; }
};

/// The parameters with which a system is created.
struct setting {
  spar::mpi* world;
  std::uint64_t n, k; // number of entries of the gradient, and number of entries to select
  spar::rank_t quorum;
  std::string_view codec;
  std::uint64_t seed;
  std::span<const perceptron::part> parts; // for systems that overlap
  double density;
};

struct known_system {
  std::string_view name;
  char mark; // what may follow the name: '@' and a density (optional), ':' and a quorum (required), or '+' and a codec
             // (optional); 0 for nothing
  std::unique_ptr<exchange> (*make)(const setting&);

  constexpr bool selects() const { return mark == '@'; } // whether it selects k entries
};

/// A system as named by the user: "topka" or "ok_topk+coded:bf16", with a density other than 1 % "topka@0.02",
/// "quorum:4", or "ring+zfp:8".
struct named_system {
  std::string name;
  double density;
  spar::rank_t quorum;
  std::string codec;
  const known_system* known;

  std::uint64_t selected_of(std::size_t n) const {
    return static_cast<std::uint64_t>(density * static_cast<double>(n));
  }
};

/// Parses the name of a system. Throws std::runtime_error if the name is invalid, and spar::invalid_argument for an
/// unknown codec or a quorum out of range.
named_system system_of(const std::string& name);

} // namespace images
