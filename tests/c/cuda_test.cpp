// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of <spar/spar_cuda.h> against those of <spar/spar.h> on values in host memory: kernels run by fibres,
// in the streams of a double of the CUDA runtime.
#include "cuda/runtime_double.hpp"

#include "cuda/on_host.hpp"

#include <spar/spar_cuda.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using cuda_double::device_array, cuda_double::stream;
using bytes = std::vector<std::byte>;

template <class T>
constexpr int type_of = std::is_same_v<T, float>          ? SPAR_FLOAT
                        : std::is_same_v<T, double>       ? SPAR_DOUBLE
                        : std::is_same_v<T, std::int32_t> ? SPAR_INT32
                                                          : SPAR_INT64;

#define OK(call) ASSERT_EQ(call, SPAR_SUCCESS) << spar_error_text(nullptr)

class c_cuda : public testing::Test {
 protected:
  void SetUp() override {
    on_host::put = cuda_double::put;
    cuda_double::reset(1);
    cuda_double::let_peers_reach_each_other(true);
  }
  void TearDown() override {
    on_host::put = nullptr;
    EXPECT_EQ(cuda_double::device_allocations(), 0U);
    EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  }
};

/// Runs `program(comm, rank)` on each rank, and waits for all ranks before it frees the communicators.
void on_ranks(int ranks, const std::function<void(spar_comm, int)>& program) {
  std::vector<spar_comm> comms(static_cast<std::size_t>(ranks));
  OK(spar_comm_from_threads(ranks, comms.data()));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&, r] { program(comms[static_cast<std::size_t>(r)], r); });
  for (std::thread& thread : threads) thread.join();
  for (spar_comm& comm : comms) OK(spar_comm_free(&comm));
}

template <class T>
std::vector<T> values_of(int rank, int step, std::size_t n = 600) {
  std::mt19937 random(static_cast<unsigned>(rank * 100 + step));
  std::normal_distribution<double> normal(0, 100);
  std::vector<T> x(n);
  for (T& v : x) v = static_cast<T>(normal(random));
  return x;
}

/// What an allreduce leaves on each rank after two calls.
template <class T>
std::vector<std::vector<T>> reduced(int ranks, const char* algorithm, spar_op op, bool on_device) {
  std::vector<std::vector<T>> results(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](spar_comm comm, int rank) {
    auto& result = results[static_cast<std::size_t>(rank)];
    result = values_of<T>(rank, 0);
    const auto n = static_cast<std::int64_t>(result.size());
    if (on_device) {
      const stream work;
      const device_array<T> x(std::vector<T>(result.size(), 1));
      x.write(work, result); // the call must wait for it
      for (int call = 0; call < 2; ++call)
        OK(spar_device_allreduce(comm, x.data(), n, type_of<T>, op, algorithm, work));
      result = x.read(work);
    } else {
      // The device's ranks agree whether they lend memory, and the number of a call decides how QSGD rounds.
      for (int call = 0; call < 2; ++call) OK(spar_barrier(comm));
      for (int call = 0; call < 2; ++call)
        OK(spar_allreduce(comm, result.data(), result.data(), n, type_of<T>, op, algorithm));
    }
  });
  return results;
}

template <class T>
void compare(const std::vector<const char*>& algorithms) {
  for (const char* const algorithm : algorithms) {
    OK(spar_device_check(type_of<T>, SPAR_SUM, algorithm));
    for (int ranks = 1; ranks <= 4; ++ranks) {
      SCOPED_TRACE(testing::Message() << (algorithm == nullptr ? "NULL" : algorithm) << " on " << ranks << " ranks");
      const spar_op op = ranks == 3 ? SPAR_AVERAGE : SPAR_SUM;
      const auto there = reduced<T>(ranks, algorithm, op, true), here = reduced<T>(ranks, algorithm, op, false);
      for (std::size_t r = 0; r < here.size(); ++r)
        EXPECT_EQ(std::memcmp(there[r].data(), here[r].data(), here[r].size() * sizeof(T)), 0) << "rank " << r;
    }
  }
}

