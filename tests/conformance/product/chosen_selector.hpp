// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One type for several selectors, which chooses the selector when the test runs. Compositions with the type compile in
// half the time of compositions with each selector.
#pragma once

#include "support/models.hpp"

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>

namespace spar_test {

/// One of these selectors, with its state.
template <class... Selectors>
struct chosen_selector {
  static constexpr spar::slot fills = spar::slot::selector;
  static constexpr std::string_view name = "chosen_selector";

  struct state {
    std::tuple<spar::state_of<Selectors>...> of;

    void shared_state(auto&& f) {
      std::apply([&](auto&... each) { (visit_shared(each, f), ...); }, of);
    }
    void own_state(auto&& f) {
      std::apply([&](auto&... each) { (visit_own(each, f), ...); }, of);
    }

   private:
    template <class State, class F>
    static void visit_shared(State& each, F& f) {
      if constexpr (requires { each.shared_state(f); }) each.shared_state(f);
    }
    template <class State, class F>
    static void visit_own(State& each, F& f) {
      if constexpr (requires { each.own_state(f); }) each.own_state(f);
    }
  };

  std::variant<Selectors...> chosen;
  std::uint64_t period = 1; ///< number of calls after which the selector finds a new threshold

  void validate(std::uint64_t n) const {
    std::visit([&](const auto& select) { select.validate(n); }, chosen);
  }
  void options(auto&& f) const {
    std::visit([&](const auto& select) { select.options(f); }, chosen);
  }
  [[nodiscard]] spar::selector::topk_bounds bounds(std::uint64_t n) const {
    return std::visit([&](const auto& select) { return select.bounds(n); }, chosen);
  }

  template <class Index, class T, class Prepare>
  spar::ready<spar::sparse_stream<T, Index>> operator()(const spar::host_work& work, std::span<T> x, state& now,
                                                        const Prepare& prepare) const {
    const auto call = [&]<class Selector>(const Selector& by) -> spar::sparse_stream<T, Index> {
      return by.template operator()<Index>(work, x, std::get<index_of<Selector>>(now.of), prepare).await_resume();
    };
    return spar::ready(std::visit(call, chosen));
  }

 private:
  template <class Selector>
  static constexpr std::size_t index_of = [] {
    constexpr bool same[] = {std::same_as<Selector, Selectors>...};
    std::size_t i = 0;
    while (!same[i]) ++i;
    return i;
  }();
};

namespace detail {

struct has_bounds {
  template <class Selector>
  static constexpr bool value = spar::selector_with_bounds<Selector>;
};
template <class... Selectors>
chosen_selector<Selectors...> choice_of(const std::tuple<model<Selectors>...>&);

} // namespace detail

/// One of those in `all_selectors` that have bounds.
using bounded_selector = decltype(detail::choice_of(models_that(detail::has_bounds{}, all_selectors)));

/// These models, of which those that have bounds are bounded_selectors.
template <class... Selectors>
constexpr auto chosen(const std::tuple<model<Selectors>...>& selectors) {
  const auto choose = []<class Selector>(const model<Selector>& of) {
    if constexpr (!spar::selector_with_bounds<Selector>)
      return of;
    else if constexpr (requires { of.part.period; })
      return named_model(of.name, bounded_selector{of.part, of.part.period});
    else
      return named_model(of.name, bounded_selector{of.part});
  };
  return std::apply([&](const auto&... each) { return std::tuple{choose(each)...}; }, selectors);
}

} // namespace spar_test
