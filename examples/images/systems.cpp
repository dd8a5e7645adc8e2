// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems, and the table of their names.
#include "systems.hpp"

#include "../ranks.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/optimizer/sgd.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/mx.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/system/bucketed_feedback.hpp>
#include <spar/system/eager_sgd.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace images {

namespace {

/// The baseline: MPI sums the whole gradient.
struct by_mpi final : exchange {
  update step(spar::mpi& world, std::span<float> weights, std::span<float> gradient, float rate) override {
    const int n = spar::checked_cast<int>(gradient.size());
    MPI_Allreduce(MPI_IN_PLACE, gradient.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    rate /= static_cast<float>(world.size());
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * gradient[i];
    return {};
  }
  /// MPI does not report its bytes. This is the minimum that an allreduce of a dense vector sends, on average over
  /// ranks.
  double bytes_unseen(double n, double P) const override { return 2 * n * (P - 1) / P * sizeof(float); }
};

/// The same sum with spar, by an allreduce of dense values.
template <class Algorithm>
struct by_dense final : exchange {
  Algorithm algorithm;

  explicit by_dense(const Algorithm& by) : algorithm(by) {}
  update step(spar::mpi& world, std::span<float> weights, std::span<float> gradient, float rate) override {
    spar::sgd_step(world, weights, gradient, rate, algorithm);
    return {};
  }
};

/// The same along a plan over the tree of the hosts.
struct by_plan final : exchange {
  spar::flex_plan plan;

  explicit by_plan(spar::flex_plan its) : plan(std::move(its)) {}
  update step(spar::mpi& world, std::span<float> weights, std::span<float> gradient, float rate) override {
    spar::sgd_step(world, weights, gradient, rate, spar::flexreduce(plan));
    return {};
  }
};

/// The relative error R of the codec "bound:R". Throws std::runtime_error if R is not a number in (0, 1).
double relative_of(const std::string_view codec) {
  const std::string_view number = codec.substr(codec.find(':') + 1);
  double share = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), share);
  if (error != std::errc{} || stop != number.data() + number.size() || !(share > 0 && share < 1))
    throw std::runtime_error(fmt::format("the error of bound must be above 0 and below 1, not '{}'", number));
  return share;
}

/// Calls `f` with the codec of that name. Throws if there is none.
template <class F>
auto with_codec(std::string_view name, F f) {
  if (name == "none") return f(spar::storage::dense{});
  if (name == "mx:e2m1") return f(spar::storage::mx<spar::storage::e2m1>{});
  if (name.starts_with("bound:")) return f(spar::storage::bound{.relative = relative_of(name)});
  return f(spar::storage::named_codec(name));
}

/// Error feedback: sums the selected entries of the gradient, and keeps the rest as a residual.
template <class Reduce>
struct by_feedback final : exchange {
  Reduce reduce;

  explicit by_feedback(typename Reduce::algorithm_type algorithm) : reduce(std::move(algorithm)) {}
  double selecting_seconds = 0;

  update step(spar::mpi& world, std::span<float> weights, std::span<float> gradient, float rate) override {
    for (float& g : gradient) g *= rate; // what follows is sgd_step in two halves, of which the first selects
    const double start = MPI_Wtime();
    auto call = reduce.start_reduce(world, std::span<const float>(gradient), spar::average{});
    selecting_seconds = MPI_Wtime() - start;
    update made = call.wait();
    spar::descend(weights, made.sum);
    return made;
  }
  double selecting() const override { return selecting_seconds; }
  std::span<const float> residual() const override { return reduce.residual(); }
  /// The sum may lack some of these entries, if entries of other ranks were larger.
  std::uint64_t selected(const update&) const override { return reduce.report().selected; }
};

/// Subtracts an update, which every rank has in place of its gradient.
void subtract(std::span<float> weights, std::span<const float> update) {
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= update[i];
}
void scale(std::span<float> part, float rate) {
  for (float& g : part) g *= rate;
}

/// Sums whole parts of the gradient while others are computed.
struct dense_overlap final : exchange {
  spar::fused_allreduce<spar::mpi, float, spar::cheapest, spar::average> sums;

  explicit dense_overlap(const setting& its) : sums(*its.world, sizes_of(its.parts), {.bucket_bytes = 1}) {}
  static std::vector<std::size_t> sizes_of(std::span<const perceptron::part> parts) {
    std::vector<std::size_t> sizes;
    for (const auto& p : parts) sizes.push_back(p.end - p.begin);
    return sizes;
  }
  bool overlaps() const override { return true; }
  void ready(std::size_t i, std::span<float> part, float rate) override {
    scale(part, rate);
    sums.ready(i, part);
  }
  bool progress() override { return sums.progress(); }
  update step(spar::mpi&, std::span<float> weights, std::span<float> gradient, float) override {
    sums.wait();
    subtract(weights, gradient);
    return {};
  }
};

