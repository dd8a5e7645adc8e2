// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport for calls on values in device memory, over any other transport.
#pragma once

#include <spar/collective/basic/largest.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/pieces.hpp>
#include <spar/cuda/values/values.cuh>
#include <spar/runtime/pending.hpp>
#include <spar/transport/decorator.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>

namespace spar {

namespace detail {

/// A collective by which all ranks learn the largest of their numbers.
struct agree_on_largest {
  template <transport Net>
  task<void> operator()(channel<Net> net, std::uint64_t* number) const {
    return find_largest(net, *number);
  }
  static constexpr signature agreed{
      .digest = fnv1a("spar::on_device"), .element = element_code::uint64, .dimension = 1};
};

} // namespace detail

/// The transport of `on_device`. If the wrapped transport lends device memory (`threads`), and every device can access
/// the memory of every other, a message in device memory stays there: the receiver's kernels read the memory of the
/// sender, in an order that events give, and no rank waits for a device. A transport that carries device memory
/// (`nccl`) gets the message with the stream of the values. Otherwise the payload travels by way of page-locked memory:
/// `send` waits for its copy to the host, and a receive starts a copy to the device.
template <transport Inner>
class device_port : public decorated_port<Inner> {
  using decorated_port<Inner>::inner;
  using inner_send = decltype(std::declval<Inner&>().send(std::declval<message_pieces>(), 0, tag_t{}));
  using inner_receive = decltype(std::declval<Inner&>().receive(std::declval<message_buffer&>(), 0, tag_t{}));

 public:
  /// A collective call, because all ranks must agree whether they lend memory.
  explicit device_port(Inner& wrapped) : decorated_port<Inner>(wrapped) {
    try { // not around the whole constructor: nvcc 13.0 crashes
      end_transfers(this);
      values_.emplace();
      if constexpr (can_lend) lends_ = agree_to_lend();
    } catch (...) {
      abort_and_rethrow(wrapped);
    }
  }
  device_port(const device_port&) = delete;
  ~device_port() { end_transfers(this); }

  void share() = delete; // deleted because a progress thread would have another current device

  [[nodiscard]] detail::device_values& values() noexcept { return *values_; }
  [[nodiscard]] device_pool& value_memory() noexcept { return memory_; }
  /// Whether ranks read messages in each other's device memory.
  [[nodiscard]] bool lends() const noexcept { return lends_; }

  auto send(const message_pieces& out, rank_t peer, tag_t tag) {
    if constexpr (carries) {
      return sent(inner().send(out, peer, tag, values_->stream()), *this, nullptr);
    } else {
      message_pieces passed = out;
      outgoing* const mine = out.on_device ? (lends_ ? lend(passed) : to_host(passed)) : nullptr;
      return sent(inner().send(passed, peer, tag), *this, mine);
    }
  }
  auto receive(message_buffer& in, rank_t peer, tag_t tag) {
    if constexpr (carries) {
      return received(inner().receive(in, peer, tag, values_->stream()), *this, in, nullptr);
    } else {
      arrival* const host = in.on_device() && !lends_ ? next_arrival() : nullptr;
      message_buffer& into = host != nullptr ? host->message : in;
      return received(inner().receive(into, peer, tag), *this, in, host);
    }
  }

  /// After a failed call: waits until no device uses the values of the call, which the program may free.
  void end_work() noexcept {
    end_transfers(this);
    cudaStreamSynchronize(values_->stream());
  }

 private:
  static constexpr bool can_lend = requires { requires Inner::lends_device_memory; };
  static constexpr bool carries = requires { requires Inner::carries_device_memory; };

  /// A message in device memory that is being sent.
  struct outgoing : device_loan {
    outgoing* next = nullptr;
    detail::device_stream* sender = nullptr;
    detail::device_stream* reader = nullptr; // null until the message has arrived
    detail::cuda_event ready;                // the values of a lent message
    buffer<std::byte> room;                  // the copy of a message that is not lent
  };
  /// A message in host memory that is copied to the device.
  struct arrival {
    explicit arrival(pool& pinned) : message(pinned) {}

    message_buffer message;
    buffer<std::byte> room; // for a message that is not in page-locked memory
    detail::cuda_event copied;
    bool in_use = false;
  };

  class [[nodiscard]] sent : public detail::forwarding_awaiter<inner_send> {
   public:
    sent(inner_send by, device_port& port, outgoing* what) noexcept
        : sent::forwarding_awaiter(std::move(by)), port_(&port), what_(what) {}
    /// Gives back the record. That of a send that fails stays in use, because its payload may still be read.
    void await_resume() const {
      sent::forwarding_awaiter::await_resume();
      if (what_ == nullptr) return;
      what_->room.reset();
      port_->outgoing_.recycle(what_);
    }

