// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each concept accepts an archetype, which has only what the concept requires, and rejects models with exactly one
// defect.
#include "support/compositions.hpp"

#include <spar/sim.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/counting.hpp>
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

using spar_test::stored, spar_test::quantised_split;

/// The defects of the models; each model has at most one.
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
  void await(spar::operation_record&, std::coroutine_handle<>)
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
static_assert(spar::transport<spar::threads_port> && spar::transport<spar::sim_port>);
static_assert(spar::communicates<spar::threads_port> && !spar::communicates<int>);

// A rank of a communicator offers the interface for programs; what collectives need of the network is behind `port`.
template <class Net>
concept shows_its_transport = requires(Net& net) { &Net::send; } || requires(Net& net) { &Net::receive; } ||
                              requires(Net& net) { net.node(); } || requires(Net& net) { net.scheduler(); };
static_assert(shows_its_transport<spar::threads_port>);
static_assert(!shows_its_transport<spar::threads> && !shows_its_transport<spar::sim> &&
              !shows_its_transport<spar::counting<spar::threads>>);
static_assert(spar::communicates<spar::threads>);
static_assert(spar::communicates<spar::sim>);
static_assert(spar::communicates<spar::counting<spar::threads>>);
static_assert(spar::communicates<spar::counting<spar::counting<spar::sim>>>);
static_assert(spar::communicates<spar::faulty<spar::threads>> && spar::communicates<spar::faulty<spar::sim>>);
static_assert(spar::communicates<spar::tracing<spar::threads>> && spar::communicates<spar::tracing<spar::sim>>);
static_assert(spar::communicates<spar::tracing<spar::counting<spar::faulty<spar::sim>>>>);
static_assert(spar::communicates<spar::counting<spar::faulty<spar::counting<spar::threads>>>>);

template <defect... Are>
constexpr bool none_is_a_transport = (!spar::transport<network<Are>> && ...);
static_assert(none_is_a_transport<defect::no_rank, defect::rank_of_another_type, defect::no_size, defect::no_send,
                                  defect::send_not_awaitable, defect::send_with_a_result, defect::no_receive,
                                  defect::receive_with_a_result, defect::no_post, defect::no_await, defect::no_progress,
                                  defect::no_time, defect::time_of_another_type, defect::no_compute, defect::no_node,
                                  defect::no_scheduler, defect::scheduler_by_value, defect::no_memory,
                                  defect::memory_of_another_type>);
static_assert(!spar::transport<int>); // MPI_Comm is an int in MPICH

// What only some transports have, and which decorators pass it on.
using bare = network<defect::none>;
template <class Net>
using counted = spar::counting_port<Net>;
template <class Net>
using reads_payloads = spar::faulty_port<Net>;
static_assert(!spar::shared_transport<bare> && !spar::device_transport<bare> && !spar::simulated_transport<bare>);
static_assert(spar::sleeping_transport<counted<spar::threads_port>>);
static_assert(!spar::shared_transport<counted<spar::sim_port>>);
static_assert(!spar::shared_transport<reads_payloads<spar::threads_port>>, "it would sleep past the end of a delay");
static_assert(spar::shared_transport<spar::any_port> && spar::sleeping_transport<spar::any_port>);
static_assert(spar::simulated_transport<counted<reads_payloads<spar::sim_port>>>);
static_assert(!spar::simulated_transport<counted<spar::threads_port>>);
static_assert(spar::device_transport<counted<spar::threads_port>> && spar::device_transport<counted<spar::any_port>>);
static_assert(!spar::device_transport<counted<reads_payloads<spar::threads_port>>>);
static_assert(!spar::device_bound_transport<counted<spar::threads_port>>);

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
static_assert(spar::element<complex_number>, "a user's type with an element code");
static_assert(!spar::element<without_code>);
static_assert(spar::code_of<with_pointer> != spar::element_code{} && !spar::element<with_pointer>,
              "a type with a pointer cannot be sent as its bytes");
static_assert(!spar::element<std::string>);
static_assert(!spar::element<long double>);
static_assert(!spar::element<bool> && !spar::element<char> && !spar::element<wchar_t> && !spar::element<short>);

// Two of the standard integers are of the same size, and of the same code.
template <class T>
constexpr bool has_code_of_its_size =
    spar::code_of<T> == (sizeof(T) == 4
                             ? spar::code_of<std::conditional_t<std::signed_integral<T>, std::int32_t, std::uint32_t>>
                             : spar::code_of<std::conditional_t<std::signed_integral<T>, std::int64_t, std::uint64_t>>);
