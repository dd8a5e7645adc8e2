// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Algorithms of any type as one type. The code that starts a call, awaits it and keeps a residual is then compiled once
// for all systems, and for each system only the algorithm's own coroutines.
#pragma once

#include "measured_net.hpp"

#include <spar/collective/algorithm.hpp>
#include <spar/collective/selected_sum.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/threshold_reuse.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace spar::perf {

using channel = spar::channel<measured_net::port_type>;

/// Refers to an allreduce of dense values, of streams, or of both, whose owner keeps it alive.
template <class T, class Index>
class any_allreduce {
  using stream = spar::sparse_stream<T, Index>;
  using stream_view = spar::stream_view<T, Index>;

 public:
  static constexpr std::string_view name = "spar_perf";

  any_allreduce() = default;
  /// `system` and `algorithm` must outlive this object and its calls.
  template <class Algorithm>
  any_allreduce(const std::string& system, const Algorithm& algorithm)
      : system_(&system), object_(&algorithm), digest_(spar::digest_of(algorithm)) {
    if constexpr (spar::dense_allreduce<Algorithm, measured_net, T, spar::sum>) {
      values_ = [](const void* its, channel net, std::span<T> x, spar::sum op) {
        return object<Algorithm>(its)(net, x, op);
      };
      validate_values_ = [](const void* its, std::uint64_t n, spar::rank_t ranks) {
        spar::detail::validate_values<measured_net::port_type, T>(object<Algorithm>(its), n, ranks, spar::sum{});
      };
    }
    if constexpr (spar::stream_allreduce<Algorithm, measured_net, T, Index, spar::sum>) {
      streams_ = [](const void* its, channel net, stream_view mine, spar::sum op) {
        return object<Algorithm>(its)(net, mine, op);
      };
      validate_streams_ = [](const void* its, std::uint64_t n, spar::rank_t ranks) {
        object<Algorithm>(its).template validate<T>(n, ranks, spar::sum{});
      };
    }
  }

  template <spar::element U, class Op>
  void validate(std::uint64_t n, spar::rank_t ranks, const Op&) const {
    (streams_ != nullptr ? validate_streams_ : validate_values_)(object_, n, ranks);
  }
  template <class Net, spar::element U, class Op>
  void validate_values(std::uint64_t n, spar::rank_t ranks, const Op&) const {
    validate_values_(object_, n, ranks);
  }
  void options(auto&& f) const { f("system", std::string_view(*system_)), f("options", digest_); }
  spar::task<void> operator()(channel net, std::span<T> x, spar::sum op) const& { return values_(object_, net, x, op); }
  spar::task<stream> operator()(channel net, stream_view mine, spar::sum op) const& {
    return streams_(object_, net, mine, op);
  }

 private:
  template <class Algorithm>
  static const Algorithm& object(const void* its) noexcept {
    return *static_cast<const Algorithm*>(its);
  }

  const std::string* system_ = nullptr;
  const void* object_ = nullptr;
  std::uint64_t digest_ = 0;
  spar::task<void> (*values_)(const void*, channel, std::span<T>, spar::sum) = nullptr;
  spar::task<stream> (*streams_)(const void*, channel, stream_view, spar::sum) = nullptr;
  void (*validate_values_)(const void*, std::uint64_t, spar::rank_t) = nullptr;
  void (*validate_streams_)(const void*, std::uint64_t, spar::rank_t) = nullptr;
};

/// A copyable object of any type, which is created on first use.
class any_object {
 public:
  any_object() = default;
  any_object(const any_object& other) { *this = other; }
  any_object(any_object&&) = default;
  /// Reuses the memory of this object if both hold the same type.
  any_object& operator=(const any_object& other) {
    if (held_ && other.held_ && held_->type() == other.held_->type())
      held_->assign(*other.held_);
    else
      held_ = other.held_ ? other.held_->clone() : nullptr;
    return *this;
  }
  any_object& operator=(any_object&&) = default;