/// Sums the selected entries of parts of the gradient while other parts are computed: layer-wise top-k.
template <class Algorithm>
struct feedback_overlap final : exchange {
  std::vector<perceptron::part> parts;
  spar::bucketed_feedback<spar::mpi, float, Algorithm, spar::average> sums;
  mutable std::vector<float> left;

  explicit feedback_overlap(const setting& its)
      : parts(its.parts.begin(), its.parts.end()),
        sums(*its.world, parameters_of(parts), {.bucket_bytes = 1}, {.select = {.density = its.density}}), left(its.n) {
  }
  static std::vector<spar::parameter> parameters_of(std::span<const perceptron::part> parts) {
    std::vector<spar::parameter> all;
    for (const auto& p : parts) all.push_back({fmt::format("weights from {}", p.begin), p.end - p.begin});
    return all;
  }
  bool overlaps() const override { return true; }
  void ready(std::size_t i, std::span<float> part, float rate) override {
    scale(part, rate);
    sums.start(i, part);
  }
  bool progress() override { return sums.progress(); }
  update step(spar::mpi&, std::span<float> weights, std::span<float> gradient, float) override {
    sums.wait();
    subtract(weights, gradient);
    return {};
  }
  std::span<const float> residual() const override {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::span<const float> kept = sums.reducer(i).residual();
      std::copy(kept.begin(), kept.end(), left.begin() + static_cast<std::ptrdiff_t>(parts[i].begin));
    }
    return left;
  }
  std::uint64_t selected(const update&) const override {
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) all += sums.reducer(i).report().selected;
    return all;
  }
};

/// Quantised Top-k: SparCML's algorithm for dense sums (DSAR) sums the selected entries, and sends the sum with 4 bits
/// per value. With a few ranks that select 1 % each, SparCML itself would choose a sparse sum and quantise nothing.
using sparcml_q4 = spar::quantised_sparcml<float, 4>;

/// The same with the largest entries of every 512 consecutive ones (SparCML, section 8.4) instead of the largest of
/// all.
using bucket_q4 =
    spar::error_feedback<float, spar::composition<spar::selector::bucket_topk,
                                                  spar::storage::then<spar::storage::coo, spar::storage::qsgd<4>>,
                                                  spar::flat, spar::dsar_split>>;

/// Ok-Topk whose messages carry indices as gaps, and values as differences, with `Mantissa` bits of the mantissa: all,
/// or 7, the precision of bfloat16. By the schedule `pruned_owners`, ranks send only what can win.
template <unsigned Mantissa, class Schedule = spar::balanced_owners>
using coded_ok_topk = spar::error_feedback<
    float, spar::composition<spar::selector::threshold_reuse, spar::storage::coded<Mantissa>, spar::flat, Schedule>>;

/// eager-SGD: sums whole gradients without waiting for all ranks.
template <spar::participation Participation>
struct by_eager final : exchange {
  spar::eager_sgd<float, spar::mpi, Participation> sgd;
  spar::participants last;

  by_eager(spar::mpi& world, std::uint64_t n, const Participation& who) : sgd(world, n, who) {}
  update step(spar::mpi&, std::span<float> weights, std::span<float> gradient, float rate) override {
    last = sgd.step(weights, gradient, rate);
    return {};
  }
  void finish(std::span<float> weights) override { last = sgd.finish(weights); }
  bool progress() override { return sgd.progress(); }
  const spar::participants* participants() const override { return &last; }
};

template <class By>
std::unique_ptr<exchange> plain(const setting&) {
  return std::make_unique<By>();
}

std::unique_ptr<exchange> dense(const setting&) { return std::make_unique<by_dense<spar::cheapest>>(spar::cheapest{}); }

/// Creates a system that encodes what it sends: a codec, and a schedule for dense values.
template <class Schedule>
std::unique_ptr<exchange> encoded(const setting& its) {
  return with_codec(its.codec, [](const auto& codec) -> std::unique_ptr<exchange> {
    const auto algorithm = spar::compose(codec, Schedule{});
    return std::make_unique<by_dense<std::remove_const_t<decltype(algorithm)>>>(algorithm);
  });
}

spar::flex_plan flexreduce_plan(const spar::tree& hosts, std::uint64_t n) { return {hosts, n}; }

/// Creates a system whose plan `Plan` computes for the hosts. Collective.
template <spar::flex_plan (*Plan)(const spar::tree&, std::uint64_t)>
std::unique_ptr<exchange> planned(const setting& its) {
  return std::make_unique<by_plan>(Plan(spar::tree_of_hosts(spar::hosts_of(MPI_COMM_WORLD)), its.n));
}