template <class... T>
constexpr bool all_have_codes_of_their_sizes = ((spar::element<T> && has_code_of_its_size<T>) && ...);
static_assert(all_have_codes_of_their_sizes<int, long, long long, unsigned, unsigned long, unsigned long long>);

static_assert(spar::index_type<std::uint32_t> && spar::index_type<std::uint64_t>);
static_assert(spar::index_type<unsigned long> && spar::index_type<unsigned long long>);
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
  not_copyable,
  no_options,
  options_not_const
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
  template <class F>
  void options(F&&) const
    requires(Is != gap::no_options && Is != gap::options_not_const);
  template <class F>
  void options(F&&)
    requires(Is == gap::options_not_const);
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
static_assert(!spar::block_codec<codec<gap::no_options>, float>);
static_assert(!spar::block_codec<codec<gap::options_not_const>, float>);
static_assert(spar::block_codec<spar::storage::qsgd<4>, float> && spar::block_codec<spar::storage::qsgd<8>, double>);
static_assert(!spar::block_codec<spar::storage::qsgd<4>, std::int32_t>, "levels of integers would not be integers");
static_assert(spar::block_codec<spar::storage::dense, std::int32_t> && !spar::block_codec<spar::storage::coo, float>);

// --- stream_codec ---

template <bool There>
struct name_if {
  static constexpr std::string_view name = "model";
};
template <>
struct name_if<false> {};
template <bool There, spar::slot Which>
struct slot_if {
  static constexpr spar::slot fills = Which;
};
template <spar::slot Which>
struct slot_if<false, Which> {};
template <bool Is>
struct copyable_if {};
template <>
struct copyable_if<false> {
  std::unique_ptr<int> owned;
};

enum class fault {
  none,
  no_name,
  no_slot,
  no_exact,
  no_entry_bits,
  entry_bits_of_another_type,
  no_delta,
  delta_of_another_type,
  no_bound,
  bound_of_another_type,
  no_encode,
  encode_without_size,
  encode_not_const,
  encode_without_range,
  no_decode,
  decode_with_result,
  no_options,
  options_not_const,
  not_copyable
};

template <fault Is>
struct exact_if {
  static constexpr bool exact = true;
};
template <>
struct exact_if<fault::no_exact> {};

template <fault Is>
struct entry_codec : name_if<Is != fault::no_name>,
                     slot_if<Is != fault::no_slot, spar::slot::storage>,
                     exact_if<Is>,
                     copyable_if<Is != fault::not_copyable> {
  template <class T, class Index>
  double entry_bits(std::uint64_t, std::uint64_t) const
    requires(Is != fault::no_entry_bits && Is != fault::entry_bits_of_another_type);
  template <class T, class Index>
  float entry_bits(std::uint64_t, std::uint64_t) const
    requires(Is == fault::entry_bits_of_another_type);
  template <class T, class Index>
  std::uint64_t delta(std::uint64_t) const
    requires(Is != fault::no_delta && Is != fault::delta_of_another_type);
  template <class T, class Index>
  double delta(std::uint64_t) const
    requires(Is == fault::delta_of_another_type);
  template <class T, class Index>
  std::size_t bound(spar::index_range, std::size_t) const
    requires(Is != fault::no_bound && Is != fault::bound_of_another_type);
  template <class T, class Index>
  int bound(spar::index_range, std::size_t) const
    requires(Is == fault::bound_of_another_type);
  template <class T, class Index>
  std::size_t encode(spar::coo_span<T, Index>, spar::index_range, std::span<std::byte>) const
    requires(Is != fault::no_encode && Is != fault::encode_without_size && Is != fault::encode_not_const &&
             Is != fault::encode_without_range);
  template <class T, class Index>
  void encode(spar::coo_span<T, Index>, spar::index_range, std::span<std::byte>) const
    requires(Is == fault::encode_without_size);
  template <class T, class Index>
  std::size_t encode(spar::coo_span<T, Index>, spar::index_range, std::span<std::byte>)
    requires(Is == fault::encode_not_const);
  template <class T, class Index>
  std::size_t encode(spar::coo_span<T, Index>, std::span<std::byte>) const
    requires(Is == fault::encode_without_range);
  template <class T, class Index>
  void decode(std::span<const std::byte>, spar::index_range, spar::entry_room<T, Index>) const
    requires(Is != fault::no_decode && Is != fault::decode_with_result);
  template <class T, class Index>
  std::size_t decode(std::span<const std::byte>, spar::index_range, spar::entry_room<T, Index>) const
    requires(Is == fault::decode_with_result);
  template <class F>
  void options(F&&) const
    requires(Is != fault::no_options && Is != fault::options_not_const);
  template <class F>
  void options(F&&)
    requires(Is == fault::options_not_const);
};

