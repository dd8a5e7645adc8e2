// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that makes the same call several times, as users do in a loop.
#pragma once

#include <spar/spar.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace spar_test {

/// `Call` starts a collective: `call(net)` returns its handle. Each result is destroyed before the next call, as with
/// `auto sum = allreduce(...)` in a loop, or, if `kept`, replaced when the next result arrives, as with `sum =
/// allreduce(...)`.
template <class Call>
struct repeated {
  Call call;
  int times = 1;
  bool kept = false;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    using result = decltype(call(net).wait());
    if constexpr (std::is_void_v<result>) {
      for (int i = 0; i < times; ++i) {
        auto pending = call(net);
        co_await std::move(pending);
      }
    } else {
      std::optional<result> sum;
      for (int i = 0; i < times; ++i) {
        if (!kept) sum.reset();
        auto pending = call(net);
        auto next = co_await std::move(pending);
        sum.emplace(std::move(next));
      }
    }
  }
};

} // namespace spar_test
