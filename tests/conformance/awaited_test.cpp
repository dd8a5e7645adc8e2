// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every collective waits for the end of each of its sends and receives. A collective that only starts a send returns
// the right sum with most messages, but might change or free a payload that a slow peer has not read yet.
#include "support/collectives.hpp"
#include "support/ranks.hpp"

#include <spar/transport/decorator.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace spar_test {

namespace {

/// Counts the sends and receives that are destroyed before their collective has awaited them.
template <spar::transport Net>
class awaited_port : public spar::observing_port<Net> {
  template <class Inner>
  class awaited : public spar::forwarding_awaiter<Inner> {
   public:
    awaited(Inner inner, awaited_port& port) noexcept : awaited::forwarding_awaiter(std::move(inner)), port_(&port) {}
    awaited(awaited&& other) noexcept
        : awaited::forwarding_awaiter(std::move(other)), port_(std::exchange(other.port_, nullptr)) {}
    ~awaited() {
      if (port_ != nullptr) ++port_->dropped_;
    }
    void await_resume() const {
      awaited::forwarding_awaiter::await_resume();
      ++port_->ended_;
      port_ = nullptr;
    }

   private:
    mutable awaited_port* port_;
  };

 public:
  using spar::observing_port<Net>::observing_port;

  auto send(const spar::message_pieces& out, spar::rank_t peer, spar::tag_t tag) {
    auto sending = this->inner().send(out, peer, tag);
    return awaited<decltype(sending)>(std::move(sending), *this);
  }
  auto receive(spar::message_buffer& in, spar::rank_t peer, spar::tag_t tag) {
    auto receiving = this->inner().receive(in, peer, tag);
    return awaited<decltype(receiving)>(std::move(receiving), *this);
  }

  [[nodiscard]] std::size_t dropped() const noexcept { return dropped_; }
  [[nodiscard]] std::size_t ended() const noexcept { return ended_; }

 private:
  std::size_t dropped_ = 0, ended_ = 0;
};
template <spar::communicates Net>
class awaits : public spar::communicator_rank<awaited_port<spar::detail::port_type_of<Net>>> {
 public:
  explicit awaits(Net& net) : awaits::communicator_rank(spar::detail::port_of(net)) {}
  [[nodiscard]] const auto& counts() const noexcept { return this->port(); }
};

template <class Collective>
struct program {
  std::vector<std::size_t>* dropped;
  std::vector<std::size_t>* ended;

  template <class Net>
  spar::task<void> operator()(Net& inner) const& {
    awaits<Net> net(inner);
    const input mine(net.rank(), 200);
    static constexpr Collective collective;
    auto running = collective(net, &mine);
    co_await std::move(running);
    const auto rank = static_cast<std::size_t>(net.rank());
    (*dropped)[rank] = net.counts().dropped();
    (*ended)[rank] = net.counts().ended();
  }
};

template <class Collective>
struct awaited_operations : testing::Test {};
TYPED_TEST_SUITE(awaited_operations, collectives);

TYPED_TEST(awaited_operations, are_all_sends_and_receives) {
  for (const spar::rank_t ranks : {2, 3, 4, 5, 7}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    std::vector<std::size_t> dropped(static_cast<std::size_t>(ranks)), ended = dropped;
    run(mode::sim, ranks, program<TypeParam>{&dropped, &ended});
    for (std::size_t rank = 0; rank < dropped.size(); ++rank) {
      EXPECT_EQ(dropped[rank], 0U) << "rank " << rank;
      EXPECT_GT(ended[rank], 0U) << "rank " << rank;
    }
  }
}

} // namespace

} // namespace spar_test
