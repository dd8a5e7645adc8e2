// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicators of the C interface over UCX.
#include "arguments.hpp"
#include "communicator.hpp"

#include <spar/spar_ucx.h>

#include <spar/any_ucx.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace spar::inline v0_1::c {

namespace {

/// The store of a program in C.
class store_of_c final : public rendezvous_store {
 public:
  explicit store_of_c(const spar_store& functions) : functions_(functions) {
    if (functions.put == nullptr) raise<invalid_argument>({"the function 'put' of 'store' is NULL"});
    if (functions.wait == nullptr) raise<invalid_argument>({"the function 'wait' of 'store' is NULL"});
  }

  std::string put(std::string_view key, std::string_view value) override {
    answer got;
    const int status = functions_.put(functions_.context, std::string(key).c_str(), value.data(),
                                      signed_of(value.size()), &give, &got);
    std::optional<std::string> kept = std::move(got).take(status, "put");
    if (!kept) raise<transport_error>({"the function 'put' of the store has passed no value to 'answer'"});
    return *std::move(kept);
  }
  std::optional<std::string> wait(std::string_view key, double seconds) override {
    answer got;
    const int status = functions_.wait(functions_.context, std::string(key).c_str(), seconds, &give, &got);
    return std::move(got).take(status, "wait");
  }

 private:
  /// What a function of the store has passed to `give`.
  struct answer {
    std::optional<std::string> value;
    std::exception_ptr error;

    /// The value after the `function` has returned `status`.
    std::optional<std::string> take(int status, const char* function) && {
      if (error) std::rethrow_exception(error);
      if (status != 0)
        raise<transport_error>({"the function '", function, "' of the store has returned ", status, "; expected 0"});
      return std::move(value);
    }
  };
  /// Called by functions in C, which no exception may cross.
  static void give(void* to, const void* value, std::int64_t length) noexcept {
    answer& got = *static_cast<answer*>(to);
    try {
      if (length < 0 || (length > 0 && value == nullptr)) {
        raise<transport_error>({"a function of the store has passed ", length, " bytes",
                                value == nullptr ? " at NULL" : "", " to 'answer'"});
      }
      got.value.emplace(static_cast<const char*>(value), static_cast<std::size_t>(length));
    } catch (...) {
      got.error = std::current_exception();
    }
  }

  spar_store functions_;
};

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar::c;

namespace {

/// The call `function` of the C interface, which makes a communicator of what `make()` returns.
template <class Make>
int make_communicator(const char* function, spar_comm* comm, const Make& make) noexcept {
  return guarded(function, nullptr, [&] {
    begin_output(comm, "comm");
    *comm = handle_for<spar_comm>(std::make_shared<communicator>(make()));
  });
}

std::shared_ptr<store_of_c> shared_store(const spar_store* store) {
  check_pointer(store, "store");
  return std::make_shared<store_of_c>(*store);
}

} // namespace

extern "C" {

int spar_comm_from_environment(spar_comm* comm) {
  return make_communicator(__func__, comm, [] { return spar::any_ucx(); });
}

int spar_comm_from_store(const spar_store* store, int rank, int ranks, spar_comm* comm) {
  return make_communicator(__func__, comm,
                           [&] { return spar::any_ucx(spar::rendezvous(shared_store(store), rank, ranks)); });
}

int spar_comm_join(spar_comm* comm) {
  return make_communicator(__func__, comm, [] { return spar::any_ucx_join(); });
}

int spar_comm_join_store(const spar_store* store, spar_comm* comm) {
  return make_communicator(__func__, comm, [&] { return spar::any_ucx_join(shared_store(store)); });
}

} // extern "C"