TEST_F(c_cuda, reduces_floats_with_the_bits_of_the_host) {
  compare<float>({nullptr, "dense", "ring", "rec_doubling", "rabenseifner", "ssar_split", "dsar_split", "allgather",
                  "sparcml+coded", "ring+bf16", "rec_doubling+half", "two_shot+qsgd:8", "one_shot+qsgd:4",
                  "ring+zfp:12", "dsar_qsgd8"});
}
TEST_F(c_cuda, reduces_selected_floats_with_the_bits_of_the_host) {
  compare<float>({"topka:0.05", "gaussiank:0.05", "topkdsa:0.05", "gtopk:0.05", "ok_topk:0.05:period=2",
                  "ok_topk:0.05+coded:fast", "select=exact_topk:0.1,store=coo+bf16,by=dsar_split",
                  "select=bucket_topk:k=5:bucket=100,by=gather_and_merge"});
}
TEST_F(c_cuda, reduces_other_types_with_the_bits_of_the_host) {
  compare<double>({nullptr, "ring", "rec_doubling+zfp:16", "ok_topk:0.05", "topka:0.05+coded:bf16:fast"});
  compare<std::int32_t>({nullptr, "ring", "rabenseifner"});
  compare<std::int64_t>({nullptr, "rec_doubling"});
}

/// What calls of error feedback leave on each rank: the sums of all steps, the residual and the saved bytes. `where`
/// says of each step whether its values are in device memory.
template <class T>
std::vector<bytes> fed_back(int ranks, const char* algorithm, const std::string& where) {
  std::vector<bytes> results(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](spar_comm comm, int rank) {
    bytes& all = results[static_cast<std::size_t>(rank)];
    const auto append = [&](const void* from, std::size_t count) {
      const auto* const first = static_cast<const std::byte*>(from);
      all.insert(all.end(), first, first + count);
    };
    spar_feedback feedback = nullptr;
    OK(spar_feedback_create(comm, type_of<T>, 32, algorithm, &feedback));
    const stream work;
    for (std::size_t step = 0; step < where.size(); ++step) {
      const spar_op op = step % 2 == 0 ? SPAR_SUM : SPAR_AVERAGE;
      auto x = values_of<T>(rank, static_cast<int>(step));
      const auto n = static_cast<std::int64_t>(x.size());
      if (where[step] == 'd') {
        const device_array<T> there(std::vector<T>(x.size(), 1));
        there.write(work, x);
        OK(spar_device_feedback_reduce(feedback, comm, there.data(), n, op, work));
        x = there.read(work);
      } else {
        OK(spar_feedback_reduce(feedback, comm, x.data(), n, op));
      }
      append(x.data(), x.size() * sizeof(T));
    }
    std::int64_t saved = 0, n = 0;
    OK(spar_feedback_saved_size(feedback, &saved));
    bytes state(static_cast<std::size_t>(saved));
    OK(spar_feedback_save(feedback, state.data(), saved));
    append(state.data(), state.size());
    const void* residual = nullptr;
    OK(spar_feedback_residual(feedback, &residual, &n));
    append(residual, static_cast<std::size_t>(n) * sizeof(T));
    OK(spar_feedback_free(&feedback));
  });
  return results;
}

template <class T>
void compare_feedback(const char* algorithm) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    SCOPED_TRACE(testing::Message() << algorithm << " on " << ranks << " ranks");
    const auto here = fed_back<T>(ranks, algorithm, "hhhhh");
    EXPECT_EQ(fed_back<T>(ranks, algorithm, "ddddd"), here);
    EXPECT_EQ(fed_back<T>(ranks, algorithm, "hddhd"), here);
  }
}

TEST_F(c_cuda, keeps_the_residual_wherever_the_values_are) {
  compare_feedback<float>("ok_topk:0.05:period=3");
  compare_feedback<float>("topka:0.05+coded:bf16:fast");
  compare_feedback<float>("select=gaussian:0.1,by=cheapest");
  compare_feedback<float>("select=exact_topk:0.2,store=coo+bf16,by=dsar_split");
  compare_feedback<double>("gtopk:0.05");
  compare_feedback<double>("topka:0.05+coded:bf16:fast");
}

