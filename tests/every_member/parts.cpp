// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every member of the class templates that need no communicator, and every function template for their objects.
#include "../support/models.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/collective/partial/participation.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/rows.hpp>
#include <spar/core/util/checked_cast.hpp>
#include <spar/selector/named_selector.hpp>
#include <spar/selector/selector.hpp>
#include <spar/spar.hpp>
#include <spar/storage/coalesce.hpp>
#include <spar/storage/gathered.hpp>
#include <spar/storage/keep_largest.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/wire.hpp>
#include <spar/storage/zfp.hpp>
#include <spar/strided.hpp>
#include <spar/system/published.hpp>
#include <spar/system/text/visit_composition.hpp>
#include <spar/tolerance.hpp>
#include <spar/workspace/host_work.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

template struct spar::row<float, 4>;
template struct spar::coo_span<float, std::uint32_t>;
template class spar::stream_view<float, std::uint32_t>;
template class spar::sparse_stream<double, std::uint64_t>;
template class spar::gathered<float, std::uint32_t>;
template class spar::residual_view<float>;
template class spar::buffer<float>;
template class spar::strided<float>;
template class spar::task<int>;
template class spar::channel<spar::threads_port>;
template class spar::outgoing<spar::storage::coded<>, float, std::uint32_t>;
template class spar::incoming<spar::storage::coded<>, float, std::uint32_t>;

