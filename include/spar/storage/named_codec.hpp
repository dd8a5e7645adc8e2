// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block codec that is chosen by name at run time, for tools and user settings.
#pragma once

#include <spar/core/error.hpp>
#include <spar/storage/codec.hpp>
#include <spar/storage/mx.hpp>
#include <spar/storage/zfp.hpp>

#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

namespace spar::inline v0_1::storage {

/// The block codec with the name `none`, `bf16`, `half`, `qsgd:2`, `qsgd:4`, `qsgd:8`, `mx:e2m1`, `mx:e5m2`, `mx:e4m3`
/// or `zfp:RATE` (RATE bits per value). The compiler instantiates each collective only once for all these codecs. A
/// piece with values that zfp cannot encode is sent uncompressed; a schedule that cannot send uncompressed pieces
/// throws `invalid_argument`.
class named_codec {
 public:
  static constexpr slot fills = slot::storage;
  static constexpr std::string_view name = "named";

  /// Throws `invalid_argument` if `which` is an unknown name, or has a zfp rate that is no multiple
  /// of 0.25 in [4, 32].
  explicit named_codec(std::string_view which = "none") : codec_(parse(which)) {}

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

 private:
  using any = std::variant<dense, as_bfloat16, as_half, qsgd<2>, qsgd<4>, qsgd<8>, mx<e2m1>, mx<e5m2>, mx<e4m3>, zfp>;

  static any parse(std::string_view which) {
    if (which == "none") return dense{};
    if (which == "bf16") return as_bfloat16{};
    if (which == "half") return as_half{};
    if (which == "qsgd:2") return qsgd<2>{};
    if (which == "qsgd:4") return qsgd<4>{};
    if (which == "qsgd:8") return qsgd<8>{};
    if (which == "mx:e2m1") return mx<e2m1>{};
    if (which == "mx:e5m2") return mx<e5m2>{};
    if (which == "mx:e4m3") return mx<e4m3>{};
    if (which.starts_with("zfp:")) {
      zfp code{.non_finite = unsupported::exact};
      const std::string_view rate = which.substr(4);
      const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), code.rate);
      if (error == std::errc{} && end == rate.data() + rate.size()) {
        (void)code.encoded_bytes<float>(1);
        return code;
      }
    }
    raise<invalid_argument>(
        {"unknown codec '", which,
         "'; expected none, bf16, half, qsgd:2, qsgd:4, qsgd:8, mx:e2m1, mx:e5m2, mx:e4m3 or zfp:RATE"});
  }

  template <class T, class Result, class F, class Codec>
  static Result call(F& f, const Codec& c) {
    if constexpr (block_codec<Codec, T>)
      return f(c);
    else
      raise<invalid_argument>(
          {"the codec zfp encodes only float and double; for other types, use none, bf16, half, qsgd or mx"});
  }

  any codec_;
};

} // namespace spar::inline v0_1::storage
