// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user-defined transport with only the functions that a collective needs: ranks are threads, and each has a mailbox
// to which the others copy their messages.
#include "support/collectives.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"

#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/operation.hpp>
#include <spar/runtime/progress.hpp>
#include <spar/spar.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/faulty.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

class mailbox_port : public spar::endpoint {
  struct letter {
    spar::rank_t source;
    spar::tag_t tag;
    spar::header head;
    std::array<std::vector<std::byte>, spar::max_pieces> payload;
  };
  struct expectation : spar::operation_record {
    spar::message_buffer* into = nullptr;
  };

 public:
  /// `all` has the ports of all ranks.
  mailbox_port(std::vector<mailbox_port*>& all, spar::rank_t rank)
      : endpoint(rank, static_cast<spar::rank_t>(all.size()), spar::pool_owner(*std::pmr::new_delete_resource())),
        all_(&all) {
    // A post has the memory for the reason of an abort from the start.
    notes_.reserve(16 * all.size() * spar::control_message::most_parts);
    all[static_cast<std::size_t>(rank)] = this;
  }

  spar::endpoint& node() noexcept { return *this; }
  void compute(std::uint64_t) const noexcept {}

  /// Ends at once, because the message is copied.
  spar::operation<mailbox_port, spar::operation_record> send(const spar::message_pieces& out, spar::rank_t peer,
                                                             spar::tag_t tag) {
    std::list<letter> sent{{rank(), tag, out.head, {}}};
    for (std::size_t i = 0; i < spar::max_pieces; ++i)
      sent.front().payload[i].assign(out.pieces[i].begin(), out.pieces[i].end());
    mailbox_port& to = port(peer);
    const std::lock_guard lock(to.mutex_);
    to.incoming_.splice(to.incoming_.end(), sent);
    return spar::operation<mailbox_port, spar::operation_record>(*this);
  }
  spar::operation<mailbox_port, spar::operation_record> receive(spar::message_buffer& in, spar::rank_t source,
                                                                spar::tag_t tag) {
    expectation& r = expected_.emplace_back();
    r.begin(true, source, tag);
    r.into = &in;
    return spar::operation<mailbox_port, spar::operation_record>(*this, &r);
  }
  void abandon(spar::operation_record* r) {
    expected_.remove_if([r](const expectation& e) { return &e == r; });
  }
  void post(const spar::control_message& note, spar::rank_t peer) {
    mailbox_port& to = port(peer);
    const std::lock_guard lock(to.mutex_);
    to.notes_.push_back(note);
  }
  void progress(bool block) {
    try {
      std::vector<spar::control_message> notes;
      {
        const std::lock_guard lock(mutex_);
        arrived_.splice(arrived_.end(), incoming_);
        notes = notes_;
        notes_.clear();
      }
      for (const auto& note : notes) spar::on_control_message(*this, note);
      for (expectation& r : expected_) {
        if (!r.done) deliver(r);
      }
      spar::poll_waits(*this, now());
    } catch (...) {
      spar::on_progress_error(*this);
    }
    if (block && scheduler().idle()) std::this_thread::yield();
    scheduler().run();
  }

 private:
  mailbox_port& port(spar::rank_t r) { return *(*all_)[static_cast<std::size_t>(r)]; }

  /// Gives the receive `r` the oldest message with its source and tag, if there is one.
  void deliver(expectation& r) {
    for (auto l = arrived_.begin(); l != arrived_.end(); ++l) {
      if (l->source != r.peer || l->tag != r.tag) continue;
      r.into->arrived() = l->head;
      if (r.into->fits()) r.into->copy_from({l->payload[0], l->payload[1], l->payload[2]});
      arrived_.erase(l);
      return r.complete(scheduler());
    }
  }

  std::vector<mailbox_port*>* all_;
  std::list<expectation> expected_;
  std::list<letter> arrived_;
  std::mutex mutex_; // of what the other ranks write
  std::list<letter> incoming_;
  std::vector<spar::control_message> notes_;
};

/// A rank, as programs use it.
class mailbox : public spar::communicator_rank<mailbox_port> {
 public:
  mailbox(std::vector<mailbox_port*>& all, spar::rank_t rank) : communicator_rank(all, rank) {}
};

static_assert(spar::transport<mailbox_port> && spar::communicates<spar::counting<mailbox>>);
static_assert(!spar::shared_transport<mailbox_port> && !spar::simulated_transport<mailbox_port>);

/// Runs `program(net)` on each rank, and returns the errors.
template <class Program>
std::vector<std::string> on_mailboxes(spar::rank_t ranks, Program program) {
  std::vector<mailbox_port*> all(static_cast<std::size_t>(ranks));
  std::deque<mailbox> nets;
  for (spar::rank_t r = 0; r < ranks; ++r) nets.emplace_back(all, r);
  std::vector<std::string> errors(all.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < all.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        program(nets[r]);
      } catch (const std::exception& e) {
        errors[r] = e.what();
        spar::abort(nets[r], e.what());
      }
    });
  }
  for (auto& t : threads) t.join();
  return errors;
}

/// Runs a collective, and returns the bits of its result on each rank.
template <class Collective>
struct program {
  std::vector<spar_test::bits>* results;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const spar_test::input mine(net.rank(), 200);
    static constexpr Collective collective;
    auto running = collective(net, &mine);
    (*results)[static_cast<std::size_t>(net.rank())] = co_await std::move(running);
  }
};

#if SPAR_ALL_CASES
using tested = spar_test::collectives;
#else
using tested =
    testing::Types<spar_test::sparse<spar::ssar_split>, spar_test::sparse<spar::sparcml>,
                   spar_test::feedback<spar::ok_topk<float>>, spar_test::dense<spar::ring>, spar_test::dense_on_tree,
                   spar_test::dense_reduce_scatter, spar_test::sparse_allgather, spar_test::dense_broadcast>;
#endif
template <class Collective>
struct collectives_over_a_user_transport : testing::Test {};
TYPED_TEST_SUITE(collectives_over_a_user_transport, tested);

TYPED_TEST(collectives_over_a_user_transport, have_the_bits_of_threads) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7}) {
    std::vector<spar_test::bits> expected(static_cast<std::size_t>(ranks)), got(expected.size());
    spar_test::run(spar_test::free_modes[0], ranks, program<TypeParam>{&expected});
    const program<TypeParam> same{&got};
    const auto errors = on_mailboxes(ranks, [&](mailbox& rank) {
      spar::any_transport net(rank);
      spar::run_until_done(net, same(net));
    });
    for (const auto& e : errors) EXPECT_EQ(e, "");
    EXPECT_TRUE(got == expected) << ranks << " ranks";
  }
}

TEST(user_transport, carries_messages_of_every_form_below_decorators) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const auto errors = on_mailboxes(static_cast<spar::rank_t>(2 + seed % 3), [&](mailbox& net) {
      spar::faulty harmless(net, {});
      spar::counting counted(harmless);
      spar_test::exchange_messages<spar_test::in_host_memory>(counted, seed);
    });
    for (const auto& e : errors) EXPECT_EQ(e, "");
  }
}

TEST(user_transport, passes_on_the_failure_of_a_rank) {
  const auto errors = on_mailboxes(4, [](mailbox& net) {
    if (net.rank() == 2) throw spar::error("no more coffee");
    std::vector<float> x(1000);
    spar::allreduce(net, x, spar::ring{});
  });
  for (const auto& e : errors) EXPECT_NE(e.find("no more coffee"), std::string::npos) << e;
}

} // namespace
