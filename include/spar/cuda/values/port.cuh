// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport for calls on values in device memory, over any other transport.
#pragma once

#include <spar/collective/basic/allgather.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/cuda/call.hpp>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/pieces.hpp>
#include <spar/cuda/values/work.cuh>
#include <spar/cuda/waits.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/transport/decorator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <list>
#include <memory_resource>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

namespace detail {

/// A collective by which all ranks get a number of each rank.
struct share_numbers {
  template <transport Net>
  task<void> operator()(channel<Net> net, std::span<std::uint64_t> numbers) const {
    static constexpr bruck_allgather allgather;
    return allgather(net, numbers);
  }
};

} // namespace detail

/// The transport of `on_device`. All its messages are in device memory, and take the `device_path` of the wrapped
/// transport. Messages are lent only if every device can access the memory of every other: then the receiver's kernels
/// read the memory of the sender, in an order that events give, and no rank waits for a device. `send` waits for the
/// work on a `direct` message, or for the copy of a `staged` one to the host; a receive starts a copy on the device, or
/// to it.
template <transport Inner>
class device_port : public decorated_port<Inner> {
  using decorated_port<Inner>::inner;
  using inner_send = decltype(std::declval<Inner&>().send(std::declval<message_pieces>(), 0, tag_t{}));
  using inner_receive = decltype(std::declval<Inner&>().receive(std::declval<message_buffer&>(), 0, tag_t{}));

 public:
  static constexpr const char* owner = "spar::on_device"; ///< the object of which this is the transport

  /// A collective call, because all ranks must agree whether they lend memory.
  explicit device_port(Inner& wrapped)
      : decorated_port<Inner>(wrapped), device_(detail::or_abort(wrapped, [] { return detail::home_device(); })),
        waits_(wrapped.scheduler()) {
    refuse_progress_thread();
    if constexpr (device_bound_transport<Inner>) wrapped.check_device();
    try { // not around the whole constructor: nvcc 13.0 crashes
      end_transfers(this);
      work_.emplace(memory_, this->memory(), pinned_, waits_, device_pool::owner{&end_transfers, nullptr, this});
      if (offered_path(0, 1) == device_path::loaned) work_->set_lends(agree_to_lend());
    } catch (...) {
      abort_and_rethrow(wrapped);
    }
  }
  device_port(const device_port&) = delete;
  ~device_port() { end_transfers(this); }

  void share() = delete; // deleted because a progress thread would have another current device

  [[nodiscard]] const detail::home_device& device() const noexcept { return device_; }
  /// Throws `invalid_argument` if another device is the current one.
  void check_device() { device_.check_current(*this, owner); }
  /// The place of the values in device memory, and the work on them.
  [[nodiscard]] detail::device_work& work() noexcept { return *work_; }
  /// The transport of messages in host memory.
  [[nodiscard]] Inner& host() const noexcept { return inner(); }
  /// Whether ranks read messages in each other's device memory.
  [[nodiscard]] bool lends() const noexcept { return work_->lends(); }

  auto send(const message_pieces& out, rank_t peer, tag_t tag) {
    message_pieces passed = out;
    outgoing* const mine = prepare(passed);
    return sent(inner().send(passed, peer, tag), *this, mine);
  }
  auto receive(message_buffer& in, rank_t peer, tag_t tag) {
    const device_path path = path_of();
    if (path == device_path::loaned || path == device_path::streamed) {
      in.set_stream(work_->stream());
      return received(inner().receive(in, peer, tag), *this, in, nullptr);
    }
    arrival* const first = next_arrival(path == device_path::direct);
    if (first->on_device) first->message.set_stream(work_->stream());
    return received(inner().receive(first->message, peer, tag), *this, in, first);
  }

