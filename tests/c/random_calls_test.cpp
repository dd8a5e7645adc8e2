// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface has the results, the messages and the errors of <spar/any.hpp>: random calls of all types of values
// and indices, all operations and many compositions, several of which are in flight and end in a random order.
#include <spar/any.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/spar.h>
#include <spar/storage/coalesce.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/transport/any.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

/// The value with the larger magnitude, as an operation of the program.
template <class T>
void larger(const void* in, void* inout, std::size_t n, void*) {
  const auto* const a = static_cast<const T*>(in);
  auto* const b = static_cast<T*>(inout);
  for (std::size_t i = 0; i < n; ++i) {
    const T x = a[i] < T{} ? static_cast<T>(-a[i]) : a[i], y = b[i] < T{} ? static_cast<T>(-b[i]) : b[i];
    if (x > y || (x == y && a[i] > b[i])) b[i] = a[i];
  }
}

/// An operation of C++ and of C.
struct both_operations {
  spar::any_operation cpp;
  spar_op c;
};

/// One rank's communicators, on which all ranks make the same random calls.
template <class T, class Index>
class random_calls {
 public:
  random_calls(spar::any_transport& net, spar_comm comm, unsigned seed)
      : net_(net), comm_(comm), common_(seed), own_(seed * 1000 + static_cast<unsigned>(net.rank())),
        own_operation_{.name = "larger", .neutral = &neutral_, .reduce = larger<T>} {
    ok(spar_op_create(
        type, "larger",
        [](const void* in, void* inout, std::int64_t n, void* context) {
          larger<T>(in, inout, static_cast<std::size_t>(n), context);
        },
        nullptr, &neutral_, &larger_));
    std::vector<int> hosts;
    for (spar::rank_t r = 0; r < net.size(); ++r) hosts_.push_back(r / 3), hosts.push_back(r / 3);
    ok(spar_comm_set_hosts(comm, hosts.data()));
  }
  ~random_calls() {
    ok(spar_op_free(&larger_));
    ok(spar_feedback_free(&feedback_));
  }

  /// Starts some calls, and waits for them in an order of this rank's own.
  void make_calls() {
    std::vector<std::shared_ptr<call>> calls;
    for (std::uint64_t count = 1 + below(4); count > 0; --count)
      if (auto started = below(2) == 0 ? dense() : sparse(); started != nullptr) calls.push_back(std::move(started));
    // A wait makes progress in the calls of its interface alone.
    std::shuffle(calls.begin(), calls.end(), own_);
    for (const auto& each : calls) each->wait_for_cpp();
    std::shuffle(calls.begin(), calls.end(), own_);
    for (const auto& each : calls) {
      int done = 0;
      if (own_() % 2 == 0) ok(spar_test(each->request, &done));
      ok(spar_wait(&each->request));
      each->compare();
    }
    coalesced();
    if constexpr (spar::is_floating<T>) with_feedback();
  }

 private:
  /// A call in flight in both interfaces.
  struct call {
    virtual ~call() = default;
    virtual void wait_for_cpp() = 0;
    virtual void compare() = 0;
    spar_request request = nullptr;
  };

  static constexpr int type = static_cast<int>(spar::code_of<T>);
  static constexpr int bits = 8 * sizeof(Index);
  static constexpr std::array dense_algorithms = {"sparcml",    "ring",       "rec_doubling", "rabenseifner",
                                                  "flexreduce", "tree_dense", "nonzeros",     "ring+qsgd:8",
                                                  "topka:0.1",  "nothing"};
  static constexpr std::array sparse_algorithms = {"sparcml",      "ssar_split", "rec_doubling",  "allgather",
                                                   "tree_sparcml", "dsar_split", "sparcml+coded", "ok_topk:0.1"};
  static constexpr std::array feedback_algorithms = {"topka:k=3", "ok_topk:k=3", "gtopk:k=3", "tree_ok_topk:k=3"};

