// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Partial reducers in the C interface.
#include "algorithm.hpp"
#include "request.hpp"
#include "stream.hpp"

#include <spar/system/partial_allreduce.hpp>
#include <spar/transport/any.hpp>

#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>
#include <system_error>

namespace spar::inline v0_1::c {

/// An operation of C, as a partial allreduce takes it.
struct partial_operation : detail::chosen_operation {
  void options(auto&& f) const {
    f("kind", static_cast<std::uint64_t>(chosen.which()));
    detail::chosen_operation::options(f);
  }
  template <class T>
  [[nodiscard]] T finalize(T total, std::int64_t ranks) const {
    return chosen.which() == any_operation::kind::average ? average::finalize(total, ranks) : total;
  }
};

/// The allreduce of a composition's text, as a partial allreduce takes it.
template <class T>
class text_algorithm {
 public:
  static constexpr std::string_view name = "composition";

  text_algorithm(communicator& on, const char* text) : object_(algorithm_of<T, std::uint32_t>(on, text)) {
    object_->release(); // the first owner was this function
  }

  void options(auto&& f) const {
    detail::bounded_text text;
    object_->describe(text);
    f("composition", text.view());
  }
  template <element U, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
    static_cast<void>(object_->prepare_values(n, ranks, op.chosen));
  }
  task<void> operator()(channel<any_port> net, std::span<T> x, partial_operation op) const& {
    return object_->reduce(net, x, op.chosen);
  }

 private:
  detail::shared<detail::allreduce_object<T, std::uint32_t>> object_;
};

/// A partial allreduce.
class partial_reducer : public object {
 public:
  static constexpr kind handles = kind::partial;

  partial_reducer(spar_comm comm, std::shared_ptr<communicator> on, used_operation by) noexcept
      : comm_(comm), on_(std::move(on)), by_(std::move(by)) {}

  /// Makes the next call or, if `last`, drains. Starts the call if `request` is not null.
  virtual void reduce(const std::shared_ptr<partial_reducer>& self, void* values, std::int64_t n, int* presence,
                      bool last, spar_request* request) = 0;

  /// The handle of the communicator, to which errors are reported.
  [[nodiscard]] spar_comm comm() const noexcept { return comm_; }
  [[nodiscard]] const std::shared_ptr<communicator>& on() const noexcept { return on_; }

 private:
  spar_comm comm_;
  std::shared_ptr<communicator> on_;
  used_operation by_;
};

template <class T, class Participation>
class typed_reducer final : public partial_reducer {
 public:
  typed_reducer(spar_comm comm, const std::shared_ptr<communicator>& on, std::uint64_t n, const used_operation& by,
                const Participation& who, const char* algorithm, std::uint64_t tau)
      : partial_reducer(comm, on, by),
        partial_(partial_allreduce<T>(on->net(), n, who, text_algorithm<T>(*on, algorithm),
                                      partial_operation{{by.what}}, {.tau = tau})) {}

  void reduce(const std::shared_ptr<partial_reducer>& self, void* values, std::int64_t n, int* presence, bool last,
              spar_request* request) override {
    const auto x = checked_array<T>(values, n, "values");
    const auto finish = [presence, ranks = on()->net().size()](const participants& who) {
      for (rank_t r = 0; presence != nullptr && r < ranks; ++r) presence[r] = static_cast<int>(who[r]);
    };
    make_call(comm(), on(), self, request, [&] { return last ? partial_.start_drain(x) : partial_.start(x); }, finish);
  }

 private:
  decltype(partial_allreduce<T>(std::declval<any_transport&>(), 0, Participation(), std::declval<text_algorithm<T>>(),
                                partial_operation())) partial_;
};

namespace {

/// Calls `f` with the participation that `text` names.
template <class F>
auto for_participation(std::string_view text, const F& f) {
  if (text == everyone::name) return f(everyone());
  if (text == solo::name) return f(solo());
  if (text == majority::name) return f(majority());
  constexpr std::string_view prefix = "quorum:";
  if (text.starts_with(prefix)) {
    quorum who;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + prefix.size(), last, who.q);
    if (error == std::errc() && end == last) return f(who);
  }
  raise<invalid_argument>(
      {"'participation' is '", text, "'; expected everyone, solo, majority or quorum:Q, such as quorum:3"});
}

/// The communicator of `partial`, to which errors are reported; NULL if the handle is invalid.
spar_comm communicator_of(spar_partial partial) noexcept {
  if (!is_handle(kind::partial, reinterpret_cast<std::uintptr_t>(partial))) return nullptr;
  return get<partial_reducer>(partial, "partial").comm();
}

void reduce(spar_partial partial, void* values, std::int64_t n, int* presence, bool last, spar_request* request) {
  const auto its = shared_from<partial_reducer>(partial, "partial");
  its->on()->check_open();
  its->reduce(its, values, n, presence, last, request);
}

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar;
using namespace spar::c;

extern "C" {

int spar_partial_create(spar_comm comm, int64_t n, int type, spar_op op, const char* participation,
                        const char* algorithm, int64_t tau, spar_partial* partial) {
  return guarded(__func__, comm, [&] {
    const auto on = open_communicator(comm);
    begin_output(partial, "partial");
    check_pointer(participation, "participation");
    const std::uint64_t count = checked_count(n, "n"), ahead = checked_count(tau, "tau");
    const used_operation by = operation_of(op, type);
    *partial = for_type(type, [&]<class T>(std::type_identity<T>) {
      return for_participation(participation, [&]<class Who>(const Who& who) {
        return handle_for<spar_partial>(std::shared_ptr<partial_reducer>(
            std::make_shared<typed_reducer<T, Who>>(comm, on, count, by, who, algorithm, ahead)));
      });
    });
  });
}

int spar_partial_reduce(spar_partial partial, void* values, int64_t n, int presence[]) {
  return guarded(__func__, communicator_of(partial), [&] { reduce(partial, values, n, presence, false, nullptr); });
}
int spar_start_partial_reduce(spar_partial partial, void* values, int64_t n, int presence[], spar_request* request) {
  return guarded(__func__, communicator_of(partial), [&] {
    begin_output(request, "request");
    reduce(partial, values, n, presence, false, request);
  });
}
int spar_partial_drain(spar_partial partial, void* values, int64_t n, int presence[]) {
  return guarded(__func__, communicator_of(partial), [&] { reduce(partial, values, n, presence, true, nullptr); });
}
int spar_start_partial_drain(spar_partial partial, void* values, int64_t n, int presence[], spar_request* request) {
  return guarded(__func__, communicator_of(partial), [&] {
    begin_output(request, "request");
    reduce(partial, values, n, presence, true, request);
  });
}

int spar_partial_free(spar_partial* partial) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(partial, "partial");
    if (*partial == nullptr) return;
    get<partial_reducer>(*partial, "partial").on()->check_open();
    take<partial_reducer>(partial, "partial");
  });
}

} // extern "C"