  /// Throws `invalid_argument` if the wrapped transport has a progress thread, on which calls would go on: its current
  /// device may be another, and it would use the stream of the values at the same time as this thread.
  void refuse_progress_thread() const {
    if (this->node().shared() == nullptr) return;
    raise<invalid_argument>({"spar::on_device cannot use a communicator with a progress_thread, whose current device "
                             "may differ from that of this thread"});
  }
  /// After a failed call: waits until no device uses the values of the call, which the program may free.
  void end_work() noexcept {
    end_transfers(this);
    work_->order().wait();
  }

 private:
  /// A message in device memory that is being sent.
  struct outgoing : device_loan {
    outgoing* next = nullptr;
    detail::device_stream* sender = nullptr;
    detail::device_stream* reader = nullptr; // null until the message has arrived
    detail::cuda_event ready;                // the values of a lent message
    buffer<std::byte> room;                  // the copy of a message that is neither lent nor sent from its place
  };
  /// A message that the wrapped transport receives, and that is then copied to its destination on the device. No device
  /// uses its memory when the receive begins.
  struct arrival {
    arrival(std::pmr::memory_resource& memory, bool device) : message(memory), on_device(device) {}

    message_buffer message; // in page-locked memory or, if the wrapped transport takes it, device memory
    bool on_device;         // the memory of the message, unless it is borrowed
    buffer<std::byte> room; // page-locked, for a message in other memory of the host
    detail::cuda_event copied;
    bool in_use = false;
  };

  class [[nodiscard]] sent : public forwarding_awaiter<inner_send> {
   public:
    sent(inner_send by, device_port& port, outgoing* what) noexcept
        : sent::forwarding_awaiter(std::move(by)), port_(&port), what_(what), exceptions_(std::uncaught_exceptions()) {}
    sent(sent&& other) noexcept
        : sent::forwarding_awaiter(std::move(other)), port_(std::exchange(other.port_, nullptr)), what_(other.what_),
          exceptions_(other.exceptions_) {}
    /// If an error of CUDA ends the call before the send, tells the other ranks of this error. The wrapped operation
    /// would only tell them that the message is incomplete.
    ~sent() {
      if (port_ == nullptr) return;
      if (port_->path_of() == device_path::streamed) port_->gave_up_ = true;
      if (std::uncaught_exceptions() > exceptions_) port_->tell_error();
    }
    /// Gives back the record of the send. If the send has failed, its record stays in use: the receiver may still read
    /// the payload.
    void await_resume() const {
      sent::forwarding_awaiter::await_resume();
      device_port& port = *std::exchange(port_, nullptr);
      if (what_ == nullptr) return;
      what_->room.reset();
      port.outgoing_.recycle(what_);
    }

   private:
    mutable device_port* port_; // null once the send has ended
    outgoing* what_;
    int exceptions_; // number of uncaught exceptions at the construction
  };
  /// Owns the arrival of a receive; null if the wrapped transport writes to the destination. That of a receive that
  /// fails must not keep the memory of the sender, whose call would wait for it. But it keeps its own memory, to which
  /// the wrapped transport may still write (see `transport`, `abandon`).
  class arrival_owner {
   public:
    arrival_owner(device_port& port, arrival* owned) noexcept : port_(&port), owned_(owned) {}
    arrival_owner(arrival_owner&& other) noexcept : port_(other.port_), owned_(std::exchange(other.owned_, nullptr)) {}
    ~arrival_owner() {
      if (owned_ == nullptr) return;
      owned_->message.end_loan();
      owned_->in_use = port_->node().loans().any();
    }

   protected:
    device_port* port_;
    mutable arrival* owned_;
  };
  class [[nodiscard]] received : private arrival_owner, // destroyed after the wrapped operation, which writes to it
                                 public forwarding_awaiter<inner_receive> {
   public:
    received(inner_receive by, device_port& port, message_buffer& in, arrival* host) noexcept
        : arrival_owner(port, host), received::forwarding_awaiter(std::move(by)), in_(&in) {}
    void await_resume() const {
      received::forwarding_awaiter::await_resume();
      if (this->owned_ != nullptr) {
        this->port_->to_device(*this->owned_, *in_);
        // Once the copy has ended, which `copied` tells, another receive uses the arrival.
        if (in_->fits()) std::exchange(this->owned_, nullptr)->in_use = false;
      } else if (in_->loan() != nullptr) {
        this->port_->borrow(*in_);
      }
    }

   private:
    message_buffer* in_;
  };