static_assert(spar::stream_codec<entry_codec<fault::none>, float, std::uint32_t> &&
              spar::stream_codec<entry_codec<fault::none>, double, std::uint64_t>);
template <fault... Are>
constexpr bool none_is_a_stream_codec = (!spar::stream_codec<entry_codec<Are>, float, std::uint32_t> && ...);
static_assert(
    none_is_a_stream_codec<
        fault::no_name, fault::no_slot, fault::no_exact, fault::no_entry_bits, fault::entry_bits_of_another_type,
        fault::no_delta, fault::delta_of_another_type, fault::no_bound, fault::bound_of_another_type, fault::no_encode,
        fault::encode_without_size, fault::encode_not_const, fault::encode_without_range, fault::no_decode,
        fault::decode_with_result, fault::no_options, fault::options_not_const, fault::not_copyable>);
static_assert(spar::stream_codec<spar::storage::coo, std::int32_t, std::uint64_t> &&
              !spar::stream_codec<spar::storage::dense, float, std::uint32_t>);
static_assert(spar::lending_codec<spar::storage::coo, float, std::uint32_t> &&
              !spar::lending_codec<entry_codec<fault::none>, float, std::uint32_t>);

// --- part_for ---

enum class slip { none, no_slot, slot_of_another_type, no_name, name_of_another_type, not_copyable, no_options };

template <bool Has>
struct options_if {
  void options(auto&&) const {}
};
template <>
struct options_if<false> {};

template <slip Is>
struct slotted_if : slot_if<Is != slip::no_slot, spar::slot::topology> {};
template <>
struct slotted_if<slip::slot_of_another_type> {
  static constexpr int fills = 2;
};
template <slip Is>
struct labelled_if : name_if<Is != slip::no_name> {};
template <>
struct labelled_if<slip::name_of_another_type> {
  static constexpr int name = 2;
};
template <slip Is>
struct model_part : slotted_if<Is>,
                    labelled_if<Is>,
                    copyable_if<Is != slip::not_copyable>,
                    options_if<Is != slip::no_options> {};

static_assert(spar::part_for<model_part<slip::none>, spar::slot::topology>);
static_assert(!spar::part_for<model_part<slip::none>, spar::slot::schedule>, "the part fills another slot");
static_assert(!spar::part_for<model_part<slip::no_slot>, spar::slot::topology>);
static_assert(!spar::part_for<model_part<slip::slot_of_another_type>, spar::slot::topology>);
static_assert(!spar::part_for<model_part<slip::no_name>, spar::slot::topology>);
static_assert(!spar::part_for<model_part<slip::name_of_another_type>, spar::slot::topology>);
static_assert(!spar::part_for<model_part<slip::not_copyable>, spar::slot::topology>);
static_assert(!spar::part_for<model_part<slip::no_options>, spar::slot::topology>,
              "ranks could not compare its options");
static_assert(spar::part_for<spar::everything, spar::slot::selector> &&
              spar::part_for<spar::storage::coo, spar::slot::storage> &&
              spar::part_for<spar::storage::as_half, spar::slot::storage> &&
              spar::part_for<spar::flat, spar::slot::topology> && spar::part_for<spar::ring, spar::slot::schedule>);
static_assert(!spar::part<spar::sparcml>, "a composition is not a part of another composition");

// --- policy and checked ---

enum class omission { none, no_name, no_options, not_const, no_visitor, another_result };

template <omission Is>
struct model_policy : name_if<Is != omission::no_name> {
  template <class F>
  void options(F&&) const
    requires(Is == omission::none || Is == omission::no_name);
  template <class F>
  void options(F&&)
    requires(Is == omission::not_const);
  std::uint64_t options() const
    requires(Is == omission::no_visitor);
  template <class F>
  std::uint64_t options(F&&) const
    requires(Is == omission::another_result);
};

