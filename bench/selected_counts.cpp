// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains the classifier of examples/images on simulated ranks, and prints as JSON how many entries a rank selects, and
// how many the sum has, in the course of the training (Ok-Topk, section 5.2, figure 6).
#include "../examples/images/model.hpp"

#include <spar/sim.hpp>
#include <spar/spar.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr spar::rank_t ranks = 4;
constexpr double density = 0.01;
constexpr std::size_t batch = 32, epochs = 6;
constexpr std::size_t window = 32; // steps, of which a mean is printed

/// Gaussiank without the adjustment of `selector::gaussian`: a normal distribution with the mean and the deviation of
/// the values has a share `density` of its values beyond the threshold.
struct unadjusted_gaussian {
  static constexpr spar::slot fills = spar::slot::selector;
  static constexpr std::string_view name = "unadjusted_gaussian";
  static constexpr double deviations = 2.5758293; // of a normal variable in 1 % of the cases
  static_assert(density == 0.01);

  void validate(std::uint64_t) const {}
  void options(auto&&) const {}

  template <class Index, class Work, class Prepare>
  auto operator()(Work& work, std::span<float> x, spar::no_state&, const Prepare& prepare) const {
    prepare(0, x.size());
    double sum = 0, squares = 0;
    for (const double value : x) sum += value, squares += value * value;
    const double mean = sum / static_cast<double>(x.size());
    const double deviation = std::sqrt(squares / static_cast<double>(x.size()) - mean * mean);
    const auto threshold = static_cast<float>(std::abs(mean) + deviations * deviation);
    return work.template take_at_least<Index>(x, spar::kernel::magnitude_of(threshold), x.size(),
                                              [](std::size_t, std::size_t) noexcept {});
  }
};

/// Numbers of entries, summed over the ranks and over the steps of a window.
struct counts {
  double selected = 0, summed = 0;
};

template <class Algorithm>
struct training {
  const images::image_set* set;
  Algorithm algorithm;
  std::vector<counts>* found; // one for each window
  double* off;                // the sum of |selected - k| / k

  std::size_t steps_an_epoch() const { return set->size() / (batch * ranks); }

  /// The rate rises over the first half of the first epoch, then falls to zero, as in examples/images.
  float rate_at(std::size_t step) const {
    const auto each = static_cast<float>(steps_an_epoch()), at = static_cast<float>(step);
    return 0.4F * std::min({(at + 1) / (each / 2), 1 - at / (each * epochs), 1.0F});
  }

  spar::task<void> operator()(spar::sim& net) const& {
    images::perceptron model({128, 64}, 1);
    std::vector<float> gradient(model.weights.size());
    const double k = density * static_cast<double>(gradient.size());
    spar::error_feedback<float, Algorithm> reduce(algorithm);
    std::vector<std::uint32_t> order(set->size());
    std::iota(order.begin(), order.end(), 0U);
    std::mt19937_64 random(1); // the same order on all ranks
    for (std::size_t step = 0; step < epochs * steps_an_epoch(); ++step) {
      const std::size_t at = step % steps_an_epoch();
      if (at == 0) std::shuffle(order.begin(), order.end(), random);
      const std::size_t first = (at * ranks + static_cast<std::size_t>(net.rank())) * batch;
      model.gradient(*set, std::span(order).subspan(first, batch), gradient);
      for (float& g : gradient) g *= rate_at(step);
      auto call = reduce.start_reduce(net, std::span<const float>(gradient), spar::average{});
      const auto made = co_await std::move(call);
      spar::descend(model.weights, made.sum);
      const auto selected = static_cast<double>(reduce.report().selected);
      counts& its = (*found)[step / window];
      its.selected += selected;
      its.summed += static_cast<double>(made.sum.count());
      *off += std::abs(selected - k) / k;
    }
  }
};

template <class Algorithm>
void train(const images::image_set& set, const char* name, const char* separator, Algorithm algorithm) {
  const std::size_t steps = epochs * (set.size() / (batch * ranks));
  std::vector<counts> found((steps - 1) / window + 1);
  double off = 0;
  const training<Algorithm> job{&set, std::move(algorithm), &found, &off};
  spar::simulator engine(ranks);
  engine.run([&](spar::sim& net) { return job(net); });
  std::printf("%s{\"system\": \"%s\", \"ranks\": %d, \"parameters\": %zu, \"density\": %g, \"epochs\": %zu, "
              "\"steps\": %zu, \"window\": %zu, \"selected_deviation\": %.4g",
              separator, name, ranks, images::perceptron({128, 64}, 1).weights.size(), density, epochs, steps, window,
              off / static_cast<double>(steps * ranks));
  for (const auto& [what, count] : {std::pair{"selected", &counts::selected}, std::pair{"summed", &counts::summed}}) {
    std::printf(", \"%s\": ", what);
    for (std::size_t w = 0; w < found.size(); ++w) {
      const auto of = static_cast<double>(std::min(window, steps - w * window) * ranks);
      std::printf("%s%.1f", w == 0 ? "[" : ", ", found[w].*count / of);
    }
    std::printf("]");
  }
  std::printf("}");
  std::fflush(stdout);
}

} // namespace

int main(int count, char** arguments) {
  try {
    const auto set =
        images::read_images(count > 1 ? arguments[1] : "/usr/share/datasets/fashion-mnist", "train", 60000);
    train(set, "ok_topk", "[\n", spar::ok_topk_allreduce<>{.select = {.density = density}});
    train(set, "gaussiank", ",\n", spar::gaussiank_allreduce{.select = {.density = density}});
    train(set, "gaussiank, unadjusted", ",\n", spar::compose(unadjusted_gaussian{}, spar::gather_and_merge{}));
    std::printf("\n]\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "selected_counts: %s\n", error.what());
    return 1;
  }
}
