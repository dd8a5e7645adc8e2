// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The example images_on_gpu without a GPU: its kernels against plain loops, its gradient against differences of the
// loss, and training. Kernels run by fibres, in the streams of a double of the CUDA runtime.
#include "runtime_double.hpp"

#include "on_host.hpp"

#include "../../examples/images_on_gpu/synthetic.hpp"
#include "../../examples/images_on_gpu/training.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace images_on_gpu;
using cuda_double::stream;

class on_gpu : public testing::Test {
 protected:
  void SetUp() override {
    on_host::put = cuda_double::put;
    cuda_double::reset(17);
  }
  void TearDown() override { on_host::put = nullptr; }
};

/// A matrix of random values, in rows or, if `in_columns`, in columns. NaN follow each row or column, and the last one.
struct random_matrix {
  random_matrix(std::uint32_t r, std::uint32_t c, unsigned seed, bool in_columns = false)
      : rows(r), columns(c), by_columns(in_columns), step((in_columns ? r : c) + 3),
        values(((in_columns ? c : r) + 3) * step, std::numeric_limits<float>::quiet_NaN()) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::uint32_t i = 0; i < r * c; ++i) values[at(i / c, i % c)] = normal(random);
    upload(on_device, values);
  }
  [[nodiscard]] matrix view() const {
    return by_columns ? matrix{on_device.data(), columns, rows, step}.transposed()
                      : matrix{on_device.data(), rows, columns, step};
  }
  [[nodiscard]] double operator()(std::uint32_t r, std::uint32_t c) const { return values[at(r, c)]; }
  /// Takes the values from the device, where only those of the matrix may have changed.
  void read(cudaStream_t after) {
    values = download(on_device, values.size(), after);
    EXPECT_EQ(std::count_if(values.begin(), values.end(), [](float x) { return x == x; }), rows * columns);
  }

  std::uint32_t rows, columns;
  bool by_columns;
  std::size_t step;
  std::vector<float> values;
  device_array<float> on_device;

 private:
  [[nodiscard]] std::size_t at(std::uint32_t r, std::uint32_t c) const {
    return by_columns ? c * step + r : r * step + c;
  }
};

TEST_F(on_gpu, multiplies_matrices_of_any_size) {
  struct size {
    std::uint32_t rows, inner, columns;
  };
  for (const size n : {size{1, 1, 1}, size{3, 50, 7}, size{17, 16, 33}, size{40, 19, 1}, size{16, 31, 32}}) {
    for (unsigned layout = 0; layout < 4; ++layout) {
      SCOPED_TRACE(testing::Message() << n.rows << " x " << n.inner << " x " << n.columns << ", layout " << layout);
      const stream work;
      const random_matrix left(n.rows, n.inner, 1, (layout & 1) != 0);
      const random_matrix right(n.inner, n.columns, 2, (layout & 2) != 0);
      const random_matrix mask(n.rows, n.columns, 3);
      random_matrix product(n.rows, n.columns, 4), positive(n.rows, n.columns, 4), masked(n.rows, n.columns, 4);
      start_multiply(left.view(), right.view(), product.view(), work);
      start_multiply(left.view(), right.view(), positive.view(), work, positive_part{});
      start_multiply(left.view(), right.view(), masked.view(), work, where_positive{mask.view()});
      for (random_matrix* m : {&product, &positive, &masked}) m->read(work);
      for (std::uint32_t r = 0; r < n.rows; ++r) {
        for (std::uint32_t c = 0; c < n.columns; ++c) {
          double expected = 0, size = 0;
          for (std::uint32_t i = 0; i < n.inner; ++i) {
            expected += left(r, i) * right(i, c);
            size += std::abs(left(r, i) * right(i, c));
          }
          const double tolerance = 1e-6 * size;
          ASSERT_NEAR(product(r, c), expected, tolerance);
          ASSERT_NEAR(positive(r, c), std::max(expected, 0.0), tolerance);
          ASSERT_NEAR(masked(r, c), mask(r, c) > 0 ? expected : 0, tolerance);
        }
      }
    }
  }
}

