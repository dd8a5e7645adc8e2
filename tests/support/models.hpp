// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The library's models of each slot of a composition. Tests of all selectors, storages or schedules iterate over these
// lists, and the table in docs/guide/composing.md is made of them.
#pragma once

#include <spar/collective/compressed/bound.hpp>
#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/mx.hpp>
#include <spar/storage/packed.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>
#include <spar/storage/zfp.hpp>
#include <spar/tree.hpp>

#ifdef SPAR_TEST_LIBZFP
#include "line.hpp"
#endif

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

namespace spar_test {

/// A part with the options that the tests use, and the name that the table uses.
template <class Part>
struct model {
  std::string_view name;
  Part part;
};
template <class Part>
constexpr model<Part> named_model(std::string_view name, Part part) {
  return {name, std::move(part)};
}

/// Calls `f(model)` for each model of a list.
template <class Models, class F>
constexpr void for_each_model(const Models& models, F&& f) {
  std::apply([&](const auto&... each) { (f(each), ...); }, models);
}

/// The models of a list for which `Keeps::value<Part>`.
template <class Keeps, class Models>
constexpr auto models_that(Keeps, const Models& models) {
  const auto one_or_none = []<class Part>(const model<Part>& of) {
    if constexpr (Keeps::template value<Part>)
      return std::tuple{of};
    else
      return std::tuple{};
  };
  return std::apply([&](const auto&... each) { return std::tuple_cat(one_or_none(each)...); }, models);
}

inline constexpr auto all_selectors = std::tuple{
    named_model("everything", spar::everything{}),
    named_model("nonzeros", spar::selector::nonzeros{}),
    named_model("exact_topk", spar::selector::exact_topk{.density = 0.05}),
    named_model("bucket_topk", spar::selector::bucket_topk{.k = 6, .bucket = 100}),
    named_model("threshold_reuse", spar::selector::threshold_reuse{.density = 0.05}),
    named_model("gaussian", spar::selector::gaussian{.density = 0.05}),
};

using spar::storage::then;
inline constexpr auto exact_storages = std::tuple{
    named_model("coo", spar::storage::coo{}),
    named_model("dense", spar::storage::dense{}),
};
inline constexpr auto short_storages = std::tuple{
    named_model("as_half", spar::storage::as_half{}),
    named_model("as_bfloat16", spar::storage::as_bfloat16{}),
};
inline constexpr auto quantised_storages = std::tuple{
    named_model("qsgd<8>", spar::storage::qsgd<8>{}),
    named_model("mx<e4m3>", spar::storage::mx<spar::storage::e4m3>{}),
    named_model("then<coo, qsgd<8>>", then<spar::storage::coo, spar::storage::qsgd<8>>{}),
};
inline constexpr auto zfp_storages = std::tuple{
    named_model("zfp", spar::storage::zfp{.rate = 16}),
};
/// Storages that sum integers of the values, in the codec `packed`.
inline constexpr auto code_storages = std::tuple{
    named_model("bound", spar::storage::bound{.error = 0.25}),
};
inline constexpr auto all_storages =
    std::tuple_cat(exact_storages, short_storages, zfp_storages, quantised_storages, code_storages);

inline constexpr auto stream_codecs = std::tuple{
    named_model("coo", spar::storage::coo{}),
    named_model("coded", spar::storage::coded<>{}),
    named_model("coded<7>", spar::storage::coded<7>{}),
};
struct encodes_blocks {
  template <class Storage>
  static constexpr bool value = spar::block_codec<Storage, float>;
};
inline constexpr auto block_codecs =
    std::tuple_cat(models_that(encodes_blocks{}, all_storages),
                   std::tuple{named_model("mx<e5m2>", spar::storage::mx<spar::storage::e5m2>{}),
                              named_model("mx<e2m1>", spar::storage::mx<spar::storage::e2m1>{})});
/// The block codec of fields, if there is a libzfp.
#ifdef SPAR_TEST_LIBZFP
inline constexpr auto field_codecs = std::tuple{
    named_model("zfp_field", line{}),
};
#else
inline constexpr std::tuple<> field_codecs;
#endif
/// The block codecs of integers.
inline constexpr auto integer_codecs = std::tuple{
    named_model("packed", spar::storage::packed{}),
};

inline constexpr auto all_schedules = std::tuple{
    named_model("cheapest", spar::cheapest{}),
    named_model("recursive_doubling", spar::recursive_doubling{}),
    named_model("rabenseifner", spar::rabenseifner{}),
    named_model("ring", spar::ring{}),
    named_model("two_shot", spar::two_shot{}),
    named_model("one_shot", spar::one_shot{}),
    named_model("split_allgather", spar::split_allgather<>{}),
    named_model("ssar_split", spar::ssar_split{}),
    named_model("dsar_split", spar::dsar_split{}),
    named_model("gather_and_merge", spar::gather_and_merge{}),
    named_model("tree_of_topk", spar::tree_of_topk{}),
    named_model("balanced_owners", spar::balanced_owners{}),
    named_model("pruned_owners", spar::pruned_owners{}),
    named_model("quantile_owners", spar::quantile_owners{}),
    named_model("chains", spar::chains{}),
};

/// Whether the sum holds only the k largest entries of what the ranks contributed.
template <class Schedule>
inline constexpr bool keeps_k =
    std::is_same_v<Schedule, spar::tree_of_topk> || std::is_same_v<Schedule, spar::balanced_owners> ||
    std::is_same_v<Schedule, spar::pruned_owners>;

} // namespace spar_test