  std::uint64_t below(std::uint64_t bound) { // equal on all ranks
    return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(common_);
  }
  template <class Texts>
  const char* one_of(const Texts& texts) {
    return texts[below(texts.size())];
  }
  both_operations operation() {
    switch (below(6)) {
    case 0:
      return {spar::average(), SPAR_AVERAGE};
    case 1:
      return {spar::product(), SPAR_PROD};
    case 2:
      return {spar::minimum(), SPAR_MIN};
    case 3:
      return {spar::maximum(), SPAR_MAX};
    case 4:
      return {own_operation_, larger_};
    default:
      return {spar::sum(), SPAR_SUM};
    }
  }
  std::vector<T> random_values(std::uint64_t n) {
    std::vector<T> x(n);
    std::uniform_int_distribution<int> number(-100, 100);
    for (T& v : x) {
      const auto whole = static_cast<T>(number(own_));
      v = spar::is_floating<T> ? static_cast<T>(whole / T{7}) : whole;
    }
    return x;
  }
  std::vector<Index> random_indices(std::uint64_t n, std::uint64_t most, bool ascending) {
    std::vector<Index> indices(std::uniform_int_distribution<std::uint64_t>(0, most)(own_));
    for (Index& i : indices) i = static_cast<Index>(std::uniform_int_distribution<std::uint64_t>(0, n - 1)(own_));
    if (!ascending) return indices;
    std::sort(indices.begin(), indices.end());
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
    return indices;
  }
  static spar_vector vector_of(std::uint64_t n, const std::vector<Index>& indices, const std::vector<T>& values) {
    return {static_cast<std::int64_t>(n),
            static_cast<std::int64_t>(indices.size()),
            indices.data(),
            values.data(),
            0,
            bits,
            type};
  }

  static void ok(int status) { EXPECT_EQ(status, SPAR_SUCCESS) << spar_error_text(nullptr); }
  static void same(std::span<const T> x, std::span<const T> y) {
    ASSERT_EQ(x.size(), y.size());
    EXPECT_TRUE(x.empty() || std::memcmp(x.data(), y.data(), x.size_bytes()) == 0);
  }
  static void same_stream(std::uint64_t n, bool is_dense, std::span<const Index> indices, std::span<const T> values,
                          spar_stream* c) {
    spar_vector view{};
    ok(spar_stream_view(*c, &view));
    ASSERT_EQ(static_cast<std::uint64_t>(view.n), n);
    ASSERT_EQ(static_cast<std::uint64_t>(view.count), values.size());
    EXPECT_EQ(is_dense && !values.empty(), view.indices == nullptr && !values.empty());
    same(values, {static_cast<const T*>(view.values), values.size()});
    if (!is_dense && !values.empty()) {
      EXPECT_EQ(std::memcmp(indices.data(), view.indices, indices.size_bytes()), 0);
    }
    ok(spar_stream_free(c));
  }
  void same_traffic() {
    spar_statistics c{};
    ok(spar_comm_last_call(comm_, &c));
    EXPECT_EQ(c.messages_sent, static_cast<std::int64_t>(net_.last_call().messages_sent));
    EXPECT_EQ(c.bytes_sent, static_cast<std::int64_t>(net_.last_call().bytes_sent));
    EXPECT_EQ(c.bytes_received, static_cast<std::int64_t>(net_.last_call().bytes_received));
  }
  /// Makes the call of C++, and that of C, which returns its status. Returns whether both have succeeded; otherwise,
  /// both have refused it with the same sentence.
  template <class Cpp, class C>
  bool both(const Cpp& cpp, const C& c) {
    std::string refused;
    try {
      cpp();
    } catch (const spar::invalid_argument& e) {
      refused = e.what();
    }
    const int status = c();
    if (refused.empty()) {
      ok(status);
      return status == SPAR_SUCCESS;
    }
    EXPECT_EQ(status, SPAR_ERR_INVALID_ARGUMENT) << refused;
    const std::string said = spar_error_text(nullptr);
    EXPECT_EQ(said.substr(said.find(": ") + 2), refused);
    return false;
  }