/// Images in device memory, in a random order.
struct few_images {
  few_images(std::size_t count, std::size_t pixels, std::size_t classes)
      : host(synthetic_images(count, pixels, classes, 40, 5)), on_device(host, 0, 1) {
    std::mt19937_64 random(3);
    on_device.shuffle(random);
    const image_span span = on_device;
    order.resize(count);
    cuda_double::copy(order.data(), span.order, count * sizeof(std::uint32_t));
  }
  [[nodiscard]] double pixel(std::size_t position, std::size_t p) const {
    return host.images[order[position] * (host.images.size() / host.size()) + p] / 90.0 - 0.81;
  }
  [[nodiscard]] unsigned label(std::size_t position) const { return host.labels[order[position]]; }

  image_set host;
  share on_device;
  std::vector<std::uint32_t> order;
};

TEST_F(on_gpu, loads_a_batch_in_the_order) {
  const stream work;
  const few_images images(23, 150, 5);
  random_matrix batch(17, 150, 1);
  start_load(images.on_device, 4, batch.view(), work);
  batch.read(work);
  for (std::uint32_t r = 0; r < 17; ++r) {
    for (std::uint32_t p = 0; p < 150; ++p) ASSERT_NEAR(batch(r, p), images.pixel(4 + r, p), 1e-6);
  }
}

TEST_F(on_gpu, judges_outputs) {
  const stream work;
  const few_images images(23, 3, 7);
  const random_matrix outputs(19, 7, 1);
  random_matrix errors(19, 7, 2);
  device_array<float> losses;
  device_array<std::uint32_t> right;
  upload(losses, std::vector<float>(19, 1));
  upload(right, std::vector<std::uint32_t>(19, 4));
  start_judge(images.on_device, 2, outputs.view(), errors.view(), losses.data(), right.data(), work);
  errors.read(work);
  const auto sums = download(losses, 19, work);
  const auto hits = download(right, 19, work);
  for (std::uint32_t r = 0; r < 19; ++r) {
    const unsigned label = images.label(2 + r);
    double sum = 0;
    bool is_best = true;
    for (std::uint32_t c = 0; c < 7; ++c) {
      sum += std::exp(outputs(r, c));
      is_best = is_best && outputs(r, c) <= outputs(r, label);
    }
    for (std::uint32_t c = 0; c < 7; ++c)
      EXPECT_NEAR(errors(r, c), (std::exp(outputs(r, c)) / sum - (c == label ? 1 : 0)) / 19, 1e-7);
    EXPECT_NEAR(sums[r], 1 - std::log(std::exp(outputs(r, label)) / sum), 2e-6);
    EXPECT_EQ(hits[r], is_best ? 5 : 4);
  }
}

TEST_F(on_gpu, descends) {
  const stream work;
  for (const std::uint32_t n : {1U, 2047U, 2500U}) {
    random_matrix weights(1, n, 1);
    const random_matrix gradient(1, n, 2);
    const std::vector<float> before = weights.values;
    start_descend(weights.view().data, gradient.view().data, n, 0.25F, work);
    weights.read(work);
    for (std::uint32_t i = 0; i < n; ++i) ASSERT_NEAR(weights(0, i), before[i] - 0.25 * gradient(0, i), 1e-6);
  }
}

/// The mean loss of a perceptron with such weights for `count` images from `first` in their order, by plain loops.
double loss_of(const std::vector<double>& weights, const perceptron::widths& sizes, const few_images& images,
               std::size_t first, std::size_t count) {
  double loss = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    std::vector<double> x(sizes[0]);
    for (std::size_t p = 0; p < x.size(); ++p) x[p] = images.pixel(i, p);
    auto weight = weights.begin();
    for (unsigned l = 0; l < perceptron::layers; ++l) {
      std::vector<double> y(sizes[l + 1], 0);
      for (double& out : y) {
        for (const double in : x) out += *weight++ * in;
        out += *weight++;
        if (l + 1 < perceptron::layers) out = std::max(out, 0.0);
      }
      x = y;
    }
    double sum = 0;
    for (const double out : x) sum += std::exp(out);
    loss += std::log(sum) - x[images.label(i)];
  }
  return loss / static_cast<double>(count);
}