static_assert(spar::policy<model_policy<omission::none>>);
static_assert(!spar::policy<model_policy<omission::no_name>>);
static_assert(!spar::policy<model_policy<omission::no_options>>);
static_assert(!spar::policy<model_policy<omission::not_const>>);
static_assert(!spar::policy<model_policy<omission::no_visitor>>);
static_assert(!spar::policy<model_policy<omission::another_result>>);
static_assert(spar::policy<spar::sparcml> && spar::policy<spar::ring> && spar::policy<spar::binomial_reduce> &&
              spar::policy<spar::ok_topk<float>>);

enum class neglect { none, no_validate, not_const, another_argument, not_of_a_type, another_result };

template <neglect Is>
struct model_check {
  template <class T, class Op>
  void validate(std::uint64_t, spar::rank_t, const Op&) const
    requires(Is == neglect::none);
  template <class T, class Op>
  void validate(std::uint64_t, spar::rank_t, const Op&)
    requires(Is == neglect::not_const);
  template <class T, class Op>
  void validate(std::span<T>, const Op&) const
    requires(Is == neglect::another_argument);
  void validate(std::uint64_t, spar::rank_t, spar::sum) const
    requires(Is == neglect::not_of_a_type);
  template <class T, class Op>
  bool validate(std::uint64_t, spar::rank_t, const Op&) const
    requires(Is == neglect::another_result);
};

static_assert(spar::checked<model_check<neglect::none>, float, spar::sum>);
static_assert(!spar::checked<model_check<neglect::no_validate>, float, spar::sum>);
static_assert(!spar::checked<model_check<neglect::not_const>, float, spar::sum>);
static_assert(!spar::checked<model_check<neglect::another_argument>, float, spar::sum>);
static_assert(!spar::checked<model_check<neglect::not_of_a_type>, float, spar::sum>);
static_assert(!spar::checked<model_check<neglect::another_result>, float, spar::sum>);
static_assert(spar::checked<spar::algorithm_defaults, float, spar::sum> &&
              spar::checked<spar::sparcml, std::int32_t, spar::maximum> &&
              spar::checked<spar::ok_topk<float>, float, spar::average>);

// --- stream_allreduce and dense_allreduce ---

enum class lack { none, not_const, task_of_another_type, no_task, whole_vector_only };