  /// A call of dense values; null if it has not been started.
  std::shared_ptr<call> dense() {
    struct dense_call : call {
      void wait_for_cpp() override { pending->wait(); }
      void compare() override { same(x, in_place ? y : z); }
      std::vector<T> x, y, z;
      bool in_place = false;
      std::unique_ptr<spar::any_pending<void>> pending;
    };
    const auto its = std::make_shared<dense_call>();
    its->x = its->y = random_values(below(200));
    its->z.resize(its->x.size());
    its->in_place = below(2) == 0;
    const char* const algorithm = one_of(dense_algorithms);
    const both_operations op = operation();
    const bool blocks = below(3) == 0;
    T* const out = its->in_place ? its->y.data() : its->z.data();
    const auto n = static_cast<std::int64_t>(its->x.size());
    const auto cpp = [&] {
      const spar::any_allreduce<T> reduce(algorithm, hosts_);
      if (blocks) return reduce(net_, its->x, op.cpp);
      its->pending = std::make_unique<spar::any_pending<void>>(reduce.start(net_, its->x, op.cpp));
    };
    const auto c = [&] {
      return blocks ? spar_allreduce(comm_, its->y.data(), out, n, type, op.c, algorithm)
                    : spar_start_allreduce(comm_, its->y.data(), out, n, type, op.c, algorithm, &its->request);
    };
    if (!both(cpp, c)) return nullptr;
    if (!blocks) return its;
    its->compare();
    return nullptr;
  }
  /// The same for streams.
  std::shared_ptr<call> sparse() {
    struct sparse_call : call {
      void wait_for_cpp() override { sum = pending->wait(); }
      void compare() override { same_stream(n, sum.is_dense(), sum.indices(), sum.values(), &c_sum); }
      std::uint64_t n = 0;
      std::vector<Index> indices;
      std::vector<T> values;
      std::unique_ptr<spar::any_pending<spar::any_sum<T, Index>>> pending;
      spar::any_sum<T, Index> sum;
      spar_stream c_sum = nullptr;
    };
    const auto its = std::make_shared<sparse_call>();
    its->n = 1 + below(500);
    its->indices = random_indices(its->n, 1 + below(its->n), true);
    its->values = random_values(its->indices.size());
    const spar_vector mine = vector_of(its->n, its->indices, its->values);
    const char* const algorithm = one_of(sparse_algorithms);
    const both_operations op = operation();
    const bool blocks = below(3) == 0;
    const auto cpp = [&] {
      const spar::any_allreduce<T, Index> reduce(algorithm, hosts_);
      if (blocks)
        its->sum = reduce(net_, its->n, its->indices, its->values, op.cpp);
      else
        its->pending = std::make_unique<spar::any_pending<spar::any_sum<T, Index>>>(
            reduce.start(net_, its->n, its->indices, its->values, op.cpp));
    };
    const auto c = [&] {
      return blocks ? spar_allreduce_sparse(comm_, &mine, op.c, algorithm, &its->c_sum)
                    : spar_start_allreduce_sparse(comm_, &mine, op.c, algorithm, &its->c_sum, &its->request);
    };
    if (!both(cpp, c)) return nullptr;
    if (!blocks) return its;
    its->compare();
    return nullptr;
  }
  void coalesced() {
    const std::uint64_t n = 1 + below(300);
    const std::vector<Index> indices = random_indices(n, 100, false);
    const std::vector<T> values = random_values(indices.size());
    const spar_vector entries = vector_of(n, indices, values);
    const auto stream = spar::coalesce(*std::pmr::new_delete_resource(), n, indices, values, spar::sum());
    spar_stream c = nullptr;
    ok(spar_coalesce(&entries, SPAR_SUM, &c));
    same_stream(n, stream.is_dense(), stream.indices(), stream.values(), &c);
  }
  /// A step with error feedback. From time to time, both objects are saved, and others are loaded.
  void with_feedback() {
    if (cpp_feedback_ == nullptr || below(6) == 0) {
      const char* const algorithm = one_of(feedback_algorithms);
      const bool other = algorithm_ != algorithm;
      algorithm_ = algorithm;
      auto next = std::make_unique<spar::any_feedback<T, Index>>(algorithm, hosts_);
      spar_feedback c_next = nullptr;
      ok(spar_feedback_create(comm_, type, bits, algorithm, &c_next));
      if (cpp_feedback_ != nullptr) {
        const spar::any_bytes saved = cpp_feedback_->save();
        std::int64_t bytes = 0;
        ok(spar_feedback_saved_size(feedback_, &bytes));
        ASSERT_EQ(static_cast<std::size_t>(bytes), saved.size());
        std::vector<std::byte> c_saved(saved.size());
        ok(spar_feedback_save(feedback_, c_saved.data(), bytes));
        EXPECT_EQ(std::memcmp(c_saved.data(), saved.data(), saved.size()), 0);
        const bool loaded = both([&] { next->load({saved.data(), saved.size()}); },
                                 [&] { return spar_feedback_load(c_next, c_saved.data(), bytes); });
        EXPECT_TRUE(loaded || other);
      }
      ok(spar_feedback_free(&feedback_));
      feedback_ = c_next;
      cpp_feedback_ = std::move(next);
    }
    std::vector<T> x = random_values(50), y = x;
    const bool averages = below(2) == 0;
    const spar::any_operation op = averages ? spar::any_operation(spar::average()) : spar::sum();
    const spar_op c_op = averages ? SPAR_AVERAGE : SPAR_SUM;
    spar_request request = nullptr;
    spar_stream sum = nullptr;
    if (below(2) == 0) {
      (*cpp_feedback_)(net_, x, op);
      if (below(2) == 0)
        ok(spar_feedback_reduce(feedback_, comm_, y.data(), 50, c_op));
      else
        ok(spar_start_feedback_reduce(feedback_, comm_, y.data(), 50, c_op, &request)), ok(spar_wait(&request));
      same(x, y);
    } else {
      const auto selected = cpp_feedback_->reduce(net_, x, op);
      if (below(2) == 0)
        ok(spar_feedback_reduce_sparse(feedback_, comm_, y.data(), 50, c_op, &sum));
      else
        ok(spar_start_feedback_reduce_sparse(feedback_, comm_, y.data(), 50, c_op, &sum, &request)),
            ok(spar_wait(&request));
      same_stream(50, selected.sum.is_dense(), selected.sum.indices(), selected.sum.values(), &sum);
    }
    same_traffic();
    const void* residual = nullptr;
    std::int64_t n = 0;
    ok(spar_feedback_residual(feedback_, &residual, &n));
    same(cpp_feedback_->residual(), {static_cast<const T*>(residual), static_cast<std::size_t>(n)});
  }

