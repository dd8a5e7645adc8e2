// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <spar/cuda/device_span.hpp>

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#if __has_include(<thrust/device_vector.h>)
#include <thrust/device_vector.h>
#endif

namespace {

/// As thrust::device_vector: its pointers are no pointers of the language.
struct vector_of_ints {
  struct pointer {
    int* where;
    [[nodiscard]] int* get() const { return where; }
  };
  pointer data() { return {&value}; }
  [[nodiscard]] std::size_t size() const { return 1; }
  int value = 0;
};

cudaStream_t stream_of(int& number) { return reinterpret_cast<cudaStream_t>(&number); }

TEST(device_span, takes_vectors_of_a_device) {
  vector_of_ints v;
  int number = 0;
  const spar::device_span x(v, stream_of(number));
  static_assert(std::is_same_v<decltype(x), const spar::device_span<int>>);
  EXPECT_EQ(x.data, &v.value);
  EXPECT_EQ(x.size, 1U);
  EXPECT_EQ(x.stream, stream_of(number));
  EXPECT_EQ(spar::device_span(v).stream, nullptr);
}

TEST(device_span, refuses_vectors_of_the_host_and_of_other_types) {
  static_assert(!std::is_constructible_v<spar::device_span<int>, std::vector<int>&>);
  static_assert(!std::is_constructible_v<spar::device_span<float>, vector_of_ints&>);
  static_assert(!std::is_constructible_v<spar::device_span<int>, vector_of_ints>); // a temporary
}

#if __has_include(<thrust/device_vector.h>)
TEST(device_span, takes_a_vector_of_thrust) {
  thrust::device_vector<float> v(5);
  const spar::device_span x(v);
  static_assert(std::is_same_v<decltype(x), const spar::device_span<float>>);
  EXPECT_EQ(x.data, v.data().get());
  EXPECT_EQ(x.size, 5U);
}
#endif

} // namespace
