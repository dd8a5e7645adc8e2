// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Owns what UCX has of a rank: a context, which the communicators of a process share, and the worker of one.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/transport/ucx/settings.hpp>

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

namespace spar::inline v0_1::detail {

/// Throws std::bad_alloc if UCX has no memory, and `transport_error` with the name `call` of a UCX function, UCX's
/// error text and the variables that choose how messages travel for any other `status` but UCS_OK.
inline void check_ucx(ucs_status_t status, const char* call) {
  if (status == UCS_OK) return;
  if (status == UCS_ERR_NO_MEMORY) throw std::bad_alloc();
  raise<transport_error>({call, " failed: ", ucs_status_string(status), "; ", ucx_setting("UCX_TLS"), " and ",
                          ucx_setting("UCX_NET_DEVICES")});
}

/// Starts UCX for about `ranks` ranks, with the settings of the variables UCX_.... Where they say nothing: only on the
/// network interface `device`, if it is not empty; with TCP connections that open while the rank does other work,
/// because UCX ends the program by an assertion if one fails at once; and with a payload of less than 128 KiB copied on
/// its way, because the sender's notice and the receiver's answer then take longer than the copies, by shared memory
/// and by TCP.
inline std::shared_ptr<ucp_context> make_ucx_context(const std::string& device, rank_t ranks) {
  struct deleter {
    void operator()(ucp_config_t* settings) const noexcept { ucp_config_release(settings); }
  };
  ucp_config_t* read = nullptr;
  check_ucx(ucp_config_read(nullptr, nullptr, &read), "ucp_config_read");
  const std::unique_ptr<ucp_config_t, deleter> settings(read);
  if (!device.empty() && std::getenv("UCX_NET_DEVICES") == nullptr)
    check_ucx(ucp_config_modify(settings.get(), "NET_DEVICES", device.c_str()), "ucp_config_modify");
  if (std::getenv("UCX_TCP_CONN_NB") == nullptr && ucx_uses_tcp()) {
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version(&major, &minor, &release);
    // UCX before 1.17 expects the name without that of the transport. UCX warns of a setting that it does not use.
    (void)ucp_config_modify(settings.get(), major > 1 || minor >= 17 ? "TCP_CONN_NB" : "CONN_NB", "y");
  }
  if (std::getenv("UCX_RNDV_THRESH") == nullptr)
    check_ucx(ucp_config_modify(settings.get(), "RNDV_THRESH", "128k"), "ucp_config_modify");
  ucp_params_t wanted{};
  wanted.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  wanted.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  wanted.mt_workers_shared = 1; // threads may use different communicators at the same time
  wanted.estimated_num_eps = static_cast<std::size_t>(ranks);
  ucp_context_h made = nullptr;
  check_ucx(ucp_init(&wanted, settings.get(), &made), "ucp_init");
  return {made, &ucp_cleanup};
}

/// The payload of an active message: its pieces, none of which is empty. One in device memory has a single piece,
/// because UCX would copy several of them in short fragments, and wait for the device after each.
struct ucx_payload {
  std::span<const ucp_dt_iov_t> pieces;
  bool on_device = false;
};

/// The worker of one rank, by which the rank sends and receives. One thread at a time uses the worker.
class ucx_worker {
 public:
  explicit ucx_worker(std::shared_ptr<ucp_context> context) : context_(std::move(context)) {
    ucp_worker_params_t wanted{};
    wanted.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    wanted.thread_mode = UCS_THREAD_MODE_SERIALIZED; // a progress_thread and the application take turns
    ucp_worker_h made = nullptr;
    check_ucx(ucp_worker_create(context_.get(), &wanted, &made), "ucp_worker_create");
    worker_.reset(made);
  }

  [[nodiscard]] ucp_worker_h get() const noexcept { return worker_.get(); }
  [[nodiscard]] const std::shared_ptr<ucp_context>& context() const noexcept { return context_; }
  /// The address by which other ranks open endpoints to this worker.
  [[nodiscard]] std::string address() const {
    ucp_address_t* bytes = nullptr;
    std::size_t length = 0;
    check_ucx(ucp_worker_get_address(get(), &bytes, &length), "ucp_worker_get_address");
    const auto release = [this](ucp_address_t* own) { ucp_worker_release_address(get(), own); };
    const std::unique_ptr<ucp_address_t, decltype(release)> owned(bytes, release);
    return {reinterpret_cast<const char*>(bytes), length};
  }
  /// Whether UCX says that it sends from and receives in memory of CUDA devices. The protocols of UCX before 1.16 fail
  /// at some transfers between host and device memory (issues 7921 and 9373 of UCX).
  [[nodiscard]] bool takes_device_memory() const {
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version(&major, &minor, &release);
    if (major == 1 && minor < 16) return false;
    ucp_context_attr_t own{};
    own.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
    check_ucx(ucp_context_query(context_.get(), &own), "ucp_context_query");
    return (own.memory_types >> UCS_MEMORY_TYPE_CUDA & 1) != 0;
  }
  /// Makes UCX pass each active message to `handler(self, ...)`.
  void on_message(ucp_am_recv_callback_t handler, void* self) const {
    ucp_am_handler_param_t wanted{};
    wanted.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    wanted.id = message_id;
    wanted.cb = handler;
    wanted.arg = self;
    check_ucx(ucp_worker_set_am_recv_handler(get(), &wanted), "ucp_worker_set_am_recv_handler");
  }
  /// Opens an endpoint to the worker with `address`. UCX calls `on_failure(self, ...)` when a transfer fails, without
  /// which it would end the program, or, if `is_watched`, when the connection fails: shared memory has no connections
  /// that UCX could watch.
  [[nodiscard]] ucp_ep_h connect(const std::string& address, bool is_watched, ucp_err_handler_cb_t on_failure,
                                 void* self) const {
    ucp_ep_params_t wanted{};
    wanted.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    wanted.address = reinterpret_cast<const ucp_address_t*>(address.data());
    wanted.err_mode = is_watched ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    wanted.err_handler = {on_failure, self};
    ucp_ep_h made = nullptr;
    check_ucx(ucp_ep_create(get(), &wanted, &made), "ucp_ep_create");
    return made;
  }

