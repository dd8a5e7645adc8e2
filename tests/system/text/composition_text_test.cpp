// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compositions as text: each system is the composition that its page says, errors name the position and the choices,
// and what is written is read again.
#include "support/models.hpp"

#include <spar/system/published.hpp>
#include <spar/system/text/visit_composition.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace spar_test {
namespace {

using spar::selector::exact_topk, spar::selector::gaussian, spar::selector::named_selector,
    spar::selector::threshold_reuse;
using spar::storage::coded, spar::storage::coo, spar::storage::named_codec, spar::storage::then;

std::string refusal(std::string_view text) {
  try {
    return "accepted: " + spar::parse_composition(text).to_text();
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
}

const spar::tree_plans& four_ranks() {
  static const spar::tree_plans plans(spar::tree::flat(4));
  return plans;
}

std::uint64_t digest_of_text(std::string_view text) {
  return spar::visit_composition(spar::parse_composition(text), &four_ranks(),
                                 [](const auto& made) { return spar::digest_of(made); });
}
template <class... Parts>
void expect_composition(std::string_view text, const Parts&... parts) {
  EXPECT_EQ(digest_of_text(text), spar::digest_of(spar::compose(parts...))) << text;
}

TEST(system_text_composition_text, systems_are_their_compositions) {
  expect_composition("sparcml");
  expect_composition("dense");
  expect_composition("automatic");
  expect_composition("ssar_split", spar::ssar_split{});
  expect_composition("dsar_split", spar::dsar_split{});
  expect_composition("rec_doubling", spar::recursive_doubling{});
  expect_composition("ring", spar::ring{});
  expect_composition("rabenseifner", spar::rabenseifner{});
  expect_composition("allgather", spar::gather_and_merge{});
  expect_composition("nonzeros", spar::selector::nonzeros{});
  expect_composition("flexreduce", spar::on_tree(four_ranks()), spar::chains{});
  expect_composition("tree_dense", spar::on_tree(four_ranks()));
  expect_composition("tree_sparcml", spar::on_tree(four_ranks()), spar::quantile_owners{});
  for (const char* const codec : {"qsgd:8", "qsgd:4", "qsgd:2"}) {
    const std::string bits(codec + 5);
    expect_composition("dsar_qsgd" + bits, then<coo, named_codec>{{}, named_codec(codec)}, spar::dsar_split{});
  }
  expect_composition("topka", named_selector(exact_topk{}), spar::gather_and_merge{});
  expect_composition("gaussiank", named_selector(gaussian{}), spar::gather_and_merge{});
  expect_composition("topkdsa", named_selector(exact_topk{}), spar::split_allgather<>{});
  expect_composition("gtopk", named_selector(exact_topk{}), spar::tree_of_topk{});
  expect_composition("ok_topk", named_selector(threshold_reuse{}), spar::balanced_owners{});
  expect_composition("tree_ok_topk", named_selector(threshold_reuse{}), spar::on_tree(four_ranks()),
                     spar::balanced_owners{});
}

TEST(system_text_composition_text, parts_replace_those_of_a_system) {
  const named_selector reuse(threshold_reuse{.density = 0.01});
  expect_composition("ok_topk:0.01+coded", reuse, coded{}, spar::balanced_owners{});
  expect_composition("ok_topk:0.01+coded:fast", reuse, coded{.fast = true}, spar::balanced_owners{});
  expect_composition("ok_topk:0.01+coded:bf16", reuse, coded<7>{}, spar::balanced_owners{});
  expect_composition("ok_topk:1%+pruned", reuse, coded{}, spar::pruned_owners{});
  expect_composition("ok_topk:0.01:tau=3+coded:fast+cheapest", reuse, coded{.fast = true},
                     spar::cheapest_owners{.tau = 3});
  expect_composition("ok_topk:0.01+pruned_owners:tau=3", reuse, spar::pruned_owners{.tau = 3});
  expect_composition("ok_topk:k=7:period=2:epsilon=0.5:tau=9",
                     named_selector(threshold_reuse{.k = 7, .period = 2, .epsilon = 0.5}),
                     spar::balanced_owners{.tau = 9});
  expect_composition("ok_topk+gaussian:0.1", named_selector(gaussian{.density = 0.1}), spar::balanced_owners{});
  // A block codec encodes dense values, and in systems of streams what has turned dense.
  expect_composition("ring+qsgd:8", named_codec("qsgd:8"), spar::ring{});
  expect_composition("ring:piece=64+zfp:8", named_codec("zfp:8"), spar::ring{.piece = 64});
  expect_composition("sparcml+qsgd:4", then<coo, named_codec>{{}, named_codec("qsgd:4")});
  expect_composition("rec_doubling+coded", coded{}, spar::recursive_doubling{});
  expect_composition("rec_doubling+coo+half", then<coo, named_codec>{{}, named_codec("half")},
                     spar::recursive_doubling{});
  expect_composition("dsar_split+bound:1e-3", spar::storage::bound{.relative = 1e-3}, spar::dsar_split{});
  expect_composition("ring+bound:error=0.5", spar::storage::bound{.error = 0.5}, spar::ring{});
}

TEST(system_text_composition_text, a_percentage_is_the_share_with_these_digits) {
  for (int percent = 1; percent <= 100; ++percent) {
    const std::string share = percent == 100 ? "1"
                              : percent < 10 ? "0.0" + std::to_string(percent)
                                             : "0." + std::to_string(percent);
    const std::string text = "ok_topk:" + std::to_string(percent) + "%";
    EXPECT_EQ(digest_of_text(text), digest_of_text("ok_topk:" + share)) << text;
  }
}

/// A long text is refused as a short one is, in a time that does not grow with the square of its length.
TEST(system_text_composition_text, long_texts_are_refused) {
  constexpr std::size_t length = 1'000'000;
  for (const char each : {'a', ':', '+', ',', '='}) {
    for (const char* const begin : {"", "ring", "ring:", "ring+", "by=", "store=coo+"}) {
      const std::string text = begin + std::string(length, each);
      EXPECT_NE(refusal(text).find("'" + text + "'"), std::string::npos) << begin << each;
    }
  }
  EXPECT_NE(refusal("ok_topk:0." + std::string(length, '1')).find("accepted"), std::string::npos);
}

TEST(system_text_composition_text, slots_name_every_part) {
  expect_composition("select=threshold_reuse:0.01,store=coded,by=balanced_owners",
                     named_selector(threshold_reuse{.density = 0.01}), coded{}, spar::balanced_owners{});
  expect_composition("by=recursive_doubling:parts=3:piece=7:dense_from=0.5",
                     spar::recursive_doubling{.dense_from = 0.5, .piece = 7, .parts = 3});
  expect_composition("store=coo+mx:e4m3", then<coo, named_codec>{{}, named_codec("mx:e4m3")});
  expect_composition("store=qsgd:4:bucket=512:seed=3,by=two_shot:piece=100", named_codec("qsgd:4:bucket=512:seed=3"),
                     spar::two_shot{.piece = 100});
  expect_composition("over=tree,by=chains", spar::on_tree(four_ranks()), spar::chains{});
  expect_composition("select=everything,over=flat", spar::everything{});
}

TEST(system_text_composition_text, errors_name_the_position_and_the_choices) {
  EXPECT_EQ(refusal("select=exact_topk:0.1,store=coded,by=balancd_owners"),
            "unknown part 'balancd_owners' at character 38 of 'select=exact_topk:0.1,store=coded,by=balancd_owners'; "
            "expected balanced_owners, cheapest, recursive_doubling, ring, rabenseifner, two_shot, one_shot, "
            "split_allgather, ssar_split, dsar_split, gather_and_merge, quantile_owners, chains, tree_of_topk, "
            "pruned_owners, cheapest_owners");
  EXPECT_EQ(refusal("ok_topk:0.01:perod=3"), "unknown option 'perod=3' of ok_topk at character 14 of "
                                             "'ok_topk:0.01:perod=3'; expected period, k, density, epsilon, threads, "
                                             "tau");
  EXPECT_EQ(refusal("selct=gaussian"),
            "unknown slot 'selct' at character 1 of 'selct=gaussian'; expected select, store, over, by");
  EXPECT_EQ(refusal("ok_topk,coded"), "a comma at character 8 of 'ok_topk,coded'; expected + before a part, or slots: "
                                      "select=PART,store=PART,over=PART,by=PART");
  EXPECT_EQ(refusal("by=ring,by=cheapest"),
            "a second part 'cheapest' at character 12 of 'by=ring,by=cheapest'; expected one of its kind");
  EXPECT_EQ(refusal("ring+bound"), "'bound' at character 6 of 'ring+bound'; expected one of relative=NUMBER and "
                                   "error=NUMBER, as in bound:1e-3");
  EXPECT_EQ(refusal("ring+zfp:8:rate=16"),
            "a second rate at character 12 of 'ring+zfp:8:rate=16'; expected each option once");
  EXPECT_EQ(refusal("sparcml+coded:fast:fast"),
            "a second fast at character 20 of 'sparcml+coded:fast:fast'; expected each option once");
  EXPECT_EQ(refusal("sparcml+coded:fast=1"),
            "unknown option 'fast=1' of coded at character 15 of 'sparcml+coded:fast=1'; expected fast");
  EXPECT_EQ(refusal("ok_topk+balanced_owners:tau=5+cheapest"),
            "a second part 'cheapest' at character 31 of 'ok_topk+balanced_owners:tau=5+cheapest'; expected one of its "
            "kind");
  EXPECT_TRUE(refusal("ring+qsgd:3").starts_with("unknown part 'qsgd:3' at character 6 of 'ring+qsgd:3'; expected "));
  for (const char* const text : {"",
                                 "+",
                                 "=",
                                 ",",
                                 ":",
                                 "ring+",
                                 "ring:",
                                 "ring:0.1",
                                 "ring+ring+ring",
                                 "ring+qsgd:8+zfp:8",
                                 "by",
                                 "by=",
                                 "by=ring,",
                                 "store=coo+",
                                 "store=coo+coded",
                                 "store=,by=ring",
                                 "sparcml:0.01",
                                 "ok_topk:2",
                                 "ok_topk:0.1:k=3",
                                 "OK_TOPK",
                                 "mpi",
                                 "ring+p2p",
                                 "ok_topk+pruned+pruned",
                                 "ok_topk+balanced_owners+pruned",
                                 "ok_topk:0.1:density=0.1",
                                 "ok_topk:nan",
                                 "ok_topk:density=nan",
                                 "ok_topk:density=inf",
                                 "ok_topk:1e999",
                                 "ok_topk:1e-400",
                                 "ok_topk:-0.1",
                                 "ok_topk:0x1p-3",
                                 "ok_topk:0,1",
                                 "ok_topk: 0.1",
                                 "ok_topk:101%",
                                 "ok_topk:1%%",
                                 "ok_topk:k=-1",
                                 "ok_topk:k=1e3",
                                 "ok_topk:k=18446744073709551616",
                                 "ring+bound:0.1:relative=0.2",
                                 "ring+bound:nan",
                                 "ring+zfp:nan",
                                 "ok_topk+pruned+ring",
                                 "over=mesh",
                                 "select=coo",
                                 "by=balanced_owners:tau=0",
                                 "by=recursive_doubling:parts=9",
                                 "ring+coded:slow",
                                 "two_shot:piece=x+qsgd:8",
                                 "ring+bound:x"}) {
    const std::string sentence = refusal(text);
    EXPECT_NE(sentence.find(" of '" + std::string(text) + "'; expected "), std::string::npos)
        << text << ": " << sentence;
  }
}

TEST(system_text_composition_text, parts_that_do_not_compose_are_refused_with_the_sentence_of_the_compiler) {
  const auto expect = [](const char* text, std::string_view reason) {
    EXPECT_FALSE(reason.empty()) << text;
    EXPECT_EQ(refusal(text), "the parts of '" + std::string(text) + "' do not compose: " + std::string(reason));
  };
  using spar::everything, spar::flat, spar::verdict_of;
  expect("two_shot", verdict_of<everything, coo, flat, spar::two_shot>::sentence);
  expect("ok_topk+qsgd:8", verdict_of<named_selector, then<coo, named_codec>, flat, spar::balanced_owners>::sentence);
  expect("by=balanced_owners", verdict_of<everything, coo, flat, spar::balanced_owners>::sentence);
  expect("tree_ok_topk+pruned", verdict_of<named_selector, coded<>, spar::on_tree, spar::pruned_owners>::sentence);
  expect("ok_topk+coded:bf16+pruned", verdict_of<named_selector, coded<7>, flat, spar::pruned_owners>::sentence);
  expect("topka+bound:0.1", verdict_of<named_selector, spar::storage::bound, flat, spar::gather_and_merge>::sentence);
}

TEST(system_text_composition_text, what_needs_a_tree_is_refused_without_one) {
  const auto make = [](const char* text) {
    return spar::visit_composition(spar::parse_composition(text), nullptr, [](const auto&) { return 1; });
  };
  EXPECT_EQ(make("ring"), 1);
  EXPECT_THROW(make("flexreduce"), spar::invalid_argument);
  EXPECT_THROW(make("blueconnect"), spar::invalid_argument);
}

/// Random texts: each is refused with a sentence that names it, or written and read again as the same composition.
TEST(system_text_composition_text, random_texts_are_refused_or_read_again) {
  constexpr std::array<std::string_view, 62> words = {"sparcml",
                                                      "ring",
                                                      "ok_topk",
                                                      "tree_ok_topk",
                                                      "dense",
                                                      "dsar_split",
                                                      "topka",
                                                      "select=",
                                                      "store=",
                                                      "over=",
                                                      "by=",
                                                      "everything",
                                                      "nonzeros",
                                                      "exact_topk",
                                                      "threshold_reuse",
                                                      "gaussian",
                                                      "bucket_topk",
                                                      "coo",
                                                      "coded",
                                                      "bf16",
                                                      "fast",
                                                      "none",
                                                      "qsgd:4",
                                                      "qsgd",
                                                      "mx:e4m3",
                                                      "zfp:8",
                                                      "bound",
                                                      "flat",
                                                      "tree",
                                                      "cheapest",
                                                      "recursive_doubling",
                                                      "two_shot",
                                                      "balanced_owners",
                                                      "pruned_owners",
                                                      "pruned",
                                                      "quantile_owners",
                                                      "chains",
                                                      ":",
                                                      ":",
                                                      ":",
                                                      "+",
                                                      "+",
                                                      "+",
                                                      ",",
                                                      ",",
                                                      ",",
                                                      "=",
                                                      "0.01",
                                                      "1%",
                                                      "k=5",
                                                      "tau=3",
                                                      "period=2",
                                                      "epsilon=0.25",
                                                      "piece=64",
                                                      "bucket=16",
                                                      "seed=1",
                                                      "error=0.5",
                                                      "threads=2",
                                                      "rate=8",
                                                      "parts=2",
                                                      "1e-3",
                                                      "x"};
  std::mt19937_64 random(5);
  int read = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string text;
    // Mostly an alternation of words and separators, which is more often a valid text.
    const std::size_t length = 1 + random() % 9;
    for (std::size_t w = 0; w < length; ++w) {
      text += words[random() % words.size()];
      if (random() % 4 != 0 && w + 1 < length && text.back() != '=') text += ":+,"[random() % 3];
    }
    try {
      const spar::composition_text first = spar::parse_composition(text);
      const std::string written = first.to_text();
      const spar::composition_text again = spar::parse_composition(written);
      ++read;
      ASSERT_EQ(again.to_text(), written) << text;
      if (first.over == spar::topology_text::flat || first.over == spar::topology_text::tree) {
        ASSERT_EQ(digest_of_text(written), digest_of_text(text)) << text;
      }
    } catch (const spar::invalid_argument& e) {
      ASSERT_NE(std::string_view(e.what()).find("'" + text + "'"), std::string_view::npos) << text << ": " << e.what();
    }
  }
  EXPECT_GT(read, 500);
}

} // namespace
} // namespace spar_test