TEST_F(c_cuda, restores_a_state_that_calls_on_a_device_have_made) {
  on_ranks(2, [](spar_comm comm, int rank) {
    const stream work;
    const auto step = [&](spar_feedback feedback, int number) {
      const device_array<float> x(values_of<float>(rank, number));
      EXPECT_EQ(spar_device_feedback_reduce(feedback, comm, x.data(), 600, SPAR_SUM, work), SPAR_SUCCESS);
      return x.read(work);
    };
    spar_feedback first = nullptr, second = nullptr;
    OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "ok_topk:0.05", &first));
    OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "ok_topk:0.05", &second));
    step(first, 0);
    std::int64_t size = 0;
    OK(spar_feedback_saved_size(first, &size));
    bytes saved(static_cast<std::size_t>(size));
    OK(spar_feedback_save(first, saved.data(), size));
    step(second, 5); // which the loaded state replaces
    OK(spar_feedback_load(second, saved.data(), size));
    EXPECT_EQ(step(first, 1), step(second, 1));
    OK(spar_barrier(comm));
    OK(spar_feedback_free(&first));
    OK(spar_feedback_free(&second));
  });
}

/// Whether the last error of this thread contains `part`.
testing::AssertionResult says(const std::string& part) {
  const std::string text = spar_error_text(nullptr);
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the error is '" << text << "', without '" << part << "'";
}
#define REFUSES(text, call)                                                                                            \
  EXPECT_EQ(call, SPAR_ERR_INVALID_ARGUMENT);                                                                          \
  EXPECT_TRUE(says(text))

TEST_F(c_cuda, says_what_has_no_kernels) {
  const auto refuses = [](int type, spar_op op, const char* algorithm, const char* text) {
    SCOPED_TRACE(algorithm);
    REFUSES(text, spar_device_check(type, op, algorithm));
    on_ranks(2, [&](spar_comm comm, int rank) {
      const device_array<double> x(values_of<double>(rank, 0, 10));
      REFUSES(text, spar_device_allreduce(comm, x.data(), 10, type, op, algorithm, nullptr));
      OK(spar_device_allreduce(comm, x.data(), 10, SPAR_DOUBLE, SPAR_SUM, nullptr, nullptr));
      cuda_double::finish(nullptr);
    });
  };
  refuses(SPAR_FLOAT, SPAR_MAX, "ring", "no kernels for this operation on values in device memory");
#ifdef SPAR_HAS_HALF
  refuses(SPAR_HALF, SPAR_SUM, "ring", "no kernels for values of the type SPAR_HALF");
#else
  refuses(SPAR_HALF, SPAR_SUM, "ring", "'type' is SPAR_HALF, which this library was compiled without");
#endif
  refuses(SPAR_FLOAT, SPAR_SUM, "flexreduce", "'flexreduce' has a tree");
  refuses(SPAR_FLOAT, SPAR_SUM, "nonzeros",
          "no kernels for the composition of 'nonzeros' and values of the type float");
  refuses(SPAR_FLOAT, SPAR_SUM, "topka:0.1+coded", "set .fast = true");
  refuses(SPAR_FLOAT, SPAR_SUM, "ring+mx:e4m3", "no kernels for the codec mx");
  refuses(SPAR_FLOAT, SPAR_SUM, "ring+bound:0.1", "no kernels for the composition of 'ring+bound:0.1'");
  refuses(SPAR_FLOAT, SPAR_SUM, "ok_topk:0.1+coded+pruned", "no kernels for the composition");
  refuses(SPAR_INT32, SPAR_SUM, "ring+bf16",
          "no kernels for the composition of 'ring+bf16' and values of the type int32");
  refuses(SPAR_INT32, SPAR_SUM, "topka:0.1", "no kernels for the composition");
  refuses(SPAR_FLOAT, SPAR_SUM, "ringg", "ringg");
  refuses(9, SPAR_SUM, "ring", "'type' is 9");
  refuses(SPAR_FLOAT, 99, "ring", "op");
}

