// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for values in device memory: those of the compiled library over a flat topology that have kernels.
#pragma once

#include "calls.cuh"

#include <spar/cuda/values/named_codec.cuh>
#include <spar/cuda_feedback.cuh>
#include <spar/system/any/allreduce_object.hpp>
#include <spar/system/any/systems-inl.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace spar::inline v0_1::c {

/// Whether this library contains a composition over a flat topology.
template <class T, class Selector, class Storage, class Schedule>
constexpr bool in_device_library() {
  if constexpr (!detail::in_library<T, std::uint32_t, Selector, Storage, flat, Schedule>() || sums_in_code<Storage>)
    return false;
  else
    return detail::runs_on_device<composition<Selector, Storage, flat, Schedule>, T>;
}

/// Throws `invalid_argument` unless there are kernels for the options of the codecs of `algorithm`.
template <class T, class Composition>
void check_codecs(const Composition& algorithm) {
  using storage_type = typename Composition::storage_type;
  if constexpr (!detail::reduces_values_alone<Composition>) detail::check_codec_on_device(algorithm);
  if constexpr (!storage::plain_blocks<storage_type>)
    detail::device_codec<storage::named_codec>::visit<T>(storage::blocks_of(algorithm.store), [](const auto&) {});
}

/// Calls `f(algorithm)` with the composition of the parts `of`, whose selector is a `Selector`, and returns its result.
template <class T, class Selector, class F>
auto with_composition(const composition_text& of, const F& f) {
  using result = std::invoke_result_t<const F&, const composition<Selector, storage::coo, flat, cheapest>&>;
  const auto call = [&]<class Storage, class Schedule>(const Storage& store, const Schedule& by) -> result {
    using verdict = verdict_of<Selector, Storage, flat, Schedule>;
    if constexpr (!composes<verdict>) {
      of.refuse(verdict::sentence);
    } else if constexpr (!in_device_library<T, Selector, Storage, Schedule>()) {
      refuse_composition<T>(of);
    } else {
      const auto algorithm = detail::composition_of(std::get<Selector>(of.select), store, flat{}, by);
      check_codecs<T>(algorithm);
      return f(algorithm);
    }
  };
  if (of.over != topology_text::flat)
    raise<invalid_argument>({"'", of.text,
                             "' has a tree, over which this library has no kernels; pass values in host "
                             "memory, or name a composition over the topology flat"});
  return std::visit(call, of.store, of.by);
}

/// An allreduce of the sum or the average, by the schedule of the sum.
template <class Composition>
struct sum_or_average {
  static constexpr std::string_view name = Composition::name;
  Composition algorithm;

  void options(auto&& f) const { algorithm.options(f); }

  template <transport Net, element T>
  task<void> operator()(channel<Net> net, std::span<T> x, bool averages) const& {
    const sum op;
    auto running = algorithm(net, x, op);
    co_await std::move(running);
    if (averages) net.work().finalize(x, average{}, net.size());
  }
};

/// Throws `invalid_argument` unless `op` is the sum or the average. Returns whether it is the average.
inline bool is_average(any_operation op) {
  const auto which = op.which();
  if (which != any_operation::kind::sum && which != any_operation::kind::average) {
    raise<invalid_argument>({"there are no kernels for this operation on values in device memory; expected SPAR_SUM (",
                             int{SPAR_SUM}, ") or SPAR_AVERAGE (", int{SPAR_AVERAGE}, "), or values in host memory"});
  }
  return which == any_operation::kind::average;
}

