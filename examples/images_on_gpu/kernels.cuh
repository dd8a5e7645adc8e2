// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels of a perceptron, in the part of CUDA that spar's own kernels use: the test runs them on the host.
#pragma once

#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/rows.cuh>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace images_on_gpu {

/// A matrix in device memory, whose element (row, column) is data[row * row_step + column * column_step].
struct matrix {
  float* data;
  std::uint32_t rows, columns;
  std::uint64_t row_step, column_step = 1;

  [[nodiscard]] matrix transposed() const { return {data, columns, rows, column_step, row_step}; }
  /// The first rows and columns.
  [[nodiscard]] matrix part(std::uint32_t r, std::uint32_t c) const { return {data, r, c, row_step, column_step}; }

  __device__ float& operator()(std::uint64_t row, std::uint64_t column) const {
    return data[row * row_step + column * column_step];
  }
};

/// Images in device memory, and the order in which they are used: the i-th is that with the number order[i].
struct image_span {
  const std::uint8_t *images, *labels;
  const std::uint32_t* order;
  std::size_t pixels; // of an image
};

// What becomes of the element (row, column) of a product.
struct as_it_is {
  __device__ float operator()(float x, std::uint32_t, std::uint32_t) const { return x; }
};
struct positive_part {
  __device__ float operator()(float x, std::uint32_t, std::uint32_t) const { return x > 0 ? x : 0; }
};
struct where_positive { // the derivative of positive_part, if `values` are its results
  matrix values;
  __device__ float operator()(float x, std::uint32_t row, std::uint32_t column) const {
    return values(row, column) > 0 ? x : 0;
  }
};

/// Of a product, each block computes a square of `side` rows and columns, one element per thread. It needs `side` rows
/// of the left matrix and `side` columns of the right one, which it takes to shared memory square by square.
struct squares {
  static constexpr unsigned side = 16, threads = side * side;
  float left[side][side], right[side][side];
};

template <class Finish>
__global__ void __launch_bounds__(squares::threads) multiply(matrix left, matrix right, matrix product, Finish finish) {
  constexpr unsigned side = squares::side;
  squares& shared = spar::detail::block_memory<squares>();
  const unsigned r = threadIdx.x / side, c = threadIdx.x % side;
  const unsigned blocks_in_row = (product.columns + side - 1) / side;
  const unsigned row = blockIdx.x / blocks_in_row * side + r, column = blockIdx.x % blocks_in_row * side + c;
  float sum = 0;
  for (unsigned first = 0; first < left.columns; first += side) {
    shared.left[r][c] = row < left.rows && first + c < left.columns ? left(row, first + c) : 0;
    shared.right[r][c] = first + r < right.rows && column < right.columns ? right(first + r, column) : 0;
    __syncthreads();
    for (unsigned i = 0; i < side; ++i) sum += shared.left[r][i] * shared.right[i][c];
    __syncthreads();
  }
  if (row < product.rows && column < product.columns) product(row, column) = finish(sum, row, column);
}

// static, because nvcc ignores `inline` for kernels
static __global__ void __launch_bounds__(spar::detail::row_tile::threads)
    load(image_span from, std::uint32_t first, matrix to) {
  spar::detail::for_rows(std::uint64_t{to.rows} * to.columns, [&](std::uint64_t at) {
    const std::uint64_t row = at / to.columns, pixel = at % to.columns;
    const std::uint64_t number = from.order[first + row];
    to(row, pixel) = static_cast<float>(from.images[number * from.pixels + pixel]) / 90 - 0.81F;
  });
}

static __global__ void __launch_bounds__(spar::detail::row_tile::threads)
    judge(image_span images, std::uint32_t first, matrix outputs, matrix errors, float* losses, std::uint32_t* right) {
  spar::detail::for_rows(outputs.rows, [&](std::uint64_t row) {
    const unsigned label = images.labels[images.order[first + row]];
    unsigned best = 0;
    for (unsigned c = 1; c < outputs.columns; ++c) best = outputs(row, c) > outputs(row, best) ? c : best;
    const float highest = outputs(row, best);
    float sum = 0;
    for (unsigned c = 0; c < outputs.columns; ++c) sum += expf(outputs(row, c) - highest);
    for (unsigned c = 0; c < outputs.columns; ++c) {
      const float probability = expf(outputs(row, c) - highest) / sum;
      errors(row, c) = (probability - (c == label ? 1.0F : 0.0F)) / static_cast<float>(outputs.rows);
    }
    losses[row] += logf(sum) - (outputs(row, label) - highest);
    right[row] += best == label ? 1 : 0;
  });
}

static __global__ void __launch_bounds__(spar::detail::row_tile::threads)
    descend(float* weights, const float* gradient, std::uint64_t n, float rate) {
  spar::detail::for_rows(n, [&](std::uint64_t at) { weights[at] -= rate * gradient[at]; });
}

// Each of these functions starts a kernel in a stream, and does not wait for it.

/// Sets each element of `product` to that of left * right, as `finish(element, row, column)` changes it. Adds in the
/// same order in each run.
template <class Finish = as_it_is>
void start_multiply(matrix left, matrix right, matrix product, cudaStream_t stream, Finish finish = {}) {
  const auto squares_in = [](std::uint32_t n) { return std::uint64_t{n} / squares::side + (n % squares::side != 0); };
  spar::detail::launch(multiply<Finish>, squares_in(product.rows) * squares_in(product.columns), squares::threads,
                       sizeof(squares), stream, left, right, product, finish);
}

/// Writes as many images as `to` has rows, from `first` in the order, scaled to mean about 0 and deviation about 1.
inline void start_load(image_span from, std::uint32_t first, matrix to, cudaStream_t stream) {
  spar::detail::launch_rows(load, std::uint64_t{to.rows} * to.columns, stream, from, first, to);
}

/// Compares the outputs of the model for images from `first` in the order with their labels. The loss of an image is
/// -log p(label), where p is the softmax of its outputs: adds it to losses[row], and 1 to right[row] if the largest
/// output is that of the label. Writes the derivatives of the mean loss by the outputs to `errors`.
inline void start_judge(image_span images, std::uint32_t first, matrix outputs, matrix errors, float* losses,
                        std::uint32_t* right, cudaStream_t stream) {
  spar::detail::launch_rows(judge, outputs.rows, stream, images, first, outputs, errors, losses, right);
}

/// Subtracts rate * gradient from the weights.
inline void start_descend(float* weights, const float* gradient, std::uint64_t n, float rate, cudaStream_t stream) {
  spar::detail::launch_rows(descend, n, stream, weights, gradient, n, rate);
}

} // namespace images_on_gpu