TEST_F(c_cuda, refuses_bad_arguments_before_anything_is_sent) {
  on_ranks(2, [](spar_comm comm, int rank) {
    const device_array<float> x(values_of<float>(rank, 0));
    std::vector<float> here(600);
    auto* request = reinterpret_cast<spar_request>(&here); // a failed start replaces it
    spar_feedback wide = nullptr, feedback = nullptr;
    OK(spar_feedback_create(comm, SPAR_FLOAT, 64, "topka:0.1", &wide));
    OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:0.1", &feedback));
    OK(spar_device_allreduce(comm, x.data(), 600, SPAR_FLOAT, SPAR_SUM, "ring", nullptr)); // makes the rank
    if (rank == 0) {
      const auto reduce = [&](spar_comm on, void* values, std::int64_t n) {
        return spar_device_allreduce(on, values, n, SPAR_FLOAT, SPAR_SUM, "ring", nullptr);
      };
      REFUSES("'comm' is NULL", reduce(nullptr, x.data(), 600));
      REFUSES("the pointer 'values' is NULL, but 'n' is 600", reduce(comm, nullptr, 600));
      REFUSES("'n' is -1", reduce(comm, x.data(), -1));
      REFUSES("alignment", reduce(comm, reinterpret_cast<std::byte*>(x.data()) + 1, 1));
      REFUSES("the 600 values of a spar::device_span are in host memory", reduce(comm, here.data(), 600));
      REFUSES("the pointer 'request' is NULL",
              spar_start_device_allreduce(comm, x.data(), 600, SPAR_FLOAT, SPAR_SUM, "ring", nullptr, nullptr));
      REFUSES("in host memory",
              spar_start_device_allreduce(comm, here.data(), 600, SPAR_FLOAT, SPAR_SUM, "ring", nullptr, &request));
      EXPECT_EQ(request, nullptr);
      REFUSES("64-bit indices", spar_device_feedback_reduce(wide, comm, x.data(), 600, SPAR_SUM, nullptr));
      REFUSES("'op' is", spar_device_feedback_reduce(feedback, comm, x.data(), 600, SPAR_MAX, nullptr));
      REFUSES("'feedback' is NULL", spar_device_feedback_reduce(nullptr, comm, x.data(), 600, SPAR_SUM, nullptr));
      REFUSES("in host memory", spar_device_feedback_reduce(feedback, comm, here.data(), 600, SPAR_SUM, nullptr));
      REFUSES("the pointer 'request' is NULL",
              spar_start_device_feedback_reduce(feedback, comm, x.data(), 600, SPAR_SUM, nullptr, nullptr));
      OK(spar_comm_set_progress_thread(comm, 1));
      REFUSES("progress_thread", reduce(comm, x.data(), 600));
      OK(spar_comm_set_progress_thread(comm, 0));
    }
    OK(spar_device_feedback_reduce(feedback, comm, x.data(), 600, SPAR_SUM, nullptr));
    REFUSES("the vector has length 599, but the residual has length 600",
            spar_device_feedback_reduce(feedback, comm, x.data(), 599, SPAR_SUM, nullptr));
    OK(spar_device_allreduce(comm, nullptr, 0, SPAR_FLOAT, SPAR_SUM, nullptr, nullptr));
    OK(spar_barrier(comm));
    cuda_double::finish(nullptr);
    OK(spar_feedback_free(&wide));
    OK(spar_feedback_free(&feedback));
  });
}

TEST_F(c_cuda, finds_ranks_that_disagree) {
  on_ranks(2, [](spar_comm comm, int rank) {
    const device_array<float> x(values_of<float>(rank, 0));
    EXPECT_NE(spar_device_allreduce(comm, x.data(), 600 - rank, SPAR_FLOAT, SPAR_SUM, "ring", nullptr), SPAR_SUCCESS);
    EXPECT_TRUE(says("599"));
    cuda_double::finish(nullptr);
  });
}