  /// Sends an active message with the header `head` and the payload `what`. Returns null if the message has left, an
  /// error, or a request, for which UCX calls `ended(request, status, record)` later. `flags` are those of
  /// `ucp_am_send_nbx`.
  [[nodiscard]] static void* send(ucp_ep_h endpoint, std::span<const std::byte> head, const ucx_payload& what,
                                  ucp_send_nbx_callback_t ended, void* record, std::uint32_t flags) {
    transfer all(what, record);
    all.how.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    all.how.flags = flags;
    all.how.cb.send = ended;
    return ucp_am_send_nbx(endpoint, message_id, head.data(), head.size(), all.place, all.count, &all.how);
  }
  /// Brings the payload of an active message that is still at its sender, and which UCX calls `descriptor`, to the
  /// place `to`. Returns what `send` returns, except that UCX may have called `ended` already.
  [[nodiscard]] void* fetch(void* descriptor, const ucx_payload& to, ucp_am_recv_data_nbx_callback_t ended,
                            void* record) const {
    transfer all(to, record);
    all.how.cb.recv_am = ended;
    return ucp_am_recv_data_nbx(get(), descriptor, all.place, all.count, &all.how);
  }

  /// The file descriptor that becomes readable after `arm`.
  [[nodiscard]] int descriptor() const {
    int own = -1;
    check_ucx(ucp_worker_get_efd(get(), &own), "ucp_worker_get_efd");
    return own;
  }
  /// Makes the descriptor readable at the next event. Returns false if there are events already.
  [[nodiscard]] bool arm() const {
    const ucs_status_t status = ucp_worker_arm(get());
    if (status == UCS_ERR_BUSY) return false;
    check_ucx(status, "ucp_worker_arm");
    return true;
  }
  /// Makes UCX call `ended(request, status, record)` when all messages to `endpoint` so far have left and it is
  /// connected. Returns what `send` returns.
  [[nodiscard]] static void* start_flush(ucp_ep_h endpoint, ucp_send_nbx_callback_t ended, void* record) {
    ucp_request_param_t how;
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.cb.send = ended;
    how.user_data = record;
    return ucp_ep_flush_nbx(endpoint, &how);
  }
  /// Closes `endpoint`, whose connection UCX watches, at once. The transfers in flight fail at the next progress.
  static void close(ucp_ep_h endpoint) noexcept {
    ucp_request_param_t how;
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const request = ucp_ep_close_nbx(endpoint, &how);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
  /// Makes progress until all messages to `endpoint` have left, as long as `goes_on()`. Returns whether all have left.
  template <class GoesOn>
  bool flush(ucp_ep_h endpoint, GoesOn goes_on) const noexcept {
    ucp_request_param_t plain;
    plain.op_attr_mask = 0;
    void* const request = ucp_ep_flush_nbx(endpoint, &plain);
    if (!UCS_PTR_IS_PTR(request)) return request == nullptr;
    ucs_status_t status = UCS_INPROGRESS;
    while (status == UCS_INPROGRESS && goes_on()) {
      ucp_worker_progress(get());
      status = ucp_request_check_status(request);
    }
    ucp_request_free(request);
    return status == UCS_OK;
  }
  /// Never destroys the worker, which makes no progress any more.
  void keep_forever() noexcept {
    static_cast<void>(worker_.release());
    static_cast<void>(new std::shared_ptr<ucp_context>(std::move(context_)));
  }

  static constexpr unsigned message_id = 1; ///< of active messages

 private:
  /// A payload as UCX takes it, and the parameters of its transfer. These name the type of memory: UCX would not know
  /// device memory that the program has allocated before, or by a CUDA runtime that is a static library.
  struct transfer {
    transfer(const ucx_payload& what, void* record) {
      const auto& pieces = what.pieces;
      how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
      how.memory_type = what.on_device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
      how.user_data = record;
      if (pieces.size() > 1) {
        how.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        how.datatype = ucp_dt_make_iov();
        place = const_cast<ucp_dt_iov_t*>(pieces.data());
        count = pieces.size();
      } else if (pieces.size() == 1) {
        place = pieces[0].buffer;
        count = pieces[0].length;
      }
    }
    ucp_request_param_t how; // of which `op_attr_mask` says what UCX reads
    void* place = nullptr;
    std::size_t count = 0; // of bytes, or of several pieces
  };
  struct deleter {
    void operator()(ucp_worker_h worker) const noexcept { ucp_worker_destroy(worker); }
  };
  std::shared_ptr<ucp_context> context_;
  std::unique_ptr<ucp_worker, deleter> worker_;
};

} // namespace spar::inline v0_1::detail