  /// Returns the object, which must be an Object if it exists.
  template <class Object>
  Object& get() {
    if (!held_) held_ = std::make_unique<holder<Object>>();
    return static_cast<holder<Object>&>(*held_).object;
  }
  /// Returns the object, which must exist and be an Object.
  template <class Object>
  const Object& get() const {
    return static_cast<const holder<Object>&>(*held_).object;
  }
  /// Visits the numbers of a state: those that are equal on all ranks, or the others.
  void visit(bool shared, const std::function<void(std::uint64_t)>& f) {
    if (held_) held_->visit(shared, f);
  }

 private:
  struct each_number {
    const std::function<void(std::uint64_t)>* f;
    void operator()(std::same_as<std::uint64_t> auto number) const { (*f)(number); }
    void operator()(const std::vector<std::uint64_t>& numbers) const {
      for (const std::uint64_t number : numbers) (*f)(number);
    }
  };
  struct base {
    virtual ~base() = default;
    [[nodiscard]] virtual std::unique_ptr<base> clone() const = 0;
    virtual void assign(const base& other) = 0;
    [[nodiscard]] virtual const void* type() const noexcept = 0;
    virtual void visit(bool shared, const std::function<void(std::uint64_t)>& f) = 0;
  };
  template <class Object>
  struct holder final : base {
    Object object{};

    [[nodiscard]] std::unique_ptr<base> clone() const override { return std::make_unique<holder>(*this); }
    void assign(const base& other) override { object = static_cast<const holder&>(other).object; }
    [[nodiscard]] const void* type() const noexcept override {
      static constexpr char tag = 0;
      return &tag;
    }
    void visit(bool shared, const std::function<void(std::uint64_t)>& f) override {
      const each_number visitor{&f};
      if constexpr (requires { object.shared_state(visitor), object.own_state(visitor); }) {
        if (shared)
          object.shared_state(visitor);
        else
          object.own_state(visitor);
      }
    }
  };

  std::unique_ptr<base> held_;
};

/// Refers to an algorithm for spar::error_feedback, whose owner keeps it alive.
template <class T, class Index>
class any_selecting {
 public:
  static constexpr std::string_view name = "spar_perf";

  struct state {
    any_object object;

    void shared_state(auto&& f) { object.visit(true, std::ref(f)); }
    void own_state(auto&& f) { object.visit(false, std::ref(f)); }
  };
  struct report {
    any_object object;
    double (*read_seconds)(const any_object&) = nullptr;

    /// Seconds of the last call for the selection; 0 if the algorithm does not report them.
    [[nodiscard]] double select_seconds() const { return read_seconds == nullptr ? 0 : read_seconds(object); }
  };

  any_selecting() = default;
  /// `system` and `algorithm` must outlive this object and its calls.
  template <class Algorithm>
  any_selecting(const std::string& system, const Algorithm& algorithm)
      : system_(&system), object_(&algorithm), digest_(spar::digest_of(algorithm)) {
    call_ = [](const void* its, channel net, state* now, report* last, std::span<T> x, spar::sum op,
               prepare_values prepare) {
      auto& concrete = last->object.template get<typename Algorithm::report>();
      if constexpr (requires { concrete.select_seconds; }) {
        last->read_seconds = [](const any_object& object) {
          return object.template get<typename Algorithm::report>().select_seconds;
        };
      }
      return static_cast<const Algorithm*>(its)->template reduce<Index>(
          net, &now->object.template get<typename Algorithm::state>(), &concrete, x, op, prepare);
    };
    validate_ = [](const void* its, std::uint64_t n, spar::rank_t ranks) {
      static_cast<const Algorithm*>(its)->template validate_parts<T>(n, ranks);
    };
    if constexpr (requires { algorithm.select.visit([](const auto&) {}); })
      algorithm.select.visit([this](const auto& select) { know<Algorithm>(select); });
    else if constexpr (requires { algorithm.select; })
      know<Algorithm>(algorithm.select);
    reports_seconds_ = requires(typename Algorithm::report r) { r.select_seconds; };
  }