TEST_F(c_cuda, starts_calls) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    cuda_double::reset(seed);
    on_ranks(3, [](spar_comm comm, int rank) {
      const stream work;
      const device_array<float> x(values_of<float>(rank, 0)), y(values_of<float>(rank, 1));
      std::vector<float> expected_x = values_of<float>(rank, 0), expected_y = values_of<float>(rank, 1);
      OK(spar_allreduce(comm, expected_x.data(), expected_x.data(), 600, SPAR_FLOAT, SPAR_SUM, "ring"));
      spar_feedback on_host = nullptr, feedback = nullptr;
      OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:0.1", &on_host));
      OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:0.1", &feedback));
      OK(spar_feedback_reduce(on_host, comm, expected_y.data(), 600, SPAR_SUM));
      spar_request a = nullptr, b = nullptr, again = nullptr;
      OK(spar_start_device_allreduce(comm, x.data(), 600, SPAR_FLOAT, SPAR_SUM, "ring", work, &a));
      OK(spar_start_device_feedback_reduce(feedback, comm, y.data(), 600, SPAR_SUM, work, &b));
      REFUSES("has not ended",
              spar_start_device_feedback_reduce(feedback, comm, y.data(), 600, SPAR_SUM, work, &again));
      REFUSES("has not ended", spar_feedback_reduce(feedback, comm, expected_y.data(), 600, SPAR_SUM));
      EXPECT_EQ(again, nullptr);
      int done = 0;
      while (done == 0) OK(spar_test(b, &done));
      OK(spar_wait_for(a, 10, &done));
      EXPECT_EQ(done, 1);
      OK(spar_wait(&a));
      OK(spar_wait(&b));
      EXPECT_EQ(x.read(work), expected_x);
      EXPECT_EQ(y.read(work), expected_y);
      OK(spar_start_device_feedback_reduce(feedback, comm, y.data(), 600, SPAR_SUM, work, &b));
      OK(spar_feedback_free(&feedback)); // the request keeps its object
      OK(spar_request_free(&b));         // waits
      OK(spar_barrier(comm));
      OK(spar_feedback_free(&on_host));
    });
  }
}

TEST_F(c_cuda, ends_cancelled_calls) {
  on_ranks(2, [](spar_comm comm, int rank) {
    const device_array<float> x(values_of<float>(rank, 0));
    spar_request call = nullptr;
    OK(spar_start_device_allreduce(comm, x.data(), 600, SPAR_FLOAT, SPAR_SUM, "topka:0.1", nullptr, &call));
    if (rank == 0) {
      OK(spar_cancel(call));
    }
    EXPECT_EQ(spar_wait(&call), SPAR_ERR_PEER_FAILED);
    EXPECT_TRUE(says("cancelled"));
    cuda_double::finish(nullptr);
  });
}

TEST_F(c_cuda, keeps_one_rank_for_each_device) {
  on_ranks(1, [](spar_comm comm, int rank) {
    for (const int device : {0, 1, 0}) {
      cuda_double::set_device(device);
      const device_array<float> x(values_of<float>(rank, 0));
      OK(spar_device_allreduce(comm, x.data(), 600, SPAR_FLOAT, SPAR_SUM, "ring", nullptr));
      cuda_double::finish(nullptr);
    }
    spar_feedback feedback = nullptr;
    OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:k=1", &feedback));
    const device_array<float> first({1, 2}); // on device 0
    spar_request call = nullptr;
    OK(spar_start_device_allreduce(comm, first.data(), 2, SPAR_FLOAT, SPAR_SUM, "ring", nullptr, &call));
    cuda_double::set_device(1);
    int done = 0;
    OK(spar_wait_for(call, 1, &done)); // with any current device
    EXPECT_EQ(done, 1);
    OK(spar_wait(&call));
    float sum = 0;
    for (const int device : {0, 1}) { // with the residual
      cuda_double::set_device(device);
      const device_array<float> x({1, 2, 3});
      OK(spar_device_feedback_reduce(feedback, comm, x.data(), 3, SPAR_SUM, nullptr));
      for (const float v : x.read(nullptr)) sum += v;
    }
    EXPECT_EQ(sum, 3 + 4);
    OK(spar_feedback_free(&feedback));
    cuda_double::set_device(0);
  });
}