TEST_F(on_gpu, has_the_gradient_of_the_loss) {
  const stream work;
  const perceptron::widths sizes{37, 19, 11, 5};
  const few_images images(30, 37, 5);
  perceptron model(sizes, 18, 1, work);
  for (const std::uint32_t count : {18U, 13U}) { // the second batch is not full
    model.forward(images.on_device, 7, count);
    model.backward();
    const std::vector<float> weights = model.read_weights(), gradient = model.read_gradient();
    ASSERT_EQ(weights.size(), 38 * 19 + 20 * 11 + 12 * 5);
    std::vector<double> w(weights.begin(), weights.end());
    EXPECT_NEAR(model.take_score().loss / count, loss_of(w, sizes, images, 7, count), 1e-6);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double exact = w[i], h = 1e-6;
      w[i] = exact + h;
      const double above = loss_of(w, sizes, images, 7, count);
      w[i] = exact - h;
      const double below = loss_of(w, sizes, images, 7, count);
      w[i] = exact;
      ASSERT_NEAR(gradient[i], (above - below) / (2 * h), 2e-6) << "weight " << i;
    }
  }
}

/// Each of 3 ranks gets the mean of the values of all ranks.
template <class System>
void expect_to_average() {
  spar::thread_group group(3);
  group.run([](spar::threads& net) {
    const stream work;
    device_array<float> x;
    upload(x, std::vector<float>(50, 1 + static_cast<float>(net.rank())));
    System average(net, {.density = 1});
    average({x.data(), 50, work});
    EXPECT_EQ(download(x, 50, work), std::vector<float>(50, 2));
  });
}

TEST_F(on_gpu, averages_gradients) {
  expect_to_average<dense>();
  expect_to_average<ok_topk>();
}

/// Trains a small model twice: its loss falls, and all ranks have the same bits, also the second time.
template <class System>
void expect_to_learn(spar::rank_t ranks) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks");
  settings chosen;
  chosen.ranks = ranks;
  chosen.epochs = 3;
  chosen.batch = 7;
  chosen.hidden = {17, 9};
  chosen.classes = 5;
  chosen.rate = 0.3F;
  chosen.density = 0.1;
  const auto all = 24 * static_cast<std::size_t>(ranks); // three batches, and three images more
  const image_set to_learn = synthetic_images(all, 30, 5, 60, 1), to_test = synthetic_images(20, 30, 5, 60, 2);
  std::vector<std::uint32_t> checksums;
  for (const std::uint64_t seed : {1, 2}) { // streams and threads advance in another order
    cuda_double::reset(seed);
    on_host::machine::seed = seed;
    const auto of_rank = train_on_ranks<System>(to_learn, to_test, chosen);
    std::uint64_t right = 0;
    for (const std::vector<epoch>& epochs : of_rank) {
      EXPECT_LT(epochs.back().loss, 0.7 * epochs.front().loss);
      EXPECT_EQ(epochs.back().bytes > 0, ranks > 1);
      for (std::size_t e = 0; e < epochs.size(); ++e) EXPECT_EQ(epochs[e].checksum, of_rank[0][e].checksum);
      right += epochs.back().right;
    }
    EXPECT_GT(right, 10); // of 20
    checksums.push_back(of_rank[0].back().checksum);
  }
  EXPECT_EQ(checksums[0], checksums[1]);
  EXPECT_EQ(cuda_double::device_allocations(), 0);
}

TEST_F(on_gpu, learns_with_whole_gradients) {
  for (const spar::rank_t ranks : {1, 3}) expect_to_learn<dense>(ranks);
}

TEST_F(on_gpu, learns_with_few_entries) {
  for (const spar::rank_t ranks : {1, 3}) expect_to_learn<ok_topk>(ranks);
}

} // namespace