namespace every_member {

namespace store = spar::storage;
using spar_test::for_each_model, spar_test::model;
using index = std::uint32_t;

template <class T, class Op>
T reduced(T a, T b, Op op) {
  return op(a, b) + op.template neutral<T>();
}

double operations(double a, double b) {
  return reduced(a, b, spar::sum{}) + reduced(a, b, spar::product{}) + reduced(a, b, spar::minimum{}) +
         reduced(a, b, spar::maximum{}) + reduced(a, b, spar::average{}) + spar::average::finalize(a, 2);
}

std::size_t rows(std::vector<spar::row<float, 4>>& x, std::vector<float>& flat) {
  const std::span all(x);
  return spar::components(all).size() + spar::rows<4>(std::span(flat)).size() +
         static_cast<std::size_t>(spar::checked_cast<int>(x.size()));
}

/// The members of a block codec.
template <class T, class Codec>
double encode(const Codec& codec, std::span<T> values, std::vector<std::byte>& bytes) {
  bytes.resize(codec.template encoded_bytes<T>(values.size()));
  if constexpr (requires { codec.can_encode(std::span<const T>(values)); }) {
    if (!codec.can_encode(std::span<const T>(values))) return 0;
  }
  codec.encode(std::span<const T>(values), std::span(bytes), spar::block_position{});
  codec.decode(std::span<const std::byte>(bytes), values);
  return codec.template relative_error<T>() + codec.template absolute_error<T>() + codec.template cost<T>({});
}

template <class T>
double encode_all(std::span<T> x, std::vector<std::byte>& bytes) {
  double all = encode<T>(store::qsgd<2>{}, x, bytes) + encode<T>(store::qsgd<4>{}, x, bytes) +
               encode<T>(store::zfp{}, x, bytes) + encode<T>(store::named_codec("none"), x, bytes);
  for_each_model(spar_test::block_codecs, [&](const auto& codec) { all += encode<T>(codec.part, x, bytes); });
  return all;
}
template double encode_all(std::span<float>, std::vector<std::byte>&);
template double encode_all(std::span<double>, std::vector<std::byte>&);

/// The members of a codec of fields.
template <class T>
std::size_t encode_fields(std::span<T> x, std::vector<std::byte>& bytes) {
  std::size_t all = 0;
  for_each_model(spar_test::field_codecs, [&](const auto& of) {
    of.part.options([](std::string_view, auto) {});
    bytes.resize(of.part.template encoded_bytes<T>(x.size()));
    const std::size_t size = of.part.encode(std::span<const T>(x), std::span(bytes), spar::block_position{});
    of.part.decode(std::span<const std::byte>(bytes).first(size), x);
    all += of.part.grain() + static_cast<std::size_t>(of.part.template cost<T>({}));
    all += static_cast<std::size_t>(of.part.template relative_error<T>() + of.part.template absolute_error<T>());
  });
  return all;
}
template std::size_t encode_fields(std::span<float>, std::vector<std::byte>&);
template std::size_t encode_fields(std::span<double>, std::vector<std::byte>&);

/// The members of a codec of integers.
template <class T, class Codec>
std::size_t pack(const Codec& codec, std::span<T> values, std::vector<std::byte>& bytes) {
  bytes.resize(codec.template encoded_bytes<T>(values.size()));
  const std::size_t size = codec.encode(std::span<const T>(values), std::span(bytes), spar::block_position{});
  codec.options([](std::string_view, auto) {});
  const std::span<const std::byte> packed = std::span(bytes).first(size);
  codec.decode(packed, values);
  codec.decode_and_add(packed, values);
  return static_cast<std::size_t>(codec.template cost<T>({}));
}
template <class T>
std::size_t pack_all(std::span<T> values, std::vector<std::byte>& bytes) {
  std::size_t all = 0;
  for_each_model(spar_test::integer_codecs, [&](const auto& of) { all += pack<T>(of.part, values, bytes); });
  return all;
}
template std::size_t pack_all(std::span<std::int32_t>, std::vector<std::byte>&);
template std::size_t pack_all(std::span<std::int64_t>, std::vector<std::byte>&);

/// The members of storages that sum codes.
template <class T>
double errors(spar::rank_t ranks) {
  double all = 0;
  for_each_model(spar_test::code_storages, [&](const auto& of) {
    of.part.template validate<T>(ranks);
    all += of.part.template relative_error<T>() + of.part.template absolute_error<T>();
  });
  return all;
}
template double errors<float>(spar::rank_t);
template double errors<double>(spar::rank_t);

/// The error bounds of each storage and schedule.
template <class T>
double bounds(spar::rank_t ranks, double largest) {
  const auto codec = spar::codec_for<T>(0.1, ranks, 1000);
  double all = spar::error_bound<T>(spar::compose(codec, spar::ring{}), ranks, largest) +
               spar::error_bound<T>(spar::compose(codec, spar::recursive_doubling{}), ranks, largest) +
               spar::error_bound<T>(spar::sparcml{}, ranks, largest) +
               spar::error_bound<T>(spar::compose(store::coded<7>{}, spar::split_allgather{}), ranks, largest);
  for_each_model(spar_test::all_schedules, [&]<class Schedule>(const model<Schedule>& by) {
    if constexpr (spar::bounded_schedule<Schedule> && !spar_test::keeps_k<Schedule>) {
      using of_streams = spar::verdict_of<spar::everything, store::coo, spar::flat, Schedule>;
      if constexpr (spar::composes<of_streams>)
        all += spar::error_bound<T>(by.part, ranks, largest);
      else
        all += spar::error_bound<T>(spar::compose(store::dense{}, by.part), ranks, largest);
    }
  });
  return all;
}
template double bounds<float>(spar::rank_t, double);
template double bounds<double>(spar::rank_t, double);

/// The members of a stream codec.
template <class T, class Codec>
double encode_stream(const Codec& codec, spar::coo_span<T, index> entries, std::vector<std::byte>& bytes,
                     spar::entry_room<T, index> room) {
  const spar::index_range range{0, 1000};
  bytes.resize(codec.template bound<T, index>(range, entries.size()));
  const std::size_t size = codec.encode(entries, range, std::span(bytes));
  codec.decode(std::span<const std::byte>(bytes).first(size), range, room);
  return codec.template entry_bits<T, index>(1000, 10) + static_cast<double>(codec.template delta<T, index>(1000));
}
double bounds() {
  int names = 0;
  store::named_codec::for_each<float>([&](const store::named_codec&) { ++names; });
  spar::selector::named_selector select("threshold_reuse");
  select.set_k_unless_given(3);
  names += select.visit([](const auto&) { return 1; });
  names += static_cast<int>(select.text().size() + select.chosen_name().size() + store::named_codec().text().size());
  const spar::composition_text text = spar::parse_composition("ring");
  names += static_cast<int>(text.to_text().size());
  if (names < 0) text.refuse("of no reason");
  names += spar::visit_composition(text, nullptr, [](const auto&) { return 1; });
  return names + store::coded<7>::relative_error<float>() + store::coded<7>::absolute_error<float>() +
         spar::error_bound<double>(spar::compose(spar::codec_for<double>(0.1, 4, 1000), spar::ring{}), 4, 1.0) +
         spar::error_bound(spar::compose(store::then<store::coo, store::qsgd<4>>{}, spar::dsar_split{}), 4, 1.0);
}

template <class T>
double encode_streams(spar::coo_span<T, index> entries, std::vector<std::byte>& bytes,
                      spar::entry_room<T, index> room) {
  double all = 0;
  for_each_model(spar_test::stream_codecs,
                 [&](const auto& codec) { all += encode_stream<T>(codec.part, entries, bytes, room); });
  return all;
}
template double encode_streams(spar::coo_span<float, index>, std::vector<std::byte>&, spar::entry_room<float, index>);
template double encode_streams(spar::coo_span<double, index>, std::vector<std::byte>&, spar::entry_room<double, index>);

/// Each selector.
template <class T>
std::uint64_t select_by_each(std::span<T> x, spar::pool& memory) {
  std::uint64_t count = 0;
  for_each_model(spar_test::all_selectors, [&]<class Selector>(const model<Selector>& by) {
    if constexpr (!std::is_same_v<Selector, spar::everything>) {
      spar::state_of<Selector> state{};
      auto selected = spar::select<index>(by.part, x, memory, state);
      count += spar::keep_largest(selected, 3, memory).count();
    }
  });
  return count;
}
template std::uint64_t select_by_each(std::span<float>, spar::pool&);
template std::uint64_t select_by_each(std::span<double>, spar::pool&);

std::uint64_t select_by_name(std::span<float> x, spar::pool& memory) {
  const spar::selector::named_selector by("exact_topk:3");
  by.options([](std::string_view, auto) {});
  spar::state_of<spar::selector::named_selector> state{};
  spar::scheduler scheduler(memory);
  const spar::host_work work(scheduler);
  auto selected = spar::select<index>(by, x, memory, state);
  work.keep_from(selected, 1, 0).get();
  work.fill(x, 0.0F);
  return spar::coalesce(memory, 1000, selected.indices(), selected.values()).count();
}

template <class T>
void streams(spar::pool& memory, std::vector<T>& x, std::vector<index>& indices) {
  const auto v = spar::sparse_view(1000, indices, x);
  const spar::index_range all{0, 1000};
  const std::vector parts{v, v};
  spar::validate(v);
  auto one = spar::merge(v, v, all, 1000, spar::sum{}, memory);
  auto more = spar::merge_many(std::span<const spar::stream_view<T, index>>(parts), 1000, all, spar::sum{}, memory);
  spar::accumulate(v, all, x.data(), spar::sum{});
  spar::reduce_dense(std::span<const spar::stream_view<T, index>>(parts), all, x.data(), spar::minimum{});
  auto dense = spar::to_dense(one.view(), spar::sum{}, memory);
  one = spar::to_sparse(dense.view(), spar::sum{}, memory);
  one.for_each([&](auto at, T value) { x[at] += value; });
  dense.to_dense(std::span<T>(x), spar::sum{});
  one.to_dense(std::span<T>(x), spar::maximum{});
  v.for_each([&](auto at, T value) { x[at] += value; });
  v.to_dense(std::span<T>(x), spar::maximum{});
  v.reduce_into(std::span<T>(x), spar::sum{});
  one.reduce_into(std::span<T>(x), spar::sum{});
  (void)spar::dense_view(x);
  (void)spar::dense_threshold<T, index>(1000);
  (void)spar::view_message(v);
  (void)spar::view_message(std::span<const T>(x));
  more.shrink(1);
  one.write(0, v);
}
template void streams(spar::pool&, std::vector<float>&, std::vector<index>&);
template void streams(spar::pool&, std::vector<std::int64_t>&, std::vector<index>&);

std::vector<std::byte> save(const spar::ok_topk<float>& reducer) { return reducer.save(); }

void keep(spar::message_buffer& in) {
  in.keep_by([](std::byte* to, const std::byte* from, std::size_t bytes) { std::copy_n(from, bytes, to); });
}

void gather(const spar::stream_view<float, index>& v, const spar::message_buffer& in, spar::pool& memory) {
  spar::scheduler scheduler(memory);
  const spar::host_work work(scheduler);
  spar::gathered<float, index> all(v, 4, work);
  spar::gathered<float, index> same(spar::sparse_stream<float, index>::copy(memory, v), 4, work);
  const spar::gathered<float, index> empty(1000, 2, [](std::size_t) { return std::uint64_t{0}; }, work);
  (void)all.encode_first(1, work);
  (void)std::move(same).joined();
  const auto entries = spar::decode<float, index>(in, {0, 1000});
  (void)entries;
}

void change(spar::residual_view<float> residual, spar::coo_span<float, index> entries, std::vector<index>& listed) {
  residual.assign(entries);
  residual.assign_unlisted(entries, std::span<const index>(listed));
  residual.add(entries);
  residual.add_error(entries, entries.values.data());
}

template <class Policy>
std::string about(const Policy& policy) {
  return spar::description_of(policy) + std::to_string(spar::digest_of(policy));
}

std::string about_all() {
  std::string all = about(spar::flat{}) + about(spar::sparcml{}) + about(spar::everyone{}) + about(spar::solo{}) +
                    about(spar::majority{}) + about(spar::quorum{}) + about(store::coded<>{});
  for_each_model(spar_test::all_schedules, [&](const auto& by) { all += about(by.part); });
  for_each_model(spar_test::all_selectors, [&](const auto& by) { all += about(by.part); });
  return all;
}

} // namespace every_member