/// Whether a call, of which rank 0 may have met an error of CUDA, has failed on both ranks.
bool have_failed(int status_of_0, int status_of_1) {
  const bool failed = status_of_0 != SPAR_SUCCESS;
  EXPECT_TRUE(!failed || status_of_0 == SPAR_ERR_TRANSPORT) << status_of_0;
  EXPECT_EQ(status_of_1, failed ? SPAR_ERR_PEER_FAILED : SPAR_SUCCESS);
  return failed;
}

/// Another call of CUDA fails on rank 0 each time, until none is left.
TEST_F(c_cuda, ends_on_all_ranks_if_cuda_fails) {
  int failures = 0;
  for (std::uint64_t at = 1, reached = 1; reached != 0; at += 1 + at / 10) {
    SCOPED_TRACE(testing::Message() << "call " << at);
    cuda_double::reset(at);
    std::atomic<int> status[2] = {};
    std::atomic<std::uint64_t> calls = 0;
    on_ranks(2, [&](spar_comm comm, int rank) {
      const device_array<float> x(values_of<float>(rank, 0));
      spar_feedback feedback = nullptr;
      OK(spar_comm_set_deadline(comm, 20));
      OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:0.1", &feedback));
      const std::uint64_t before = cuda_double::calls();
      if (rank == 0) cuda_double::fail_at(at);
      int its = spar_device_allreduce(comm, x.data(), 600, SPAR_FLOAT, SPAR_SUM, "ring+half", nullptr);
      if (its == SPAR_SUCCESS) its = spar_device_feedback_reduce(feedback, comm, x.data(), 600, SPAR_SUM, nullptr);
      if (rank == 0) calls = cuda_double::calls() - before;
      if (rank == 0) cuda_double::fail_at(1U << 30);
      if (its == SPAR_SUCCESS) its = spar_barrier(comm); // a late failure
      if (its == SPAR_ERR_TRANSPORT) {
        EXPECT_TRUE(says("a planned error"));
      }
      status[rank] = its;
      cuda_double::finish(nullptr);
      static_cast<void>(spar_feedback_free(&feedback));
    });
    reached = calls >= at ? 1 : 0;
    failures += have_failed(status[0], status[1]) ? 1 : 0;
  }
  EXPECT_GE(failures, 20);
}

/// Each call of CUDA fails on rank 0 by which a residual moves to host memory.
TEST_F(c_cuda, ends_on_all_ranks_if_a_residual_cannot_move) {
  int failures = 0;
  for (std::uint64_t at = 1, reached = 1; reached != 0; ++at) {
    SCOPED_TRACE(testing::Message() << "call " << at);
    std::atomic<int> status[2] = {};
    std::atomic<int> ended = 0;
    std::atomic<std::uint64_t> calls = 0;
    on_ranks(2, [&](spar_comm comm, int rank) {
      const device_array<float> x(values_of<float>(rank, 0));
      std::vector<float> here(600);
      spar_feedback feedback = nullptr;
      OK(spar_comm_set_deadline(comm, 5));
      OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:0.1", &feedback));
      OK(spar_device_feedback_reduce(feedback, comm, x.data(), 600, SPAR_SUM, nullptr));
      OK(spar_barrier(comm));
      const std::uint64_t before = cuda_double::calls();
      if (rank == 0) cuda_double::fail_at(at);
      status[rank] = spar_feedback_reduce(feedback, comm, here.data(), 600, SPAR_SUM);
      if (rank == 0) calls = cuda_double::calls() - before;
      if (rank == 0) cuda_double::fail_at(1U << 30);
      for (++ended; ended < 2;) std::this_thread::yield(); // that a rank leaves would end the other's call, too
      cuda_double::finish(nullptr);
      static_cast<void>(spar_feedback_free(&feedback));
    });
    reached = calls >= at ? 1 : 0;
    failures += have_failed(status[0], status[1]) ? 1 : 0;
  }
  EXPECT_GE(failures, 1);
}

} // namespace