  spar::any_transport& net_;
  spar_comm comm_;
  std::mt19937 common_; // the same on all ranks
  std::mt19937 own_;
  T neutral_{};
  spar::own_operation own_operation_;
  spar_op larger_ = 0;
  std::vector<spar::rank_t> hosts_;
  const char* algorithm_ = nullptr;
  std::unique_ptr<spar::any_feedback<T, Index>> cpp_feedback_;
  spar_feedback feedback_ = nullptr;
};

template <class T>
void of_type(spar::any_transport& net, spar_comm comm, unsigned seed, int rounds) {
  random_calls<T, std::uint32_t> narrow(net, comm, seed);
  random_calls<T, std::uint64_t> wide(net, comm, seed + 1);
  for (int round = 0; round < rounds; ++round) narrow.make_calls(), wide.make_calls();
}

/// Rounds of a partial allreduce in which all ranks take part.
void partial_rounds(spar::any_transport& net, spar_comm comm) {
  auto reduce = spar::partial_allreduce<float>(net, 3, spar::everyone());
  spar_partial c_reduce = nullptr;
  EXPECT_EQ(spar_partial_create(comm, 3, SPAR_FLOAT, SPAR_SUM, "everyone", nullptr, 64, &c_reduce), SPAR_SUCCESS);
  std::vector<int> presence(static_cast<std::size_t>(net.size()));
  for (int round = 0; round < 4; ++round) {
    std::array<float, 3> x{1.0F, static_cast<float>(net.rank()), static_cast<float>(round)}, y = x;
    const auto who = round < 3 ? reduce(x) : reduce.drain(x);
    EXPECT_EQ((round < 3 ? spar_partial_reduce : spar_partial_drain)(c_reduce, y.data(), 3, presence.data()),
              SPAR_SUCCESS);
    EXPECT_EQ(x, y);
    for (spar::rank_t r = 0; r < net.size(); ++r)
      EXPECT_EQ(static_cast<int>(who[r]), presence[static_cast<std::size_t>(r)]);
  }
  EXPECT_EQ(spar_partial_free(&c_reduce), SPAR_SUCCESS);
}

} // namespace

TEST(random_calls_of_c, are_those_of_cpp) {
  const bool full = std::getenv("SPAR_FULL") != nullptr;
  for (int ranks = 1; ranks <= 13; ++ranks) {
    if (!full && ranks > 5 && ranks != 7 && ranks != 8 && ranks != 13) continue;
    std::vector<spar_comm> comms(static_cast<std::size_t>(ranks));
    ASSERT_EQ(spar_comm_from_threads(ranks, comms.data()), SPAR_SUCCESS);
    spar::any_group::threads(ranks).run([&](spar::any_transport& net) {
      const spar_comm comm = comms[static_cast<std::size_t>(net.rank())];
      const int rounds = full ? 40 : 6;
      of_type<float>(net, comm, 1, rounds);
      of_type<double>(net, comm, 3, rounds);
      of_type<std::int32_t>(net, comm, 5, rounds);
      of_type<std::int64_t>(net, comm, 7, rounds);
#ifdef SPAR_HAS_HALF
      of_type<spar::half>(net, comm, 9, rounds);
#endif
      partial_rounds(net, comm);
    });
    for (spar_comm& comm : comms) EXPECT_EQ(spar_comm_free(&comm), SPAR_SUCCESS);
  }
}
