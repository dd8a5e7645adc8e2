// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport whose peers send arbitrary messages.
#pragma once

#include "fuzz/fuzz.hpp"

#include <spar/spar.hpp>

namespace fuzz {

/// One rank of many. Its sends are discarded, and each receive gets the next message of the input at once, under the
/// header of the call: another header would end the call in a mismatch.
class hostile : public spar::endpoint {
  using ended = spar::operation<hostile, spar::operation_record>;

 public:
  hostile(spar::rank_t rank, spar::rank_t size, input& in)
      : endpoint(rank, size, spar::pool_owner(*std::pmr::new_delete_resource())), input_(&in) {}

  /// The result of the only call.
  template <class Algorithm, class... Args>
  auto run(const spar::signature& agreed, const Algorithm& algorithm, Args... args) {
    agreed_ = agreed;
    return spar::run_collective(*this, agreed, algorithm, args...);
  }

  /// Whether the size of a message differed from what the receive expected; then the call must not return a result.
  [[nodiscard]] bool misfit() const { return misfit_; }

  ended send(const spar::message_pieces&, spar::rank_t, spar::tag_t) { return ended(*this); }
  ended receive(spar::message_buffer& in, spar::rank_t, spar::tag_t tag) {
    arrive(in, *input_, spar::header_of(agreed_, {.sequence = spar::sequence_of(tag)}));
    misfit_ = misfit_ || !in.fits();
    return ended(*this);
  }
  void post(const spar::control_message&, spar::rank_t) const noexcept {}
  void progress(bool) { scheduler().run(); }
  /// Each look at the clock takes 0.1 s: a rank that asks a peer, which never answers here, soon gives up waiting.
  [[nodiscard]] double now() noexcept { return clock_ += 0.1; }
  void abandon(spar::operation_record*) {}
  [[nodiscard]] spar::endpoint& node() noexcept { return *this; }
  void compute(std::uint64_t) const noexcept {}

 private:
  input* input_;
  bool misfit_ = false;
  double clock_ = 0;
  spar::signature agreed_;
};

} // namespace fuzz
