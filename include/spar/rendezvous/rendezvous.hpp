// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who a process is in its job, and where the job meets: what a transport without a launcher of its own starts from.
#pragma once

#include <spar/core/address.hpp>
#include <spar/rendezvous/options.hpp>
#include <spar/rendezvous/store.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// Who a process is in its job, and the store where the job meets. Copies share the store and count their exchanges
/// together; the store lives as long as the last copy, also as a copy in a communicator. One thread at a time may use
/// a rendezvous and its copies.
class rendezvous {
 public:
  /// Reads the rank and the size from the variables of the launcher, and where to meet from `options`, the variables of
  /// spar and those of the launcher: docs/guide/ranks.md. Rank 0 serves the store as long as a copy of its rendezvous
  /// exists, and the others connect to it. Throws `invalid_argument` if variables are missing or malformed, an option
  /// is out of range, there is no such network interface, or a secret is given without OpenSSL. Rank 0 throws
  /// `transport_error` if it cannot listen on the port, and `error` if it cannot start a thread. The others throw
  /// `timeout` if nobody listens, and `mismatch` if the server refuses them or does not know the secret.
  [[nodiscard]] static rendezvous from_environment(const rendezvous_options& options = {});

  /// The rank `rank` of `size` that meets the others in `meeting`, a store that the program brings. Of the `options`,
  /// only the deadline, the network interface and the job count. Throws `invalid_argument` if `rank` is not in
  /// [0, `size`), `meeting` is null, or the deadline is out of range, and `transport_error` if the system has no random
  /// bytes.
  rendezvous(std::shared_ptr<rendezvous_store> meeting, rank_t rank, rank_t size,
             const rendezvous_options& options = {});
  /// A copy, also of one that is moved, which stays as it is.
  rendezvous(const rendezvous&) = default;
  /// See the constructor.
  rendezvous& operator=(const rendezvous&) = default;

  /// The rendezvous, in the same store, of those who pass the same `group`: letters and digits that no other group of
  /// this rendezvous has. This process is the rank `rank` of `size` in the group. Throws `invalid_argument` if `rank`
  /// is not in [0, `size`).
  [[nodiscard]] rendezvous among(std::string_view group, rank_t rank, rank_t size) const;

  /// The same for a `group` whose name no other group of the whole job has, with the rank `rank` of `size` in it.
  [[nodiscard]] rendezvous among_all(std::string_view group, rank_t rank, rank_t size) const;

  /// The rank of this process, from 0 to size() - 1.
  [[nodiscard]] rank_t rank() const noexcept { return shared_->rank; }
  /// The number of ranks.
  [[nodiscard]] rank_t size() const noexcept { return shared_->size; }
  /// Seconds for which a process waits for the others.
  [[nodiscard]] double deadline() const noexcept { return shared_->options.deadline; }
  /// The network interface that the user has named; empty: any.
  [[nodiscard]] const std::string& network_interface() const noexcept { return shared_->options.network_interface; }
  /// The store of the job. Use `key` for names that no other group has.
  [[nodiscard]] rendezvous_store& meeting() const noexcept { return *shared_->meeting; }
  /// The key of this group in the store for `name`.
  [[nodiscard]] std::string key(std::string_view name) const;

  /// Collective: gives `own` to all ranks, and returns what each rank gave, by rank. Rank 0 collects the texts and puts
  /// one table into the store, or the reason why there is none. Every rank makes the same exchanges in the same order.
  /// Throws `mismatch` if two processes have the same rank, or the ranks disagree on their number, on the job or on the
  /// version of spar; `timeout` if ranks do not come within the deadline, with their numbers; `peer_failed` if another
  /// rank has called `refuse_exchange` or has no memory; `transport_error` if the store cannot be reached; and
  /// `corrupt_message` if other programs write into the store.
  [[nodiscard]] std::vector<std::string> exchange(std::string_view own) const { return exchange_beside(own, {}); }
  /// Gives `own` like the other `exchange`, and calls `meanwhile()` from time to time while this rank waits. An error
  /// of `meanwhile` ends the exchange. Throws the same `mismatch`, `timeout`, `peer_failed`, `transport_error` and
  /// `corrupt_message`.
  template <class Meanwhile>
  [[nodiscard]] std::vector<std::string> exchange(std::string_view own, Meanwhile& meanwhile) const {
    return exchange_beside(own, {[](void* self) { (*static_cast<Meanwhile*>(self))(); }, &meanwhile});
  }

  /// In place of the next `exchange`, on a rank that has failed for the reason `why`: the exchange of the others ends
  /// in `peer_failed` with this reason, and does not wait for this rank.
  void refuse_exchange(std::string_view why) const noexcept;

 private:
  struct shared {
    std::shared_ptr<rendezvous_store> meeting;
    rank_t rank, size;
    rendezvous_options options;
    std::string prefix;          // of all keys of this group
    std::string process;         // says in words which process this is, and differs from any other
    std::uint64_t exchanges = 0; // how many have begun
  };
  /// What a rank does while it waits.
  struct work {
    void (*call)(void* self); // null: nothing
    void* self;
  };
  [[nodiscard]] std::vector<std::string> exchange_beside(std::string_view own, const work& meanwhile) const;
  /// The beginning of the keys of an exchange.
  [[nodiscard]] std::string place_of(std::uint64_t number) const;
  [[nodiscard]] std::vector<std::string> exchange_at(const std::string& place, std::string_view own,
                                                     const work& meanwhile) const;
  [[gnu::cold]] void refuse_exchange(std::uint64_t number, std::string_view why) const noexcept;
  /// As `rendezvous_store::wait`.
  [[nodiscard]] std::optional<std::string> wait(const std::string& key, double seconds, const work& meanwhile) const;
  /// The texts of all ranks, which rank 0 collects under the keys that begin with `place`.
  [[nodiscard]] std::vector<std::string> collect(const std::string& place, const work& meanwhile) const;
  /// Puts `why` in place of every rank that has not come, so that no rank waits for them.
  [[gnu::cold]] void refuse(const std::string& place, const error& why) const;

  std::shared_ptr<shared> shared_;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/rendezvous/rendezvous-inl.hpp>
#endif
