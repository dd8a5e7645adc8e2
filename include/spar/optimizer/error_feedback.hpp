// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback: what a rank has not sent stays in its residual and is added to its next values (SparCML, algorithm 1;
// Ok-Topk, algorithm 2).
#pragma once

#include <spar/collective/finishing.hpp>
#include <spar/collective/pending.hpp>
#include <spar/collective/selected.hpp>
#include <spar/core/crc32c.hpp>
#include <spar/storage/kernel/dense.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar {

/// An allreduce that takes from dense values what it sends and leaves the rest. May have state: it is called on a copy,
/// which replaces the original when the call has succeeded. Rejects a dense allreduce, which leaves nothing behind.
template <class Algorithm, class Net, class T, class Index, class Op>
concept selecting_allreduce =
    std::copyable<Algorithm> && requires(Algorithm& algorithm, channel<Net> net, std::span<T> x, Op op) {
      { Algorithm::name } -> std::convertible_to<std::string_view>;
      { algorithm.template operator()<Index>(net, x, op) } -> std::same_as<task<selected_sum<T, Index>>>;
    };

struct feedback_options {
  bool reject_nan = false; ///< throw `invalid_argument` where a value is NaN, instead of sending it first
};

/// Sums over all ranks what `Algorithm` selects from the residual plus the new values, and keeps the rest as the next
/// residual: the sum and all ranks' residuals together are all that was ever brought. The residual and the algorithm's
/// state change only when a call succeeds. One call at a time; not for several threads at once.
template <element T, class Algorithm, index_type Index = std::uint32_t>
class error_feedback {
 public:
  using value_type = T;
  using algorithm_type = Algorithm;

  explicit error_feedback(Algorithm algorithm = {}, const feedback_options& options = {})
      : algorithm_(std::move(algorithm)), options_(options) {}
  error_feedback(const error_feedback&) = delete;

  /// In place: `x` becomes the sum, zero where nothing was selected. Unspecified after an error.
  /// Throws `invalid_argument` for bad options, where `x` has another length than the residual, and where a call has
  /// not ended; before anything is sent.
  template <transport Net, reduction<T> Op = sum>
  void operator()(Net& net, std::span<T> x, Op op = {}) {
    begin(detail::blocking{}, net, in_place{this}, x, op);
  }
  template <transport Net, reduction<T> Op = sum>
  auto start(Net& net, std::span<T> x, Op op = {}) {
    return begin(detail::nonblocking{}, net, in_place{this}, x, op);
  }

  /// Out of place: the sum and this rank's share of it, as streams.
  template <transport Net, reduction<T> Op = sum>
  selected_sum<T, Index> reduce(Net& net, std::span<const T> x, Op op = {}) {
    return begin(detail::blocking{}, net, out_of_place{this}, x, op);
  }
  template <transport Net, reduction<T> Op = sum>
  auto start_reduce(Net& net, std::span<const T> x, Op op = {}) {
    return begin(detail::nonblocking{}, net, out_of_place{this}, x, op);
  }

  /// What this rank has not sent yet; empty before the first call.
  [[nodiscard]] std::span<const T> residual() const noexcept { return residual_; }
  /// Replaces it: after tensors have moved to other buckets, or by the sum of the residuals of ranks that are gone.
  void set_residual(std::span<const T> values) {
    check_idle();
    residual_.assign(values.begin(), values.end());
  }
  /// The algorithm with its state: thresholds, boundaries and counters.
  [[nodiscard]] const Algorithm& algorithm() const noexcept { return algorithm_; }

  /// The residual and the algorithm's state, to go on in another run with as many ranks.
  [[nodiscard]] std::vector<std::byte> save() const {
    check_idle();
    std::vector<std::uint64_t> state;
    if constexpr (stateful) state = algorithm_.state_words();
    const saved_header head{saved_header::spar, code_of<T>, residual_.size(), state.size()};
    std::vector<std::byte> out;
    const auto append = [&](const void* data, std::size_t bytes) {
      const auto* const first = static_cast<const std::byte*>(data);
      out.insert(out.end(), first, first + bytes);
    };
    append(&head, sizeof head);
    append(state.data(), state.size() * sizeof(std::uint64_t));
    append(residual_.data(), residual_.size() * sizeof(T));
    const std::uint32_t checksum = crc32c(out.data(), out.size());
    append(&checksum, sizeof checksum);
    return out;
  }
  /// Goes on from what `save` returned. Throws `invalid_argument`, and changes nothing, where it is damaged or of
  /// another type.
  void load(std::span<const std::byte> saved) {
    check_idle();
    const saved_parts parts = check_saved(saved);
    Algorithm algorithm = algorithm_;
    if constexpr (stateful) algorithm.set_state_words(parts.state);
    residual_ = parts.residual;
    algorithm_ = std::move(algorithm);
  }
  /// Adds the residual in what another rank of an earlier job `save`d: a job with another number of ranks takes over
  /// each saved residual on one of its ranks, so that nothing is lost.
  void take_over(std::span<const std::byte> saved) {
    check_idle();
    const saved_parts parts = check_saved(saved);
    if (residual_.empty()) residual_.resize(parts.residual.size());
    if (!parts.residual.empty() && parts.residual.size() != residual_.size()) {
      raise<invalid_argument>(
          {"a saved residual has length ", parts.residual.size(), ", the one that takes it over ", residual_.size()});
    }
    if (!parts.residual.empty()) kernel::reduce(residual_.data(), parts.residual.data(), residual_.size(), sum{});
  }

 private:
  static constexpr bool stateful = requires(Algorithm& a, std::span<const std::uint64_t> words) {
    { std::as_const(a).state_words() } -> std::same_as<std::vector<std::uint64_t>>;
    a.set_state_words(words);
  };