   private:
    device_port* port_;
    outgoing* what_;
  };
  class [[nodiscard]] received : public detail::forwarding_awaiter<inner_receive> {
   public:
    received(inner_receive by, device_port& port, message_buffer& in, arrival* host) noexcept
        : received::forwarding_awaiter(std::move(by)), port_(&port), in_(&in), host_(host) {}
    void await_resume() const {
      received::forwarding_awaiter::await_resume();
      if (host_ != nullptr)
        port_->to_device(*host_, *in_);
      else if (in_->loan() != nullptr)
        port_->borrow(*in_);
    }

   private:
    device_port* port_;
    message_buffer* in_;
    arrival* host_;
  };

  bool agree_to_lend() {
    int own = 0;
    detail::check_cuda(cudaGetDevice(&own), "cudaGetDevice");
    const auto number = static_cast<std::uint64_t>(own);
    const auto last = static_cast<int>(largest(number)), first = static_cast<int>(~largest(~number));
    std::uint64_t refused = 0;
    for (int other = first; other <= last && refused == 0; ++other) {
      if (other != own && !can_access(other)) refused = 1;
    }
    return largest(refused) == 0;
  }
  std::uint64_t largest(std::uint64_t number) {
    run_collective(inner(), detail::agree_on_largest::agreed, detail::agree_on_largest{}, &number);
    return number;
  }
  static bool can_access(int other) {
    int own = 0, can = 0;
    detail::check_cuda(cudaGetDevice(&own), "cudaGetDevice");
    detail::check_cuda(cudaDeviceCanAccessPeer(&can, own, other), "cudaDeviceCanAccessPeer");
    if (can == 0) return false;
    const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled)
      cudaGetLastError();
    else
      detail::check_cuda(code, "cudaDeviceEnablePeerAccess");
    return true;
  }

  /// Waits until the wrapped transport lets the device work on no message. Otherwise CUDA might wait for the messages
  /// of other ranks, which may wait for this one, when memory is allocated or freed.
  static void end_transfers([[maybe_unused]] void* self) noexcept {
    if constexpr (carries) static_cast<device_port*>(self)->inner().wait_until_idle();
  }

  // Messages that are lent.

  outgoing* lend(message_pieces& out) {
    outgoing* const mine = outgoing_.acquire();
    mine->returned = [](device_loan& loan) noexcept { end_reading(static_cast<outgoing&>(loan)); };
    mine->sender = &values_->order();
    mine->reader = nullptr;
    mine->ready.record(values_->stream());
    out.on_device = false; // the wrapped transport only passes the pointers on
    out.loan = mine;
    return mine;
  }
  /// Lets this rank's work begin after the message is ready. Copies a message that must not stay in the sender's
  /// memory.
  void borrow(message_buffer& in) {
    auto& loan = static_cast<outgoing&>(*in.loan());
    loan.ready.order(values_->stream());
    loan.reader = &values_->order();
    if (in.kept())
      in.keep_by([&](std::byte* to, const std::byte* from, std::size_t bytes) { values_->copy(to, {from, bytes}); });
  }
  /// Lets the sender's further work begin after the receiver's work so far. Called by the receiver's thread.
  static void end_reading(outgoing& loan) noexcept {
    if (loan.reader == nullptr) return;
    try {
      loan.reader->precede(loan.sender->get());
    } catch (const cuda_error&) {
      cudaStreamSynchronize(loan.reader->get());
    }
  }

  // Messages by way of page-locked memory.

  outgoing* to_host(message_pieces& out) {
    outgoing* const mine = outgoing_.acquire();
    mine->room = buffer<std::byte>(pinned_, padded_bytes(out.pieces));
    out.pieces = detail::start_pack(out.pieces, mine->room.data(), cudaMemcpyDeviceToHost, values_->stream());
    detail::check_cuda(cudaStreamSynchronize(values_->stream()), "cudaStreamSynchronize");
    out.on_device = false;
    return mine;
  }
  void to_device(arrival& from, message_buffer& in) {
    in.arrived() = from.message.head();
    if (!in.fits()) return;                    // the channel aborts the communicator
    const bool moves = from.message.borrows(); // not page-locked, and the sender may wait for its end
    payload_views pieces = from.message.pieces();
    if (moves) {
      from.room = buffer<std::byte>(pinned_, padded_bytes(pieces));
      pieces = pack(pieces, from.room.data());
      from.message.release();
    }
    detail::start_copies(in, pieces, cudaMemcpyHostToDevice, values_->stream());
    from.copied.record(values_->stream());
    from.in_use = false;
  }
  arrival* next_arrival() {
    for (arrival& a : arrivals_) {
      if (a.in_use || !a.copied.complete()) continue;
      a.message.release();
      a.room.reset();
      a.in_use = true;
      return &a;
    }
    arrival& a = arrivals_.emplace_back(pinned_);
    a.in_use = true;
    return &a;
  }

  bool lends_ = false;
  detail::pinned_resource page_locked_;
  pool pinned_{page_locked_};
  device_pool memory_{&end_transfers, this};
  detail::slab<outgoing> outgoing_;
  std::deque<arrival> arrivals_;
  std::optional<detail::device_values> values_; // the last member: its destructor waits for work on the others
};

} // namespace spar
