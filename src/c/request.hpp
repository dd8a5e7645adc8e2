// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The non-blocking calls of the C interface.
#pragma once

#include "arguments.hpp"
#include "communicator.hpp"

#include <memory>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1::c {

/// A call that has started.
class request : public object {
 public:
  static constexpr kind handles = kind::request;

  request(spar_comm comm, std::shared_ptr<communicator> on) noexcept : comm_(comm), on_(std::move(on)) {}

  virtual bool done() = 0;
  virtual bool wait_for(double seconds) = 0;
  /// Waits for the call, and writes its results.
  virtual void wait() = 0;
  virtual void cancel() = 0;
  /// The handle of the communicator, which may be freed.
  [[nodiscard]] spar_comm comm() const noexcept { return comm_; }
  [[nodiscard]] communicator& on() const noexcept { return *on_; }

 private:
  spar_comm comm_;
  std::shared_ptr<communicator> on_; // outlives the call
};

/// The call of a `Pending`, whose result `Finish` writes. `Kept` is what must live as long as the call.
template <class Pending, class Finish, class Kept>
class started_call final : public request {
 public:
  template <class Start>
  started_call(spar_comm comm, std::shared_ptr<communicator> on, Kept kept, const Start& start, Finish finish)
      : request(comm, std::move(on)), kept_(std::move(kept)), call_(start()), finish_(std::move(finish)) {}

  bool done() override { return call_.done(); }
  bool wait_for(double seconds) override { return call_.wait_for(seconds); }
  void wait() override {
    if constexpr (std::is_void_v<decltype(call_.wait())>) {
      call_.wait();
      finish_();
    } else {
      finish_(call_.wait());
    }
  }
  void cancel() override { call_.cancel(); }

 private:
  Kept kept_;
  Pending call_;
  Finish finish_;
};

/// Starts the call `start()`, which returns its handle of C++, and returns its handle of C in `to`. When the call has
/// ended, `finish(result)` writes the result.
template <class Kept, class Start, class Finish>
void keep_call(spar_comm comm, std::shared_ptr<communicator> on, Kept kept, spar_request* to, const Start& start,
               Finish finish) {
  using call = started_call<std::invoke_result_t<const Start&>, Finish, Kept>;
  *to = handle_for<spar_request>(
      std::shared_ptr<request>(new call(comm, std::move(on), std::move(kept), start, std::move(finish))));
}

/// The same for a call that returns, if `to` is null, only when the call has ended.
template <class Kept, class Start, class Finish>
void make_call(spar_comm comm, std::shared_ptr<communicator> on, Kept kept, spar_request* to, const Start& start,
               Finish finish) {
  if (to != nullptr) return keep_call(comm, std::move(on), std::move(kept), to, start, std::move(finish));
  auto call = start();
  if constexpr (std::is_void_v<decltype(call.wait())>) {
    call.wait();
    finish();
  } else {
    finish(call.wait());
  }
}

} // namespace spar::inline v0_1::c