  /// In front of the state's words and the residual; a CRC-32C of everything follows them. In the machine's byte order.
  struct saved_header {
    static constexpr std::uint64_t spar = 0x3146'4552'4150'5301; // with the version

    std::uint64_t magic;
    element_code element;
    std::uint64_t length;
    std::uint64_t words;
  };
  struct saved_parts {
    std::vector<std::uint64_t> state;
    std::vector<T> residual;
  };
  static saved_parts check_saved(std::span<const std::byte> saved) {
    saved_header head{};
    std::uint32_t checksum = 0;
    if (saved.size() < sizeof head + sizeof checksum) {
      raise<invalid_argument>({"a saved residual of ", saved.size(), " bytes is too short"});
    }
    std::memcpy(&head, saved.data(), sizeof head);
    const std::size_t body = saved.size() - sizeof checksum;
    std::memcpy(&checksum, saved.data() + body, sizeof checksum);
    if (head.magic != saved_header::spar || checksum != crc32c(saved.data(), body)) {
      throw invalid_argument("a saved residual is damaged, or it is none");
    }
    if (head.element != code_of<T>) throw invalid_argument("a saved residual has another type of values");
    const std::size_t rest = body - sizeof head;
    if (head.words > rest / sizeof(std::uint64_t) || head.length > rest / sizeof(T) ||
        head.words * sizeof(std::uint64_t) + head.length * sizeof(T) != rest) {
      raise<invalid_argument>({"a saved residual of ", saved.size(), " bytes cannot hold ", head.length, " values"});
    }
    saved_parts parts{std::vector<std::uint64_t>(head.words), std::vector<T>(head.length)};
    const std::byte* const words = saved.data() + sizeof head;
    if (head.words > 0) std::memcpy(parts.state.data(), words, head.words * sizeof(std::uint64_t));
    if (head.length > 0) {
      std::memcpy(parts.residual.data(), words + head.words * sizeof(std::uint64_t), head.length * sizeof(T));
    }
    return parts;
  }

  /// The call as a coroutine, which refers to the object that it belongs to.
  struct out_of_place {
    static constexpr std::string_view name = Algorithm::name;
    error_feedback* its;

    template <transport Net, class Op>
    task<selected_sum<T, Index>> operator()(channel<Net> net, std::span<const T> x, Op op) const& {
      const under_way mine(*its);
      its->accumulate(x);
      its->next_ = its->algorithm_;
      selected_sum<T, Index> result =
          co_await its->next_.template operator()<Index>(net, std::span<T>(its->accumulated_), op);
      if constexpr (detail::finishes<Op, T>) detail::finish_values(result.sum.values(), op, net.size());
      std::swap(its->residual_, its->accumulated_);
      std::swap(its->algorithm_, its->next_);
      co_return result;
    }
  };
  struct in_place {
    static constexpr std::string_view name = Algorithm::name;
    error_feedback* its;

    template <transport Net, class Op>
    task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
      const out_of_place call{its};
      const selected_sum<T, Index> result = co_await call(net, std::span<const T>(x), op);
      result.sum.to_dense(x);
    }
  };

  class under_way {
   public:
    explicit under_way(error_feedback& its) noexcept : its_(&its) { its.busy_ = true; }
    under_way(const under_way&) = delete;
    ~under_way() { its_->busy_ = false; }

   private:
    error_feedback* its_;
  };

  template <class Mode, class Net, class Call, class U, class Op>
  auto begin(Mode mode, Net& net, Call call, std::span<U> x, Op op) {
    static_assert(std::same_as<Op, sum> || std::same_as<Op, average>,
                  "error feedback adds what was not sent to later values: its operation is sum or average");
    static_assert(selecting_allreduce<Algorithm, Net, T, Index, Op>,
                  "this algorithm does not allreduce what it selects: it must be callable as "
                  "algorithm.operator()<Index>(channel<Net>, std::span<T>, Op) -> task<selected_sum<T, Index>>");
    check_idle();
    if (!residual_.empty() && residual_.size() != x.size()) {
      raise<invalid_argument>({"the values have length ", x.size(), ", the residual ", residual_.size()});
    }
    if (x.size() > 0 && x.size() - 1 > std::numeric_limits<Index>::max()) {
      raise<invalid_argument>({x.size(), " values are beyond ", 8 * sizeof(Index), "-bit indices"});
    }
    if constexpr (is_floating<T>) {
      if (options_.reject_nan) check_numbers(x);
    }
    std::uint64_t option = 0;
    if constexpr (requires { algorithm_.validate(x.size()); }) algorithm_.validate(x.size());
    if constexpr (requires { algorithm_.agreed(); }) option = algorithm_.agreed();
    return mode(net, signature_of<T, Index, Algorithm, Op>(x.size(), option), call, x, op);
  }

  void check_idle() const {
    if (busy_) throw invalid_argument("an error feedback's call has not ended: it has one residual for one at a time");
  }

  static void check_numbers(std::span<const T> x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] != x[i]) raise<invalid_argument>({"the value at index ", i, " is NaN"});
    }
  }

  void accumulate(std::span<const T> x) {
    accumulated_.resize(x.size());
    if (residual_.empty())
      std::copy(x.begin(), x.end(), accumulated_.begin());
    else
      kernel::combine(accumulated_.data(), residual_.data(), x.data(), x.size(), sum{});
  }

  Algorithm algorithm_;
  Algorithm next_{}; // of the call that is under way, as the accumulated values
  feedback_options options_;
  std::vector<T> residual_;
  std::vector<T> accumulated_;
  bool busy_ = false;
};

} // namespace spar