  void tell_error() noexcept {
    if (!detail::last_cuda_error.empty()) detail::abort(inner(), detail::last_cuda_error);
  }

  /// The path that the wrapped transport offers to a payload of `bytes` bytes in `pieces` pieces.
  [[nodiscard]] device_path offered_path([[maybe_unused]] std::size_t bytes,
                                         [[maybe_unused]] std::size_t pieces) const noexcept {
    if constexpr (device_transport<Inner>)
      return inner().path_on_device(bytes, pieces);
    else
      return device_path::staged;
  }
  /// The path that the payload takes; without arguments, that of long payloads of one piece, which receives expect.
  [[nodiscard]] device_path path_of(std::size_t bytes = std::numeric_limits<std::size_t>::max(),
                                    std::size_t pieces = 1) const noexcept {
    const device_path offered = offered_path(bytes, pieces);
    const bool can = offered == device_path::loaned ? lends() : !this->node().checksums();
    return can ? offered : device_path::staged;
  }
  /// Prepares the message for the wrapped transport. Returns the record of a message that is lent or copied.
  outgoing* prepare(message_pieces& out) {
    const auto pieces = std::count_if(out.pieces.begin(), out.pieces.end(), [](const auto& p) { return !p.empty(); });
    switch (path_of(padded_bytes(out.pieces), static_cast<std::size_t>(pieces))) {
    case device_path::loaned:
      return lend(out);
    case device_path::staged:
      return to_host(out);
    case device_path::direct:
      detail::check_cuda(cudaStreamSynchronize(work_->stream()), "cudaStreamSynchronize");
      break;
    case device_path::streamed:
      break;
    }
    out.stream = work_->stream();
    return nullptr;
  }

  bool agree_to_lend() {
    int own = 0;
    detail::check_cuda(cudaGetDevice(&own), "cudaGetDevice");
    bool refuses = false;
    for (const std::uint64_t used : share(static_cast<std::uint64_t>(own))) {
      const auto device = static_cast<int>(used);
      refuses = refuses || (device != own && !can_access(own, device));
    }
    const std::vector<std::uint64_t> refusals = share(refuses ? 1 : 0);
    return std::find(refusals.begin(), refusals.end(), 1) == refusals.end();
  }
  std::vector<std::uint64_t> share(std::uint64_t own) {
    std::vector<std::uint64_t> numbers(static_cast<std::size_t>(this->size()));
    numbers[static_cast<std::size_t>(this->rank())] = own;
    const signature agreed{
        .digest = detail::fnv1a("spar::on_device"), .element = element_code::uint64, .dimension = numbers.size()};
    run_collective(inner(), agreed, detail::share_numbers{}, std::span(numbers));
    return numbers;
  }
  static bool can_access(int own, int other) {
    int can = 0;
    detail::check_cuda(cudaDeviceCanAccessPeer(&can, own, other), "cudaDeviceCanAccessPeer");
    if (can == 0) return false;
    const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
    if (code != cudaSuccess) cudaGetLastError(); // otherwise a later check of a kernel launch would find this error
    return code == cudaSuccess || code == cudaErrorPeerAccessAlreadyEnabled;
  }

  /// Waits until the wrapped transport lets the device work on no message. Otherwise CUDA might wait for the messages
  /// of other ranks, which may wait for this one, when memory is allocated or freed.
  static void end_transfers(void* self) noexcept { detail::end_transfers(static_cast<device_port*>(self)->inner()); }

  // Messages that are lent.