  /// The selector, if it is one of those that devices have.
  using known_selector = std::variant<std::monostate, spar::selector::exact_topk, spar::selector::threshold_reuse>;
  [[nodiscard]] const known_selector& selector() const noexcept { return selector_; }
  /// Reduces entries that this selector has selected elsewhere (see spar::composition).
  spar::task<spar::selected_sum<T, Index>> reduce(channel net, any_object* now, any_object* last,
                                                  spar::sparse_stream<T, Index> mine, spar::residual_view<T> residual,
                                                  spar::sum op) const& {
    return reduce_(object_, net, now, last, std::move(mine), residual, op);
  }

  /// Whether the algorithm reports the time of the selection.
  [[nodiscard]] bool reports_seconds() const noexcept { return reports_seconds_; }

  template <spar::element U>
  void validate_parts(std::uint64_t n, spar::rank_t ranks) const {
    validate_(object_, n, ranks);
  }
  void options(auto&& f) const { f("system", std::string_view(*system_)), f("options", digest_); }
  template <spar::index_type I, class Prepare>
    requires std::same_as<I, Index>
  spar::task<spar::selected_sum<T, Index>> reduce(channel net, state* now, report* last, std::span<T> x, spar::sum op,
                                                  Prepare prepare) const& {
    return call_(object_, net, now, last, x, op, prepare_values(prepare));
  }

 private:
  /// Keeps the selector, if it is a known one.
  template <class Algorithm, class Selector>
  void know(const Selector& select) {
    if constexpr (requires { selector_.template emplace<Selector>(select); }) {
      selector_.template emplace<Selector>(select);
      reduce_ = [](const void* its, channel net, any_object* now, any_object* last, spar::sparse_stream<T, Index> mine,
                   spar::residual_view<T> residual, spar::sum op) {
        return static_cast<const Algorithm*>(its)->reduce_selected(net, &now->template get<typename Algorithm::state>(),
                                                                   &last->template get<typename Algorithm::report>(),
                                                                   std::move(mine), residual, op);
      };
    }
  }

  /// A copy of the function object that computes the values before the selection, without allocation.
  class prepare_values {
   public:
    template <class Prepare>
    explicit prepare_values(const Prepare& prepare) noexcept
        : call_([](const std::byte* its, std::size_t begin, std::size_t end) {
            (*std::launder(reinterpret_cast<const Prepare*>(its)))(begin, end);
          }) {
      static_assert(std::is_trivially_copyable_v<Prepare> && sizeof(Prepare) <= sizeof(copy_) &&
                    std::is_nothrow_invocable_v<const Prepare&, std::size_t, std::size_t>);
      ::new (static_cast<void*>(copy_)) Prepare(prepare);
    }
    void operator()(std::size_t begin, std::size_t end) const noexcept { call_(copy_, begin, end); }

   private:
    void (*call_)(const std::byte*, std::size_t, std::size_t);
    alignas(std::max_align_t) std::byte copy_[32]{};
  };

  const std::string* system_ = nullptr;
  const void* object_ = nullptr;
  std::uint64_t digest_ = 0;
  bool reports_seconds_ = false;
  spar::task<spar::selected_sum<T, Index>> (*call_)(const void*, channel, state*, report*, std::span<T>, spar::sum,
                                                    prepare_values) = nullptr;
  void (*validate_)(const void*, std::uint64_t, spar::rank_t) = nullptr;
  known_selector selector_;
  spar::task<spar::selected_sum<T, Index>> (*reduce_)(const void*, channel, any_object*, any_object*,
                                                      spar::sparse_stream<T, Index>, spar::residual_view<T>,
                                                      spar::sum) = nullptr;
};

} // namespace spar::perf