template <lack Is>
struct stream_algorithm {
  using stream = spar::sparse_stream<float>;
  using view = spar::stream_view<float>;
  template <class Net, class Op>
  spar::task<stream> operator()(spar::channel<Net>, view, Op) const&
    requires(Is == lack::none);
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
template <class Schedule, class Storage = spar::storage::coo>
constexpr bool composed_reduces_streams = reduces_streams<stored<Storage, Schedule>>;

static_assert(reduces_streams<stream_algorithm<lack::none>>);
static_assert(!reduces_streams<stream_algorithm<lack::not_const>>);
static_assert(!reduces_streams<stream_algorithm<lack::task_of_another_type>>);
static_assert(!reduces_streams<stream_algorithm<lack::no_task>>);
static_assert(!reduces_streams<stream_algorithm<lack::whole_vector_only>>);
static_assert(composed_reduces_streams<spar::recursive_doubling> && composed_reduces_streams<spar::ring> &&
              composed_reduces_streams<spar::rabenseifner> && composed_reduces_streams<spar::ssar_split> &&
              composed_reduces_streams<spar::dsar_split> && reduces_streams<spar::sparcml> &&
              reduces_streams<quantised_split<2>>);
static_assert(composed_reduces_streams<spar::ring, spar::storage::as_half>, "it reduces streams as dense values");
template <class Selector>
using chosen = spar::composition<Selector, spar::storage::coo, spar::flat, spar::cheapest>;
static_assert(!reduces_streams<chosen<spar::selector::nonzeros>>, "a selector takes entries from dense values");
static_assert(!spar::stream_allreduce<quantised_split<4>, spar::threads, std::int32_t, std::uint32_t, spar::sum>,
              "integers cannot be quantised");

template <lack Is>
struct dense_algorithm {
  template <class Net, class Op>
  spar::task<void> operator()(spar::channel<Net>, std::span<float>, Op) const&
    requires(Is == lack::none);
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
static_assert(!reduces_vectors<dense_algorithm<lack::not_const>>);
static_assert(!reduces_vectors<dense_algorithm<lack::task_of_another_type>>);
static_assert(!reduces_vectors<dense_algorithm<lack::no_task>>);
static_assert(!reduces_vectors<stream_algorithm<lack::none>>, "it takes only streams");
static_assert(reduces_vectors<spar::recursive_doubling> && reduces_vectors<spar::ring> &&
              reduces_vectors<spar::rabenseifner> && reduces_vectors<spar::cheapest>);
static_assert(!reduces_vectors<spar::ssar_split> && reduces_vectors<stored<spar::storage::coo, spar::ssar_split>>,
              "a composition converts dense values to a stream for a schedule that takes only streams");
static_assert(!reduces_vectors<spar::ring_reduce_scatter> && !reduces_streams<spar::ring_reduce_scatter>,
              "a reduce-scatter leaves each rank one block");
static_assert(reduces_vectors<spar::sparcml> && reduces_vectors<chosen<spar::selector::nonzeros>>);
static_assert(
    !spar::dense_allreduce<stored<spar::storage::as_half, spar::ring>, spar::threads, std::int32_t, spar::sum>,
    "integers cannot be rounded");

// --- residual_allreduce ---

enum class shortage {
  none,
  no_state,
  state_not_copyable,
  no_report,
  report_not_copyable,
  not_const,
  another_result,
  no_task,
  no_prepare,
  no_call
};

template <shortage Is>
struct state_if {
  struct state : copyable_if<Is != shortage::state_not_copyable> {};
};
template <>
struct state_if<shortage::no_state> {};
template <shortage Is>
struct report_if {
  struct report : copyable_if<Is != shortage::report_not_copyable> {};
};
template <>
struct report_if<shortage::no_report> {};

template <shortage Is>
struct residual_algorithm : state_if<Is>, report_if<Is> {
  using sum = spar::selected_sum<float, std::uint32_t>;
  static constexpr bool complete = Is != shortage::not_const && Is != shortage::another_result &&
                                   Is != shortage::no_task && Is != shortage::no_prepare && Is != shortage::no_call;
  template <class Index, class Net, class State, class Report, class Op, class Prepare>
  spar::task<sum> reduce(spar::channel<Net>, State*, Report*, std::span<float>, Op, Prepare) const&
    requires(complete);
  template <class Index, class Net, class State, class Report, class Op, class Prepare>
      spar::task<sum> reduce(spar::channel<Net>, State*, Report*, std::span<float>, Op, Prepare) &
      requires(Is == shortage::not_const);
  template <class Index, class Net, class State, class Report, class Op, class Prepare>
  spar::task<spar::sparse_stream<float>> reduce(spar::channel<Net>, State*, Report*, std::span<float>, Op,
                                                Prepare) const&
    requires(Is == shortage::another_result);
  template <class Index, class Net, class State, class Report, class Op, class Prepare>
  sum reduce(spar::channel<Net>, State*, Report*, std::span<float>, Op, Prepare) const&
    requires(Is == shortage::no_task);
  template <class Index, class Net, class State, class Report, class Op>
  spar::task<sum> reduce(spar::channel<Net>, State*, Report*, std::span<float>, Op) const&
    requires(Is == shortage::no_prepare);
};

template <class Algorithm>
constexpr bool leaves_residual = spar::residual_allreduce<Algorithm, spar::threads, float, std::uint32_t, spar::sum>;

static_assert(leaves_residual<residual_algorithm<shortage::none>>);
static_assert(!leaves_residual<residual_algorithm<shortage::no_state>>);
static_assert(!leaves_residual<residual_algorithm<shortage::state_not_copyable>>);
static_assert(!leaves_residual<residual_algorithm<shortage::no_report>>);
static_assert(!leaves_residual<residual_algorithm<shortage::report_not_copyable>>);
static_assert(!leaves_residual<residual_algorithm<shortage::not_const>>,
              "a call must not change the algorithm: its state is an argument");
static_assert(!leaves_residual<residual_algorithm<shortage::another_result>>);
static_assert(!leaves_residual<residual_algorithm<shortage::no_task>>);
static_assert(!leaves_residual<residual_algorithm<shortage::no_prepare>>);
static_assert(!leaves_residual<residual_algorithm<shortage::no_call>>);
static_assert(leaves_residual<spar::ok_topk_allreduce<>> && leaves_residual<spar::gtopk_allreduce> &&
              leaves_residual<spar::topka_allreduce> && leaves_residual<spar::quantised_sparcml_allreduce<4>> &&
              leaves_residual<spar::sparcml>);
static_assert(!leaves_residual<spar::balanced_owners>, "a schedule without a selector");
static_assert(!spar::residual_allreduce<spar::quantised_sparcml_allreduce<4>, spar::threads, std::int32_t,
                                        std::uint32_t, spar::sum>,
              "integers cannot be quantised");

// --- selects ---

enum class want {
  none,
  no_name,
  no_slot,
  another_slot,
  no_validate,
  validate_not_const,
  no_call,
  call_not_const,
  another_stream,
  not_copyable,
  reads_only,
  no_prepare,
  not_awaitable,
  no_shared_state,
  no_own_state
};

template <want Is>
struct selecting_if
    : slot_if<Is != want::no_slot, Is == want::another_slot ? spar::slot::storage : spar::slot::selector>,
      options_if<true> {};

template <want Is>
struct model_selector : name_if<Is != want::no_name>, selecting_if<Is>, copyable_if<Is != want::not_copyable> {
  struct state {
    template <class F>
    void shared_state(F&&)
      requires(Is != want::no_shared_state);
    template <class F>
    void own_state(F&&)
      requires(Is != want::no_own_state);
  };
  void validate(std::uint64_t) const
    requires(Is != want::no_validate && Is != want::validate_not_const);
  void validate(std::uint64_t)
    requires(Is == want::validate_not_const);
  template <class Index, class Prepare>
  spar::ready<spar::sparse_stream<float, Index>> operator()(const spar::host_work&, std::span<float>, state&,
                                                            const Prepare&) const
    requires(Is != want::no_call && Is != want::call_not_const && Is != want::another_stream &&
             Is != want::reads_only && Is != want::no_prepare && Is != want::not_awaitable);
  template <class Index, class Prepare>
  spar::ready<spar::sparse_stream<float, Index>> operator()(const spar::host_work&, std::span<float>, state&,
                                                            const Prepare&)
    requires(Is == want::call_not_const);
  template <class Index, class Prepare>
  spar::ready<spar::sparse_stream<double, Index>> operator()(const spar::host_work&, std::span<float>, state&,
                                                             const Prepare&) const
    requires(Is == want::another_stream);
  template <class Index, class Prepare>
  spar::ready<> operator()(const spar::host_work&, std::span<const float>, state&, const Prepare&) const
    requires(Is == want::reads_only);
  template <class Index>
  spar::ready<spar::sparse_stream<float, Index>> operator()(const spar::host_work&, std::span<float>, state&) const
    requires(Is == want::no_prepare);
  template <class Index, class Prepare>
  spar::sparse_stream<float, Index> operator()(const spar::host_work&, std::span<float>, state&, const Prepare&) const
    requires(Is == want::not_awaitable);
};

/// A selector without a state, which leaves the work to any workspace.
struct model_of_any_work : name_if<true>, selecting_if<want::none> {
  void validate(std::uint64_t) const;
  template <class Index, class Work, class Prepare>
  auto operator()(Work& work, std::span<float> x, spar::no_state&, const Prepare& prepare) const {
    return work.template take_at_least<Index>(x, 1, x.size(), prepare);
  }
};

static_assert(spar::selects<model_selector<want::none>, float, std::uint32_t>);
static_assert(spar::selects<model_selector<want::none>, float, std::uint64_t>);
static_assert(spar::selects<model_of_any_work, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::call_not_const>, float, std::uint32_t>,
              "a call must not change the selector: its state is an argument");
static_assert(!spar::selects<model_selector<want::none>, double, std::uint32_t>, "it selects floats");
static_assert(!spar::selects<model_selector<want::none>, float, int>);
static_assert(!spar::selects<model_selector<want::no_name>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::no_slot>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::another_slot>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::no_validate>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::validate_not_const>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::no_call>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::another_stream>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::not_copyable>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::reads_only>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::no_prepare>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::not_awaitable>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::no_shared_state>, float, std::uint32_t>);
static_assert(!spar::selects<model_selector<want::no_own_state>, float, std::uint32_t>);

static_assert(spar::kernel::ranked<float> && spar::kernel::ranked<std::uint64_t>);
static_assert(!spar::kernel::ranked<complex_number>, "the type has no order by magnitude");
static_assert(spar::selects<spar::selector::nonzeros, complex_number, std::uint32_t> &&
              !spar::selects<spar::selector::exact_topk, complex_number, std::uint32_t>);
static_assert(spar::selects<spar::selector::threshold_reuse, float, std::uint32_t>);
static_assert(!spar::selects<spar::everything, float, std::uint32_t>,
              "`everything` takes no entries out of the values");

// --- participation ---

enum class absence {
  none,
  no_name,
  no_options,
  options_not_const,
  no_validate,
  validate_not_const,
  no_start,
  start_of_another_type,
  not_copyable,
  no_quorum,
  no_counter,
  counter_of_another_type
};

/// With `Counts`, by q and counter(round, P); else by initiates(rank, round, P).
template <absence Is, bool There>
struct quorum_if {
  spar::rank_t q = 1;
};
template <absence Is>
struct quorum_if<Is, false> {};

template <absence Is, bool Counts = false>
struct who : name_if<Is != absence::no_name>,
             copyable_if<Is != absence::not_copyable>,
             quorum_if<Is, Counts && Is != absence::no_quorum> {
  template <class F>
  void options(F&&) const
    requires(Is != absence::no_options && Is != absence::options_not_const);
  template <class F>
  void options(F&&)
    requires(Is == absence::options_not_const);
  void validate(spar::rank_t) const
    requires(Is != absence::no_validate && Is != absence::validate_not_const);
  void validate(spar::rank_t)
    requires(Is == absence::validate_not_const);
  bool initiates(spar::rank_t, std::uint64_t, spar::rank_t) const
    requires(!Counts && Is != absence::no_start && Is != absence::start_of_another_type);
  spar::rank_t initiates(spar::rank_t, std::uint64_t, spar::rank_t) const
    requires(!Counts && Is == absence::start_of_another_type);
  spar::rank_t counter(std::uint64_t, spar::rank_t) const
    requires(Counts && Is != absence::no_counter && Is != absence::counter_of_another_type);
  std::uint64_t counter(std::uint64_t, spar::rank_t) const
    requires(Counts && Is == absence::counter_of_another_type);
};

static_assert(spar::participation<who<absence::none>> && spar::participation<who<absence::none, true>>);
static_assert(!spar::participation<who<absence::no_name>>);
static_assert(!spar::participation<who<absence::no_options>>);
static_assert(!spar::participation<who<absence::options_not_const>>);
static_assert(!spar::participation<who<absence::no_validate>>);
static_assert(!spar::participation<who<absence::validate_not_const>>);
static_assert(!spar::participation<who<absence::no_start>>);
static_assert(!spar::participation<who<absence::start_of_another_type>>);
static_assert(!spar::participation<who<absence::not_copyable>>);
static_assert(!spar::participation<who<absence::no_quorum, true>>);
static_assert(!spar::participation<who<absence::no_counter, true>>);
static_assert(!spar::participation<who<absence::counter_of_another_type, true>>);
static_assert(spar::participation<spar::everyone> && spar::participation<spar::solo> &&
              spar::participation<spar::majority> && spar::participation<spar::quorum>);

// --- a rule that is not a concept: no call on a temporary ---

template <class Algorithm>
concept runs_on_a_temporary =
    requires(spar::channel<spar::threads_port> net, spar::stream_view<float> v) { Algorithm{}(net, v, spar::sum{}); };
static_assert(!runs_on_a_temporary<spar::recursive_doubling> && !runs_on_a_temporary<spar::ring> &&
              !runs_on_a_temporary<spar::rabenseifner> && !runs_on_a_temporary<spar::ssar_split> &&
              !runs_on_a_temporary<spar::sparcml>);

static_assert(!std::is_copy_constructible_v<spar::task<int>> && std::is_nothrow_move_constructible_v<spar::task<int>>);
static_assert(!std::is_copy_constructible_v<spar::sparse_stream<float>> &&
              std::is_move_assignable_v<spar::sparse_stream<float>>);
static_assert(std::is_trivially_copyable_v<spar::stream_view<float>>);
using pending_sum = spar::pending<spar::threads, spar::sparse_stream<float>>;
static_assert(!std::is_copy_constructible_v<pending_sum> && std::is_nothrow_move_constructible_v<pending_sum>);

TEST(concepts, own_elements_travel) {
  // A type with an element code of its own can be gathered and broadcast like any other.
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
