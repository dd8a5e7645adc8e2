// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A selector that is chosen by name at run time, for tools, bindings and user settings.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/policy/part_text.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/selector.hpp>
#include <spar/selector/threshold_reuse.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace spar::inline v0_1 {

namespace detail {

inline constexpr number_range thread_counts{1, max_threads, "a number of threads from 1 to 256"};
inline constexpr number_range tolerances{0, 1 - 0x1p-53, "a value in [0, 1)"};

/// Names the options of a selector to a `part_reader` or a `part_writer`.
template <class Selector>
void selector_options(Selector& of, auto& f) {
  if constexpr (requires { of.density; })
    f.amount(of.k, of.density);
  else
    f("k", of.k, from_zero);
  if constexpr (requires { of.bucket; }) f("bucket", of.bucket, from_one);
  if constexpr (requires { of.period; }) f("period", of.period, from_one);
  if constexpr (requires { of.epsilon; }) f("epsilon", of.epsilon, tolerances);
  if constexpr (requires { of.threads; }) f("threads", of.threads, thread_counts);
}

} // namespace detail

namespace selector {

/// One of the selectors that aim at a number of entries, by its text: `exact_topk`, `threshold_reuse`, `gaussian` or
/// `bucket_topk`, and its options, as in `threshold_reuse:0.01:period=16` (docs/guide/text.md). It selects what the
/// selector of that name selects, from values that are not rows. The compiler instantiates each composition only once
/// for all these selectors. The header of each selector names its source, as that of `threshold_reuse` does (Ok-Topk,
/// section 3.1.3).
class named_selector {
 public:
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "named";
  /// The names of the selectors.
  static constexpr std::array<std::string_view, 4> names = {"exact_topk", "threshold_reuse", "gaussian", "bucket_topk"};

  /// The state of every one of these selectors, so that a state can be loaded before the first call.
  using state = threshold_reuse::state;

  /// The selector `exact_topk`, which has no number of entries yet.
  named_selector() = default;
  /// Throws `invalid_argument`, with the position and the choices there, unless `which` is the text of a selector.
  explicit named_selector(std::string_view which) {
    spar::detail::part_reader from(which);
    if (!read(from)) spar::detail::refuse_name(from, "selector", names);
    from.end();
  }
  /// The selector `by`, which is one of these selectors.
  template <class Selector>
    requires(std::same_as<Selector, exact_topk> || std::same_as<Selector, threshold_reuse> ||
             std::same_as<Selector, gaussian> || std::same_as<Selector, bucket_topk>)
  explicit named_selector(const Selector& by) : chosen_(by) {
    set_period();
  }

  /// Number of calls after which the selector finds a new threshold; changes with the text alone.
  std::uint64_t period = 1;

  void validate(std::uint64_t n) const {
    std::visit([&](const auto& by) { by.validate(n); }, chosen_);
  }
  void options(auto&& f) const {
    std::visit([&](const auto& by) { f("selector", by); }, chosen_);
  }
  /// How many of n entries the selector selects. Throws `invalid_argument` if the selector does.
  [[nodiscard]] topk_bounds bounds(std::uint64_t n) const {
    return std::visit([&](const auto& by) { return by.bounds(n); }, chosen_);
  }
  /// Calls `f` with the selector that this object has chosen, and returns what `f` returns.
  template <class F>
  auto visit(F f) const {
    return std::visit([&](const auto& by) { return f(by); }, chosen_);
  }
  /// The name of the selector that this object has chosen.
  [[nodiscard]] std::string_view chosen_name() const noexcept { return names[chosen_.index()]; }
  /// The text from which this selector can be made again.
  [[nodiscard]] std::string text() const { return spar::detail::write_part(names, chosen_, describe_options); }
  /// Sets the number of entries to `k`, unless the text has one.
  void set_k_unless_given(std::uint64_t k) {
    std::visit(
        [&](auto& by) {
          if constexpr (requires { by.density; }) {
            if (by.k == unset && by.density == 0) by.k = k;
          }
        },
        chosen_);
  }

  /// Moves entries from `x`, whose values are not rows, to a stream. Only `threshold_reuse` uses the state `now`.
  /// Throws `invalid_argument` like `validate`.
  template <index_type Index, kernel::ranked T, class Prepare>
    requires(!is_row<T>)
  ready<sparse_stream<T, Index>> operator()(host_work& work, std::span<T> x, state& now, const Prepare& prepare) const {
    no_state none;
    const auto call = [&]<class Selector>(const Selector& by) -> sparse_stream<T, Index> {
      if constexpr (std::same_as<Selector, threshold_reuse>)
        return by.template operator()<Index>(work, x, now, prepare).await_resume();
      else
        return by.template operator()<Index>(work, x, none, prepare).await_resume();
    };
    return ready(std::visit(call, chosen_));
  }
  /// The same for values `x` on a device, which answers later, with the state `now`.
  template <index_type Index, class Work, kernel::ranked T, class Prepare>
    requires(!is_row<T> && std::same_as<typename Work::template answer<T>, task<T>>)
  task<sparse_stream<T, Index>> operator()(Work& work, std::span<T> x, state& now, const Prepare& prepare) const {
    no_state none; // lives as long as the call
    const auto call = [&]<class Selector>(const Selector& by) -> task<sparse_stream<T, Index>> {
      if constexpr (std::same_as<Selector, threshold_reuse>)
        return by.template operator()<Index>(work, x, now, prepare);
      else
        return by.template operator()<Index>(work, x, none, prepare);
    };
    auto running = std::visit(call, chosen_);
    auto mine = co_await std::move(running);
    co_return mine;
  }

  /// \cond
  /// Reads the selector and its options. Returns false if the text has no such name.
  bool read(spar::detail::part_reader& from) {
    const bool found = spar::detail::read_part(from, names, chosen_, describe_options);
    set_period();
    return found;
  }
  /// Reads options of the selector that this object has chosen.
  void read_options(spar::detail::part_reader& from) {
    std::visit([&](auto& by) { describe_options(by, from); }, chosen_);
    set_period();
  }
  /// \endcond

 private:
  static constexpr auto describe_options = [](auto& of, auto& f) { spar::detail::selector_options(of, f); };

  void set_period() noexcept {
    const auto* const reuses = std::get_if<threshold_reuse>(&chosen_);
    period = reuses == nullptr ? 1 : reuses->period;
  }

  std::variant<exact_topk, threshold_reuse, gaussian, bucket_topk> chosen_{};
};

} // namespace selector
} // namespace spar::inline v0_1
