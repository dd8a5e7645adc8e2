// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The optimizers that hyperplane and sequences compare: eager-SGD with each participation.
#pragma once

#include <spar/mpi.hpp>
#include <spar/spar.hpp>
#include <spar/system/eager_sgd.hpp>

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace examples {

/// A participation chosen at run time.
using participation = std::variant<spar::everyone, spar::solo, spar::majority, spar::quorum>;

/// Parses "solo", "majority", "quorum:Q" or "everyone". Throws std::runtime_error for another name, and
/// spar::invalid_argument for a quorum out of range.
inline participation participation_of(const std::string& name, spar::rank_t ranks) {
  if (name == "everyone") return spar::everyone{};
  if (name == "solo") return spar::solo{};
  if (name == "majority") return spar::majority{};
  const std::string prefix = "quorum:";
  if (!name.starts_with(prefix)) {
    throw std::runtime_error(
        fmt::format("there is no participation '{}'; there are: everyone, solo, majority, quorum:Q", name));
  }
  spar::quorum some;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, some.q);
  if (error != std::errc{} || stop != end) {
    throw std::runtime_error(fmt::format("a quorum must be a number of ranks, not '{}'", name.substr(prefix.size())));
  }
  some.validate(ranks);
  return some;
}

/// eager-SGD with a participation chosen at run time.
class optimizer {
 public:
  virtual ~optimizer() = default;
  virtual spar::participants step(std::span<float> weights, std::span<float> gradient, float rate) = 0;
  /// Subtracts the outstanding gradients after the last step. Collective.
  virtual spar::participants finish(std::span<float> weights) = 0;
  /// Takes part in rounds that other ranks have started; returns whether a round is running.
  virtual bool progress() = 0;
};

template <spar::participation Who>
class eager final : public optimizer {
 public:
  eager(spar::mpi& world, std::size_t n, const Who& who, const spar::eager_sgd_options& options)
      : sgd_(world, n, who, {}, options) {}
  spar::participants step(std::span<float> weights, std::span<float> gradient, float rate) override {
    return sgd_.step(weights, gradient, rate);
  }
  spar::participants finish(std::span<float> weights) override { return sgd_.finish(weights); }
  bool progress() override { return sgd_.progress(); }

 private:
  // Recursive doubling has the fewest consecutive messages of all dense algorithms, and each message may have to wait
  // until its receiver's nap ends.
  spar::eager_sgd<float, spar::mpi, Who, spar::recursive_doubling> sgd_;
};

/// Creates the optimizer for a participation. Collective.
inline std::unique_ptr<optimizer> optimizer_of(const participation& who, spar::mpi& world, std::size_t n,
                                               const spar::eager_sgd_options& options) {
  return std::visit(
      [&]<class Who>(const Who& by) -> std::unique_ptr<optimizer> {
        return std::make_unique<eager<Who>>(world, n, by, options);
      },
      who);
}

} // namespace examples
