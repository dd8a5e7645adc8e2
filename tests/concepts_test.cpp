// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each concept accepts an archetype, which has just what it asks for, and rejects models with exactly one defect.
#include <spar/spar.hpp>
#include <spar/transport/faulty.hpp>
#include <spar/transport/tracing.hpp>

#include <gtest/gtest.h>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace {

/// What a model lacks or does differently; each model has at most one.
enum class defect {
  none,
  no_rank,
  rank_of_another_type,
  no_size,
  no_send,
  send_not_awaitable,
  send_with_a_result,
  no_receive,
  receive_with_a_result,
  no_post,
  no_await,
  no_progress,
  no_time,
  time_of_another_type,
  no_compute,
  no_node,
  no_scheduler,
  scheduler_by_value,
  no_memory,
  memory_of_another_type
};

// --- awaitable ---

template <class Result, bool Ready = true, bool Suspend = true, bool Resume = true>
struct awaiter {
  bool await_ready()
    requires(Ready);
  void await_suspend(std::coroutine_handle<>)
    requires(Suspend);
  Result await_resume()
    requires(Resume);
};

static_assert(spar::awaitable<awaiter<void>, void>);
static_assert(spar::awaitable<awaiter<int>, int>);
static_assert(!spar::awaitable<awaiter<int>, void>);
static_assert(!spar::awaitable<awaiter<void, false>, void>);
static_assert(!spar::awaitable<awaiter<void, true, false>, void>);
static_assert(!spar::awaitable<awaiter<void, true, true, false>, void>);
static_assert(!spar::awaitable<int, void>);

// --- transport ---

template <defect Is>
struct network {
  spar::rank_t rank() const
    requires(Is != defect::no_rank && Is != defect::rank_of_another_type);
  std::size_t rank() const
    requires(Is == defect::rank_of_another_type);
  spar::rank_t size() const
    requires(Is != defect::no_size);
  awaiter<void> send(const spar::message_pieces&, spar::rank_t, spar::tag_t)
    requires(Is != defect::no_send && Is != defect::send_not_awaitable && Is != defect::send_with_a_result);
  void send(const spar::message_pieces&, spar::rank_t, spar::tag_t)
    requires(Is == defect::send_not_awaitable);
  awaiter<int> send(const spar::message_pieces&, spar::rank_t, spar::tag_t)
    requires(Is == defect::send_with_a_result);
  awaiter<void> receive(spar::message_buffer&, spar::rank_t, spar::tag_t)
    requires(Is != defect::no_receive && Is != defect::receive_with_a_result);
  awaiter<std::size_t> receive(spar::message_buffer&, spar::rank_t, spar::tag_t)
    requires(Is == defect::receive_with_a_result);
  void post(const spar::control_message&, spar::rank_t)
    requires(Is != defect::no_post);
  void await(spar::detail::operation_record&, std::coroutine_handle<>)
    requires(Is != defect::no_await);
  void progress(bool)
    requires(Is != defect::no_progress);
  double now()
    requires(Is != defect::no_time && Is != defect::time_of_another_type);
  std::uint64_t now()
    requires(Is == defect::time_of_another_type);
  void compute(std::uint64_t)
    requires(Is != defect::no_compute);
  spar::endpoint& node()
    requires(Is != defect::no_node);
  spar::scheduler& scheduler()
    requires(Is != defect::no_scheduler && Is != defect::scheduler_by_value);
  spar::scheduler* scheduler()
    requires(Is == defect::scheduler_by_value);
  spar::pool& memory()
    requires(Is != defect::no_memory && Is != defect::memory_of_another_type);
  std::pmr::memory_resource& memory()
    requires(Is == defect::memory_of_another_type);
};

static_assert(spar::transport<network<defect::none>>);
static_assert(spar::transport<spar::threads>);
static_assert(spar::transport<spar::sim>);
static_assert(spar::transport<spar::counting<spar::threads>>);
static_assert(spar::transport<spar::counting<spar::counting<spar::sim>>>);
static_assert(spar::transport<spar::faulty<spar::threads>> && spar::transport<spar::faulty<spar::sim>>);
static_assert(spar::transport<spar::tracing<spar::threads>> && spar::transport<spar::tracing<spar::sim>>);
static_assert(spar::transport<spar::tracing<spar::counting<spar::faulty<spar::sim>>>>);
static_assert(spar::transport<spar::counting<spar::faulty<spar::counting<spar::threads>>>>);

