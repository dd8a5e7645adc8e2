// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The merge of many coordinate streams against a left fold over std::map.
#include "kernel_reference.hpp"

#include "support/extent.hpp"

#include <spar/storage/kernel/merge_many.hpp>

namespace {

using namespace kernel_test;

/// Counts outstanding bytes and allocations, to detect a leak or a fallback to another resource.
class counting_resource final : public std::pmr::memory_resource {
 public:
  std::size_t out = 0, allocations = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    out += bytes;
    ++allocations;
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
    out -= bytes;
    std::pmr::new_delete_resource()->deallocate(data, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

template <class Pair>
class kernel_merge_many : public ::testing::Test {
 protected:
  using value = typename Pair::value;
  using index = typename Pair::index;
  using map = reference<value, index>;

  template <class Op>
  void expect_merge(const std::vector<map>& parts, std::uint64_t begin, std::uint64_t end, Op op) {
    std::vector<entries<value, index>> owned;
    std::size_t room = 0;
    for (const auto& part : parts) {
      owned.emplace_back(part);
      room += part.size();
    }
    std::vector<spar::coo_span<value, index>> views;
    for (const auto& part : owned) views.push_back(part.view());
    constexpr auto guard = static_cast<value>(77);
    std::vector<index> indices(room + 1, index{77});
    std::vector<value> values(room + 1, guard);
    const std::size_t count =
        spar::kernel::merge_many<value, index>(views, begin, end, indices.data(), values.data(), op, memory_);
    expect_entries(indices.data(), values.data(), count, fold<value, index>(parts, op));
    EXPECT_EQ(indices[room], index{77}) << "the merge wrote beyond the output";
    EXPECT_EQ(values[room], guard) << "the merge wrote beyond the output";
    EXPECT_EQ(memory_.out, 0u) << "the merge did not free its scratch memory";
  }

  void expect_all(const std::vector<map>& parts, std::uint64_t begin, std::uint64_t end) {
    expect_merge(parts, begin, end, skew{});
    expect_merge(parts, begin, end, spar::sum{});
    expect_merge(parts, begin, end, spar::product{});
    expect_merge(parts, begin, end, spar::minimum{});
    expect_merge(parts, begin, end, spar::maximum{});
  }

  std::vector<map> make(std::size_t parts, std::uint64_t begin, std::uint64_t range, std::size_t count,
                        std::uint64_t run = 1) {
    std::vector<map> result;
    for (std::size_t p = 0; p < parts; ++p)
      result.push_back(random_entries<value, index>(random_, begin, range, count, run));
    return result;
  }

  counting_resource memory_;
  std::mt19937_64 random_{5};
};
TYPED_TEST_SUITE(kernel_merge_many, all_pairs);

TYPED_TEST(kernel_merge_many, nothing) {
  this->expect_all({}, 0, 0);
  this->expect_all({{}, {}, {}, {}}, 10, 20);
  EXPECT_EQ(this->memory_.allocations, 0u);
}

TYPED_TEST(kernel_merge_many, one_and_two_parts_need_no_scratch) {
  this->expect_all(this->make(1, 3, 1000, 400), 3, 1003);
  this->expect_all(this->make(2, 3, 1000, 400), 3, 1003);
  auto padded = this->make(2, 3, 1000, 400);
  padded.insert(padded.begin() + 1, typename std::decay_t<decltype(padded)>::value_type{});
  padded.emplace_back();
  this->expect_all(padded, 3, 1003);
  EXPECT_EQ(this->memory_.allocations, 0u);
}

TYPED_TEST(kernel_merge_many, dense_ranges) {
  // The position of the types: each combination of a range and a number of parts runs for two types in the quick set.
  constexpr std::size_t type = sizeof(typename TypeParam::value) / 4 + sizeof(typename TypeParam::index) / 2;
  std::size_t position = 0;
  for (const std::size_t parts : {3u, 4u, 5u, 13u}) {
    std::size_t place = type + position++;
    if (spar_test::is_shortened && parts != 4) continue;
    for (const std::uint64_t range : {1u, 2u, 63u, 64u, 65u, 1000u, 32768u, 33000u})
      if (spar_test::runs_case(4, place++)) this->expect_all(this->make(parts, 7, range, range / 2 + 1), 7, 7 + range);
  }
}

TYPED_TEST(kernel_merge_many, full_parts) { this->expect_all(this->make(5, 100, 3000, 40000, 500), 100, 3100); }

TYPED_TEST(kernel_merge_many, hypersparse_ranges) {
  for (const std::size_t parts : {3u, 4u, 5u, 8u, 13u})
    for (const std::size_t count : {1u, 10u, 700u})
      this->expect_all(this->make(parts, 9, 1u << 31, count), 9, 9 + (std::uint64_t{1} << 31));
}

TYPED_TEST(kernel_merge_many, hypersparse_with_equal_indices) {
  auto parts = this->make(6, 0, 1u << 31, 400);
  for (std::size_t p = 1; p < parts.size(); ++p)
    for (const auto& entry : parts[0])
      if ((entry.first + p) % 3 != 0) parts[p][entry.first] = random_value<typename TypeParam::value>(this->random_);
  this->expect_all(parts, 0, std::uint64_t{1} << 31);
}

TYPED_TEST(kernel_merge_many, strategies_give_the_same_bits) {
  // Declares different ranges for the same data: the range decides the strategy.
  auto parts = this->make(9, 0, 5000, 800);
  this->expect_merge(parts, 0, 5000, skew{});
  this->expect_merge(parts, 0, std::uint64_t{1} << 32, skew{});
}

TYPED_TEST(kernel_merge_many, last_indices) {
  constexpr std::uint64_t top = std::numeric_limits<typename TypeParam::index>::max();
  if constexpr (sizeof(typename TypeParam::index) == 4) {
    auto parts = this->make(4, top - 999, 1000, 500);
    for (auto& part : parts)
      part[static_cast<std::uint32_t>(top)] = random_value<typename TypeParam::value>(this->random_);
    this->expect_all(parts, top - 999, top + 1);
    this->expect_all(parts, 0, top + 1);
  } else {
    this->expect_all(this->make(4, top - 1000, 1000, 500), top - 1000, top);
    this->expect_all(this->make(4, (std::uint64_t{1} << 32) - 500, 1000, 500), (std::uint64_t{1} << 32) - 500,
                     (std::uint64_t{1} << 32) + 500);
    this->expect_all(this->make(4, 5, std::uint64_t{1} << 60, 500), 0, std::uint64_t{1} << 61);
  }
}

TYPED_TEST(kernel_merge_many, random_patterns) {
  for (int trial = 0; trial < 40; ++trial) {
    const std::uint64_t range = 1 + this->random_() % (trial % 2 == 0 ? 3000 : 100'000'000);
    const std::size_t count = 1 + this->random_() % 1500, parts = this->random_() % 20;
    this->expect_merge(this->make(parts, 1000, range, count, 1 + this->random_() % 100), 1000, 1000 + range, skew{});
    if (this->HasFatalFailure()) FAIL() << "trial " << trial;
  }
}

/// Memory whose bytes are 0x7f.
class filled_resource final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return std::memset(std::pmr::new_delete_resource()->allocate(bytes, alignment), 0x7f, bytes);
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(data, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

/// Addition on the integers below 1000. Counts other operands, which an operation with a table could not bear.
struct bounded_sum {
  static constexpr std::string_view name = "bounded_sum";
  int operator()(int a, int b) const {
    if (a < 0 || a >= 1000 || b < 0 || b >= 1000) ++*invalid;
    return (a + b) % 1000;
  }
  template <class T>
  static constexpr T neutral() {
    return T{};
  }
  int* invalid;
};

TEST(kernel_merge_many_values, an_operation_gets_no_uninitialised_memory) {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < 1000; i += 3) indices.push_back(i);
  const std::vector<int> values(indices.size(), 999);
  const std::vector<spar::coo_span<int, std::uint32_t>> parts(4, {indices, values});
  filled_resource memory;
  for (const std::uint64_t end : {std::uint64_t{1000}, std::uint64_t{1} << 32}) { // both strategies
    std::vector<std::uint32_t> out_i(4 * indices.size());
    std::vector<int> out_v(out_i.size());
    int invalid = 0;
    const std::size_t count = spar::kernel::merge_many<int, std::uint32_t>(parts, 0, end, out_i.data(), out_v.data(),
                                                                           bounded_sum{&invalid}, memory);
    EXPECT_EQ(invalid, 0);
    EXPECT_EQ(count, indices.size());
    EXPECT_EQ(out_v[0], 996);
  }
}

TEST(kernel_merge_many_values, a_single_negative_zero_stays) {
  const std::uint32_t indices[] = {1, 2, 3};
  const float values[] = {-0.0f, -0.0f, -0.0f};
  std::vector<spar::coo_span<float, std::uint32_t>> parts;
  for (std::size_t e = 0; e < 3; ++e)
    parts.push_back({std::span(indices).subspan(e, 1), std::span(values).subspan(e, 1)});
  for (const std::uint64_t end : {std::uint64_t{4}, std::uint64_t{1} << 32}) {
    std::uint32_t out_i[3];
    float out_v[3] = {1, 1, 1};
    ASSERT_EQ((spar::kernel::merge_many<float, std::uint32_t>(parts, 0, end, out_i, out_v, spar::sum{},
                                                              *std::pmr::new_delete_resource())),
              3u);
    for (const float value : out_v) EXPECT_TRUE(value == 0 && std::signbit(value));
  }
}

} // namespace