  outgoing* lend(message_pieces& out) {
    outgoing* const mine = outgoing_.acquire();
    mine->returned = [](device_loan& loan) noexcept { end_reading(static_cast<outgoing&>(loan)); };
    mine->sender = &work_->order();
    mine->reader = nullptr;
    mine->ready.record(work_->stream());
    out.loan = mine;
    return mine;
  }
  /// Lets this rank's work begin after the message is ready. Copies a message that must not stay in the sender's
  /// memory.
  void borrow(message_buffer& in) {
    auto& loan = static_cast<outgoing&>(*in.loan());
    loan.ready.order(work_->stream());
    loan.reader = &work_->order();
    if (in.kept())
      in.keep_by([&](std::byte* to, const std::byte* from, std::size_t bytes) { work_->copy(to, {from, bytes}); });
  }
  /// Lets the sender's further work begin after the receiver's work so far. Called by the receiver's thread.
  static void end_reading(outgoing& loan) noexcept {
    if (loan.reader == nullptr) return;
    try {
      loan.reader->precede(loan.sender->get());
    } catch (const cuda_error&) {
      loan.reader->wait();
    }
  }

  // Messages that are staged, and the receives of direct ones.

  outgoing* to_host(message_pieces& out) {
    outgoing* const mine = outgoing_.acquire();
    mine->room = buffer<std::byte>(pinned_, padded_bytes(out.pieces));
    out.pieces = detail::start_pack(out.pieces, mine->room.data(), cudaMemcpyDeviceToHost, work_->stream());
    detail::check_cuda(cudaStreamSynchronize(work_->stream()), "cudaStreamSynchronize");
    if (this->node().checksums()) out.add_payload_checksum();
    return mine;
  }
  void to_device(arrival& from, message_buffer& in) {
    in.arrived() = from.message.head();
    if (!in.fits()) return;                      // the channel aborts the communicator
    const bool borrows = from.message.borrows(); // memory of the sender or of the transport, not page-locked
    const bool on_device = from.on_device && !borrows;
    if (this->node().checksums() && !on_device) from.message.verify_payload();
    payload_views pieces = from.message.pieces();
    in.check_sizes(pieces);
    if (borrows) {
      from.room = buffer<std::byte>(pinned_, padded_bytes(pieces));
      pieces = pack(pieces, from.room.data());
      from.message.release(); // the sender may wait for it
    }
    detail::start_copies(in, pieces, on_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice, work_->stream());
    from.copied.record(work_->stream());
  }
  arrival* next_arrival(bool device) {
    for (arrival& a : arrivals_) {
      if (a.in_use || a.on_device != device || !a.copied.complete()) continue;
      a.message.release();
      a.room.reset();
      a.in_use = true;
      return &a;
    }
    arrival& a = device ? arrivals_.emplace_back(received_, true) : arrivals_.emplace_back(pinned_, false);
    a.in_use = true;
    return &a;
  }

  /// Whether memory that is given back must not be used again: after a failed call, other ranks may still read it (see
  /// `transport`, `abandon`), or the wrapped transport (see `device_path::streamed`).
  static bool is_read_still(void* self) noexcept {
    const auto& port = *static_cast<device_port*>(self);
    return port.gave_up_ || port.node().loans().any();
  }

  detail::home_device device_;
  detail::pinned_resource page_locked_{{&end_transfers, nullptr, this}};
  pool pinned_{page_locked_};
  device_pool memory_{{&end_transfers, &is_read_still, this}};
  device_pool received_; // memory of messages that have arrived on the device, in the order of events
  bool gave_up_ = false; // whether a send was destroyed before its end (see `device_path::streamed`)
  detail::slab<outgoing> outgoing_;
  std::list<arrival> arrivals_; // its constructor takes no memory, unlike that of a deque
  detail::device_waits waits_;
  std::optional<detail::device_work> work_; // the last member: its destructor waits for work on the others
};

} // namespace spar::inline v0_1
