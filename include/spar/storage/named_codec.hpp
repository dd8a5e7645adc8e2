// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block codec that is chosen by name at run time, for tools and user settings.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/policy/part_text.hpp>
#include <spar/core/util/parallel.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/mx.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>
#include <spar/storage/zfp.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace spar::inline v0_1::storage {

/// The block codec with the name `none`, `bf16`, `half`, `qsgd:2`, `qsgd:4`, `qsgd:8`, `mx:e2m1`, `mx:e5m2`, `mx:e4m3`
/// or `zfp:RATE` (RATE bits per value), and its options, as in `qsgd:4:bucket=512` (docs/guide/text.md). The compiler
/// instantiates each collective only once for all these codecs. A piece with values that zfp cannot encode is sent
/// uncompressed; a schedule that cannot send uncompressed pieces throws `invalid_argument`.
class named_codec {
 public:
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "named";

  /// The names of the codecs; `zfp` needs a rate.
  static constexpr std::array<std::string_view, 10> names = {"none",   "bf16",    "half",    "qsgd:2",  "qsgd:4",
                                                             "qsgd:8", "mx:e2m1", "mx:e5m2", "mx:e4m3", "zfp"};

  /// Throws `invalid_argument`, with the position and the choices there, unless `which` is the text of a codec with
  /// valid options.
  explicit named_codec(std::string_view which = "none") {
    spar::detail::part_reader from(which);
    if (!read(from)) spar::detail::refuse_name(from, "codec", names);
    from.end();
  }

  template <element T>
    requires is_floating<T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const {
    return visit<T>([&](const auto& c) { return c.template encoded_bytes<T>(count); });
  }
  template <element T>
  [[nodiscard]] bool can_encode(std::span<const T> values) const {
    return visit<T>([&](const auto& c) { return detail::can_encode(c, values); });
  }
  template <element T>
  void encode(std::span<const T> values, std::span<std::byte> out, block_position position) const {
    visit<T>([&](const auto& c) { c.encode(values, out, position); });
  }
  template <element T>
  void decode(std::span<const std::byte> in, std::span<T> out) const {
    visit<T>([&](const auto& c) { c.decode(in, out); });
  }
  void options(auto&& f) const {
    std::visit([&](const auto& c) { f("codec", c); }, codec_);
  }
  template <element T>
  [[nodiscard]] double relative_error() const {
    return visit<T>([](const auto& c) { return c.template relative_error<T>(); });
  }
  template <element T>
  [[nodiscard]] double absolute_error() const {
    return visit<T>([](const auto& c) { return c.template absolute_error<T>(); });
  }
  template <element T>
  [[nodiscard]] double cost(const network_model& network) const {
    return visit<T>([&](const auto& c) { return c.template cost<T>(network); });
  }

  /// Calls `f(codec)` for each codec of values of T, in the order of their names above. zfp takes part with each whole
  /// rate, if T is float or double.
  template <element T, class F>
  static void for_each(F f) {
    for (const std::string_view which :
         {"none", "bf16", "half", "qsgd:2", "qsgd:4", "qsgd:8", "mx:e2m1", "mx:e5m2", "mx:e4m3"})
      f(named_codec(which));
    if constexpr (block_codec<zfp, T>) {
      named_codec code;
      for (int rate = 4; rate <= 32; ++rate) {
        code.codec_ = zfp{.rate = static_cast<double>(rate), .non_finite = unsupported::exact};
        f(std::as_const(code));
      }
    }
  }
  /// Calls `f` with the chosen codec. Throws `invalid_argument` for zfp if T is neither float nor double.
  template <class T, class F>
  auto visit(F f) const {
    using result = std::invoke_result_t<F&, const dense&>;
    return std::visit([&](const auto& c) { return call<T, result>(f, c); }, codec_);
  }

  /// The text from which this codec can be made again.
  [[nodiscard]] std::string text() const { return spar::detail::write_part(names, codec_, describe_options); }

  /// \cond
  /// Reads the codec and its options. Returns false if the text has no such name.
  bool read(spar::detail::part_reader& from) {
    if (!spar::detail::read_part(from, names, codec_, describe_options)) return false;
    if (auto* const code = std::get_if<zfp>(&codec_)) {
      code->non_finite = unsupported::exact;
      if (4 * code->rate != __builtin_floor(4 * code->rate)) from.reject_last(rates.text);
    }
    return true;
  }
  /// \endcond

 private:
  static constexpr spar::detail::number_range rates{4, 32, "a multiple of 0.25 from 4 to 32"};
  /// Names the options of a codec to a `part_reader` or a `part_writer`.
  static constexpr auto describe_options = [](auto& of, auto& f) {
    using spar::detail::from_one, spar::detail::from_zero;
    if constexpr (requires { of.bucket; }) f("bucket", of.bucket, from_one), f("seed", of.seed, from_zero);
    if constexpr (requires { of.rate; }) {
      f("threads", of.threads, {1, max_threads, "a number of threads from 1 to 256"});
      f.required("rate", of.rate, rates);
    }
  };

  template <class T, class Result, class F, class Codec>
  static Result call(F& f, const Codec& c) {
    if constexpr (block_codec<Codec, T>)
      return f(c);
    else
      raise<invalid_argument>(
          {"the codec zfp encodes only float and double; for other types, use none, bf16, half, qsgd or mx"});
  }

  std::variant<dense, as_bfloat16, as_half, qsgd<2>, qsgd<4>, qsgd<8>, mx<e2m1>, mx<e5m2>, mx<e4m3>, zfp> codec_;
};

} // namespace spar::inline v0_1::storage