template <class T, class Selector>
std::shared_ptr<request> start_selected(const composition_text& of, any_operation op, const device_caller* by,
                                        device_span<T> x) {
  const bool averages = is_average(op);
  return with_composition<T, Selector>(of, [&](const auto& algorithm) -> std::shared_ptr<request> {
    if (by == nullptr) return nullptr;
    return device_request_of(*by, nullptr, [&] {
      const auto order = by->rank->begin(algorithm, x);
      auto& net = by->rank->transport();
      using composition_type = std::remove_cvref_t<decltype(algorithm)>;
      const signature agreed = detail::or_abort(net, [&] {
        return detail::by_any_operation<composition_type, true>{algorithm}.template prepare<T, no_indices>(
            x.size, net.size(), op);
      });
      return pending_on_device<device_rank::port_type>(
          order,
          start_collective(net, agreed, sum_or_average<composition_type>{algorithm}, device_rank::values(x), averages));
    });
  });
}

/// Error feedback around `Composition` in device memory.
template <class T, class Composition>
class feedback_of final : public device_feedback_object<T>,
                          feedback_core<T, Composition, std::uint32_t, detail::device_store<T, std::uint32_t>> {
  using core = feedback_core<T, Composition, std::uint32_t, detail::device_store<T, std::uint32_t>>;
  using out_of_place = typename core::out_of_place;
  using under_way = typename core::under_way;
  using pending = pending_on_device<device_rank::port_type, under_way>;

  /// The call of the sum or the average, by the schedule of the sum.
  struct in_place : out_of_place {
    using out_of_place::out_of_place;

    template <transport Net, class Op>
    task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
      const sum adds;
      auto running = out_of_place::operator()(net, std::span<const T>(x), adds);
      selected_sum<T, std::uint32_t> result = co_await std::move(running);
      if constexpr (detail::has_finalize<Op, T>) net.work().finalize(result.sum.values(), op, net.size());
      net.work().write_dense(result.sum.view(), x, op);
    }
  };

 public:
  explicit feedback_of(const Composition& algorithm) : core(algorithm) {}

  [[nodiscard]] std::vector<std::byte> save() const override {
    const detail::home_device::scope here(this->store_.device());
    return or_transport_error([&] { return core::save(); });
  }
  void load(std::span<const std::byte> saved) override {
    or_transport_error([&] { core::load(saved); });
  }
  [[nodiscard]] std::shared_ptr<request> start(std::shared_ptr<object> self, const device_caller& by, device_span<T> x,
                                               any_operation op) override {
    const bool averages = is_average(op);
    return device_request_of(by, std::move(self),
                             [&] { return averages ? start_by(by, x, average{}) : start_by(by, x, sum{}); });
  }

 private:
  template <class Op>
  pending start_by(const device_caller& by, device_span<T> x, Op op) {
    auto& net = by.rank->transport();
    this->store_.device().check_current(net, "device_feedback");
    const auto order = by.rank->begin(this->algorithm(), x);
    under_way call(*this);
    auto reduce = detail::or_abort(net, [&] {
      return this->template prepare_call<in_place>(net, under_way(), device_rank::values(x), x.size, op);
    });
    return pending(order, reduce.start(), std::move(call));
  }
};

template <class T>
std::shared_ptr<device_feedback_object<T>> feedback_on_device_by(const composition_text& of, bool make) {
  using result = std::shared_ptr<device_feedback_object<T>>;
  return with_composition<T, selector::named_selector>(
      of, [&]<class Composition>(const Composition& algorithm) -> result {
        if (!make) return nullptr;
        return or_transport_error([&] { return std::make_shared<feedback_of<T, Composition>>(algorithm); });
      });
}

} // namespace spar::inline v0_1::c

#define SPAR_DEVICE_ALLREDUCE(T, Selector)                                                                             \
  template std::shared_ptr<spar::c::request> spar::c::start_selected<T, spar::Selector>(                               \
      const spar::composition_text& of, spar::any_operation op, const spar::c::device_caller* by,                      \
      spar::device_span<T> x)
#define SPAR_DEVICE_FEEDBACK(T)                                                                                        \
  template std::shared_ptr<spar::c::device_feedback_object<T>> spar::c::feedback_on_device_by(                         \
      const spar::composition_text& of, bool make)
