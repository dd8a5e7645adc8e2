// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A combination of policies as one type: what is selected, and how it is reduced and stored on the way.
#pragma once

#include <spar/selector/all.hpp>
#include <spar/system/allreduce.hpp>

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace spar {

/// An allreduce of dense values that sends only what `Selector` takes from them, by `Algorithm` (which has a slot of
/// its own for storage, see with_storage). In place: `x` becomes the sum of what all ranks
/// selected. What was not selected is dropped; `error_feedback` keeps it.
template <class Selector = selector::all, class Algorithm = sparcml>
struct collective {
  static constexpr std::string_view name = Algorithm::name;

  Selector select{};
  Algorithm algorithm{};

  template <element T, reduction<T> Op>
  void validate(std::span<T> x, const Op& op) const {
    if (op.template neutral<T>() != T{}) {
      throw invalid_argument(
          "a selector leaves zeros out, so a collective of selected entries needs an operation whose "
          "neutral element is zero");
    }
    if (x.size() > std::numeric_limits<std::uint32_t>::max()) {
      raise<invalid_argument>(
          {"a collective of selected entries has 32-bit indices, too few for ", x.size(), " values"});
    }
    if constexpr (requires { select.validate(x.size()); }) select.validate(x.size());
  }

  [[nodiscard]] std::uint64_t agreed() const noexcept { return detail::agreed_by(algorithm); }

  template <transport Net, element T, reduction<T> Op>
    requires selects<Selector, T, std::uint32_t>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    static_assert(selects<const Selector, T, std::uint32_t>,
                  "this selector changes from call to call, but a collective has no state to keep: call the selector "
                  "yourself and allreduce its stream");
    const stream<T> mine = select.template operator()<std::uint32_t>(x, net.memory());
    spar::validate(mine.view());
    detail::validate_call(algorithm, net.size(), mine.view(), op);
    const stream<T> sum = co_await algorithm(net, mine.view(), op);
    sum.to_dense(x, op.template neutral<T>());
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