template <defect... Are>
constexpr bool none_is_a_transport = (!spar::transport<network<Are>> && ...);
static_assert(none_is_a_transport<defect::no_rank, defect::rank_of_another_type, defect::no_size, defect::no_send,
                                  defect::send_not_awaitable, defect::send_with_a_result, defect::no_receive,
                                  defect::receive_with_a_result, defect::no_post, defect::no_await, defect::no_progress,
                                  defect::no_time, defect::time_of_another_type, defect::no_compute, defect::no_node,
                                  defect::no_scheduler, defect::scheduler_by_value, defect::no_memory,
                                  defect::memory_of_another_type>);
static_assert(!spar::transport<int>); // a bare communicator of MPI

// --- element and index ---

struct complex_number {
  float real, imaginary;
};
struct without_code {
  float x;
};
struct with_pointer {
  std::shared_ptr<int> p;
};

} // namespace

template <>
inline constexpr spar::element_code spar::code_of<complex_number> = spar::element_code{64};
template <>
inline constexpr spar::element_code spar::code_of<with_pointer> = spar::element_code{65};

namespace {

static_assert(spar::element<float> && spar::element<double> && spar::element<std::int32_t> &&
              spar::element<std::int64_t> && spar::element<std::uint32_t> && spar::element<std::uint64_t>);
static_assert(spar::element<complex_number>, "a user's own type with a code");
static_assert(!spar::element<without_code>);
static_assert(spar::code_of<with_pointer> != spar::element_code{} && !spar::element<with_pointer>,
              "its bytes are not its value");
static_assert(!spar::element<std::string>);
static_assert(!spar::element<long double>);
static_assert(!spar::element<bool> && !spar::element<char>);

static_assert(spar::index_type<std::uint32_t> && spar::index_type<std::uint64_t>);
static_assert(!spar::index_type<int> && !spar::index_type<std::int64_t> && !spar::index_type<std::uint16_t> &&
              !spar::index_type<float>);

static_assert(spar::memory_space<spar::host> && spar::memory_space<spar::cuda> && !spar::memory_space<int>);

// --- reduction ---

enum class flaw { none, no_name, no_neutral, neutral_of_another_type, no_call, result_of_another_type, not_copyable };

template <flaw Is>
struct named_if {
  static constexpr std::string_view name = "model";
};
template <>
struct named_if<flaw::no_name> {};

template <flaw Is>
struct not_copied_if {};
template <>
struct not_copied_if<flaw::not_copyable> {
  std::unique_ptr<int> state;
};

template <flaw Is>
struct operation : named_if<Is>, not_copied_if<Is> {
  template <class T>
  T operator()(T, T) const
    requires(Is != flaw::no_call && Is != flaw::result_of_another_type);
  template <class T>
  double operator()(T, T) const
    requires(Is == flaw::result_of_another_type);
  template <class T>
  T neutral() const
    requires(Is != flaw::no_neutral && Is != flaw::neutral_of_another_type);
  template <class T>
  int neutral() const
    requires(Is == flaw::neutral_of_another_type);
};

static_assert(spar::reduction<operation<flaw::none>, float>);
static_assert(!spar::reduction<operation<flaw::no_name>, float>);
static_assert(!spar::reduction<operation<flaw::no_neutral>, float>);
static_assert(!spar::reduction<operation<flaw::neutral_of_another_type>, float>);
static_assert(!spar::reduction<operation<flaw::no_call>, float>);
static_assert(!spar::reduction<operation<flaw::result_of_another_type>, float>);
static_assert(!spar::reduction<operation<flaw::not_copyable>, float>);
static_assert(!spar::reduction<std::plus<>, float>, "no neutral element");
static_assert(spar::reduction<spar::sum, std::int32_t> && spar::reduction<spar::product, float> &&
              spar::reduction<spar::minimum, double> && spar::reduction<spar::maximum, std::uint64_t> &&
              spar::reduction<spar::average, std::int64_t>);

// --- block_codec ---

enum class gap {
  none,
  no_name,
  no_size,
  size_of_another_type,
  no_encode,
  encode_without_position,
  no_decode,
  decode_from_values,
  not_copyable
};

template <gap Is>
struct titled_if {
  static constexpr std::string_view name = "model";
};
template <>
struct titled_if<gap::no_name> {};
template <gap Is>
struct owned_if {};
template <>
struct owned_if<gap::not_copyable> {
  std::unique_ptr<int> state;
};

template <gap Is>
struct codec : titled_if<Is>, owned_if<Is> {
  template <class T>
  std::size_t encoded_bytes(std::size_t) const
    requires(Is != gap::no_size && Is != gap::size_of_another_type);
  template <class T>
  int encoded_bytes(std::size_t) const
    requires(Is == gap::size_of_another_type);
  template <class T>
  void encode(std::span<const T>, std::span<std::byte>, spar::block_position) const
    requires(Is != gap::no_encode && Is != gap::encode_without_position);
  template <class T>
  void encode(std::span<const T>, std::span<std::byte>) const
    requires(Is == gap::encode_without_position);
  template <class T>
  void decode(std::span<const std::byte>, std::span<T>) const
    requires(Is != gap::no_decode && Is != gap::decode_from_values);
  template <class T>
  void decode(std::span<const T>, std::span<T>) const
    requires(Is == gap::decode_from_values);
};

static_assert(spar::block_codec<codec<gap::none>, float>);
static_assert(!spar::block_codec<codec<gap::no_name>, float>);
static_assert(!spar::block_codec<codec<gap::no_size>, float>);
static_assert(!spar::block_codec<codec<gap::size_of_another_type>, float>);
static_assert(!spar::block_codec<codec<gap::no_encode>, float>);
static_assert(!spar::block_codec<codec<gap::encode_without_position>, float>);
static_assert(!spar::block_codec<codec<gap::no_decode>, float>);
static_assert(!spar::block_codec<codec<gap::decode_from_values>, float>);
static_assert(!spar::block_codec<codec<gap::not_copyable>, float>);
static_assert(spar::block_codec<spar::storage::qsgd<4>, float> && spar::block_codec<spar::storage::qsgd<8>, double>);
static_assert(!spar::block_codec<spar::storage::qsgd<4>, std::int32_t>, "levels of integers would not be integers");
static_assert(spar::block_codec<spar::storage::dense, std::int32_t> && !spar::block_codec<spar::storage::coo, float>);

// --- stream_allreduce and dense_allreduce ---

enum class lack { none, no_name, not_const, task_of_another_type, no_task, whole_vector_only };

template <lack Is>
struct algorithm_name_if {
  static constexpr std::string_view name = "model";
};
template <>
struct algorithm_name_if<lack::no_name> {};

template <lack Is>
struct stream_algorithm : algorithm_name_if<Is> {
  using stream = spar::stream<float>;
  using view = spar::stream_view<float>;
  template <class Net, class Op>
  spar::task<stream> operator()(spar::channel<Net>, view, Op) const&
    requires(Is == lack::none || Is == lack::no_name);
  template <class Net, class Op>
      spar::task<stream> operator()(spar::channel<Net>, view, Op) & requires(Is == lack::not_const);
  template <class Net, class Op>
  spar::task<void> operator()(spar::channel<Net>, view, Op) const&
    requires(Is == lack::task_of_another_type);
  template <class Net, class Op>
  stream operator()(spar::channel<Net>, view, Op) const&
    requires(Is == lack::no_task);
  template <class Net, class Op>
  spar::task<void> operator()(spar::channel<Net>, std::span<float>, Op) const&
    requires(Is == lack::whole_vector_only);
};

template <class Algorithm>
constexpr bool reduces_streams = spar::stream_allreduce<Algorithm, spar::threads, float, std::uint32_t, spar::sum> &&
                                 spar::stream_allreduce<Algorithm, spar::sim, float, std::uint32_t, spar::maximum>;

static_assert(reduces_streams<stream_algorithm<lack::none>>);
static_assert(!reduces_streams<stream_algorithm<lack::no_name>>);
static_assert(!reduces_streams<stream_algorithm<lack::not_const>>);
static_assert(!reduces_streams<stream_algorithm<lack::task_of_another_type>>);
static_assert(!reduces_streams<stream_algorithm<lack::no_task>>);
static_assert(!reduces_streams<stream_algorithm<lack::whole_vector_only>>);
static_assert(reduces_streams<spar::recursive_doubling> && reduces_streams<spar::ring> &&
              reduces_streams<spar::rabenseifner> && reduces_streams<spar::ssar_split> &&
              reduces_streams<spar::dsar_split> && reduces_streams<spar::sparcml> &&
              reduces_streams<spar::with_storage<spar::dsar_split, spar::storage::qsgd<2>>>);
static_assert(!reduces_streams<spar::dense>, "dense spans only");
static_assert(!spar::stream_allreduce<spar::with_storage<spar::dsar_split, spar::storage::qsgd<4>>, spar::threads,
                                      std::int32_t, std::uint32_t, spar::sum>,
              "integers cannot be quantised");

template <lack Is>
struct dense_algorithm : algorithm_name_if<Is> {
  template <class Net, class Op>
  spar::task<void> operator()(spar::channel<Net>, std::span<float>, Op) const&
    requires(Is == lack::none || Is == lack::no_name);
  template <class Net, class Op>
      spar::task<void> operator()(spar::channel<Net>, std::span<float>, Op) & requires(Is == lack::not_const);
  template <class Net, class Op>
  spar::task<int> operator()(spar::channel<Net>, std::span<float>, Op) const&
    requires(Is == lack::task_of_another_type);
  template <class Net, class Op>
  void operator()(spar::channel<Net>, std::span<float>, Op) const&
    requires(Is == lack::no_task);
};

template <class Algorithm>
constexpr bool reduces_vectors = spar::dense_allreduce<Algorithm, spar::threads, float, spar::sum>;

static_assert(reduces_vectors<dense_algorithm<lack::none>>);
static_assert(!reduces_vectors<dense_algorithm<lack::no_name>>);
static_assert(!reduces_vectors<dense_algorithm<lack::not_const>>);
static_assert(!reduces_vectors<dense_algorithm<lack::task_of_another_type>>);
static_assert(!reduces_vectors<dense_algorithm<lack::no_task>>);
static_assert(reduces_vectors<spar::recursive_doubling> && reduces_vectors<spar::ring> &&
              reduces_vectors<spar::rabenseifner> && reduces_vectors<spar::dense>);
static_assert(!reduces_vectors<spar::sparcml> && !reduces_vectors<spar::ssar_split>);

// --- selects ---

enum class want { none, no_name, no_call, another_stream, not_copyable, reads_only };

template <want Is>
struct entitled_if {
  static constexpr std::string_view name = "model";
};
template <>
struct entitled_if<want::no_name> {};
template <want Is>
struct copied_if {};
template <>
struct copied_if<want::not_copyable> {
  std::unique_ptr<int> state;
};

template <want Is, bool Stateful = false>
struct model_selector : entitled_if<Is>, copied_if<Is> {
  template <class Index>
  spar::stream<float, Index> operator()(std::span<float>, spar::pool&) const
    requires(!Stateful && Is != want::no_call && Is != want::another_stream && Is != want::reads_only);
  template <class Index>
  spar::stream<float, Index> operator()(std::span<float>, spar::pool&)
    requires(Stateful);
  template <class Index>
  spar::stream<double, Index> operator()(std::span<float>, spar::pool&) const
    requires(Is == want::another_stream);
  template <class Index>
  void operator()(std::span<const float>, spar::pool&) const
    requires(Is == want::reads_only);
};

static_assert(spar::selects<model_selector<want::none>, float, std::uint32_t>);
static_assert(spar::selects<const model_selector<want::none>, float, std::uint64_t>);
static_assert(spar::selects<model_selector<want::none, true>, float, std::uint32_t>);
static_assert(!spar::selects<const model_selector<want::none, true>, float, std::uint32_t>, "it has a state");
static_assert(!spar::selects<model_selector<want::none>, double, std::uint32_t>, "it selects floats");
static_assert(!spar::selects<model_selector<want::none>, float, int>);
static_assert(!spar::selects<model_selector<want::no_name>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::no_call>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::another_stream>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::not_copyable>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::reads_only>, float, std::uint32_t>);

static_assert(spar::kernel::ranked<float> && spar::kernel::ranked<std::uint64_t>);
static_assert(!spar::kernel::ranked<complex_number>, "which of two is larger is not known");
static_assert(spar::selects<spar::selector::all, complex_number, std::uint32_t> &&
              !spar::selects<spar::selector::exact_topk, complex_number, std::uint32_t>);

// --- what is not a concept but a rule ---

template <class Algorithm>
concept runs_on_a_temporary =
    requires(spar::channel<spar::threads> net, spar::stream_view<float> v) { Algorithm{}(net, v, spar::sum{}); };
static_assert(!runs_on_a_temporary<spar::recursive_doubling> && !runs_on_a_temporary<spar::ring> &&
              !runs_on_a_temporary<spar::rabenseifner> && !runs_on_a_temporary<spar::ssar_split> &&
              !runs_on_a_temporary<spar::sparcml>);

static_assert(!std::is_copy_constructible_v<spar::task<int>> && std::is_nothrow_move_constructible_v<spar::task<int>>);
static_assert(!std::is_copy_constructible_v<spar::stream<float>> && std::is_move_assignable_v<spar::stream<float>>);
static_assert(std::is_trivially_copyable_v<spar::stream_view<float>>);
using pending_sum = spar::pending<spar::threads, spar::stream<float>>;
static_assert(!std::is_copy_constructible_v<pending_sum> && std::is_nothrow_move_constructible_v<pending_sum>);

TEST(concepts, own_elements_travel) {
  // A type with a code of its own can be gathered and broadcast like any other.
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    complex_number x[2] = {};
    if (net.rank() == 1) {
      x[0] = {1, 2};
      x[1] = {3, 4};
    }
    spar::broadcast(net, std::span<complex_number>(x), 1);
    EXPECT_EQ(x[1].real, 3.0F);
    EXPECT_EQ(x[0].imaginary, 2.0F);
  });
}

} // namespace