/// Creates a system with error feedback that selects k entries.
template <class Reduce>
std::unique_ptr<exchange> top_k(const setting& its) {
  typename Reduce::algorithm_type algorithm{};
  algorithm.select.k = its.k;
  if constexpr (requires { algorithm.select.bucket; }) // k of a bucket
    algorithm.select.k = std::max<std::uint64_t>(1, (its.k * algorithm.select.bucket + its.n / 2) / its.n);
  return std::make_unique<by_feedback<Reduce>>(algorithm);
}

template <class System>
std::unique_ptr<exchange> overlapped(const setting& its) {
  return std::make_unique<System>(its);
}

template <class Participation>
std::unique_ptr<exchange> eager(const setting& its) {
  Participation who;
  if constexpr (requires { who.q; }) who.q = its.quorum;
  if constexpr (requires { who.seed; }) who.seed = its.seed;
  return std::make_unique<by_eager<Participation>>(*its.world, its.n, who);
}

constexpr std::array known_systems{
    known_system{"mpi", 0, plain<by_mpi>},
    known_system{"dense", 0, dense},
    known_system{"topka", '@', top_k<spar::topka<float>>},
    known_system{"gaussiank", '@', top_k<spar::gaussiank<float>>},
    known_system{"sparcml_q4", '@', top_k<sparcml_q4>},
    known_system{"bucket_q4", '@', top_k<bucket_q4>},
    known_system{"topkdsa", '@', top_k<spar::topkdsa<float>>},
    known_system{"gtopk", '@', top_k<spar::gtopk<float>>},
    known_system{"ok_topk", '@', top_k<spar::ok_topk<float>>},
    known_system{"ok_topk+coded", '@', top_k<coded_ok_topk<52>>},
    known_system{"ok_topk+coded:bf16", '@', top_k<coded_ok_topk<7>>},
    known_system{"ok_topk+pruned", '@', top_k<coded_ok_topk<52, spar::pruned_owners>>},
    known_system{"dense+overlap", 0, overlapped<dense_overlap>},
    known_system{"topka+overlap", '@', overlapped<feedback_overlap<spar::topka_allreduce>>},
    known_system{"ok_topk+overlap", '@', overlapped<feedback_overlap<spar::ok_topk_allreduce<>>>},
    known_system{"eager_solo", 0, eager<spar::solo>},
    known_system{"eager_majority", 0, eager<spar::majority>},
    known_system{"quorum", ':', eager<spar::quorum>},
    known_system{"ring", '+', encoded<spar::ring>},
    known_system{"rec_doubling", '+', encoded<spar::recursive_doubling>},
    known_system{"two_shot", '+', encoded<spar::two_shot>},
    known_system{"hierarchical", 0, planned<spar::flex_plan::hierarchical>},
    known_system{"blueconnect", 0, planned<spar::blueconnect_plan>},
    known_system{"flexreduce", 0, planned<flexreduce_plan>},
};

} // namespace

named_system system_of(const std::string& name) {
  named_system found{name, 0.01, 1, {}, nullptr};
  std::size_t at = std::string::npos; // of the mark
  std::string all;
  for (const known_system& known : known_systems) {
    // The mark is behind the known name, which may contain a colon itself.
    const std::size_t end = name.find_first_of(known.mark == '+' ? "+" : "@:", known.name.size());
    if (known.name == name.substr(0, end)) {
      found.known = &known;
      at = end;
    }
    all += fmt::format("{}{}", all.empty() ? "" : ", ", known.name);
  }
  if (found.known == nullptr) {
    throw std::runtime_error(fmt::format("there is no system '{}'; there are: {}", name, all));
  }
  const known_system& known = *found.known;
  if (!known.selects()) found.density = 1;
  const char mark = at == std::string::npos ? char{} : name[at];
  if (known.mark == ':' && mark != ':')
    throw std::runtime_error(fmt::format("{0} needs a number, as in {0}:4", known.name));
  if (known.mark == '+') {
    found.codec = mark == '+' ? name.substr(at + 1) : "none";
    with_codec(found.codec, [](const auto&) {});
    return found;
  }
  if (mark == 0) return found;
  if (mark != known.mark) {
    throw std::runtime_error(mark == ':'
                                 ? fmt::format("{} takes no quorum", known.name)
                                 : fmt::format("{}: the system sends everything, so it takes no density", name));
  }
  const std::string number = name.substr(at + 1);
  const char* const end = number.data() + number.size();
  if (mark == ':') {
    const auto [stop, error] = std::from_chars(number.data(), end, found.quorum);
    if (error != std::errc{} || stop != end)
      throw std::runtime_error(fmt::format("a quorum must be a number, not '{}'", number));
    spar::quorum{.q = found.quorum}.validate(static_cast<spar::rank_t>(examples::number_of_ranks()));
  } else {
    const auto [stop, error] = std::from_chars(number.data(), end, found.density);
    if (error != std::errc{} || stop != end || !(found.density > 0 && found.density <= 1)) {
      throw std::runtime_error(fmt::format("a density must be above 0 and at most 1, not '{}'", number));
    }
  }
  return found;
}

} // namespace images
