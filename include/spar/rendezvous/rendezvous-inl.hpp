// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of rendezvous.hpp.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/rendezvous/environment.hpp>
#include <spar/rendezvous/rendezvous.hpp>
#include <spar/rendezvous/table.hpp>
#include <spar/rendezvous/tcp/proof.hpp>
#include <spar/rendezvous/tcp_store.hpp>
#include <spar/version.hpp>

#include <array>
#include <new>

#include <unistd.h>

namespace spar::inline v0_1 {

namespace detail {

/// Says in words which process this is. The random digits differ from those of any other rendezvous.
inline std::string name_of_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"an unknown host"};
  std::string digits;
  for (const char byte : random_bytes(8)) {
    for (const int shift : {4, 0})
      digits.push_back("0123456789abcdef"[(static_cast<unsigned char>(byte) >> shift) & 15]);
  }
  return sentence("process ", static_cast<int>(::getpid()), " on ", host.data(), " (", digits, ")");
}

inline std::string arrival_key(const std::string& place, rank_t r) { return sentence(place, r); }
inline std::string table_key(const std::string& place) { return sentence(place, "table"); }

} // namespace detail

SPAR_INLINE rendezvous::rendezvous(std::shared_ptr<rendezvous_store> meeting, rank_t rank, rank_t size,
                                   const rendezvous_options& options) {
  if (meeting == nullptr) raise<invalid_argument>({"a rendezvous needs a store, got none"});
  if (rank < 0 || rank >= size)
    raise<invalid_argument>({"rank ", rank, " of ", size, " ranks is invalid; expected 0 to ", size - 1});
  detail::check_number(options.deadline, detail::valid::time_limit, "the deadline of the rendezvous");
  shared_ = std::make_shared<shared>();
  *shared_ = {std::move(meeting), rank, size, options, "spar/", detail::name_of_process()};
}

SPAR_INLINE rendezvous rendezvous::from_environment(const rendezvous_options& options) {
  const detail::place_in_job place = detail::place_from_environment(options);
  std::shared_ptr<rendezvous_store> meeting;
  if (place.rank == 0)
    meeting = std::make_shared<tcp_store_server>(place.where);
  else
    meeting = std::make_shared<tcp_store>(place.where);
  return {std::move(meeting), place.rank, place.size, place.where};
}

SPAR_INLINE rendezvous rendezvous::among(std::string_view group, rank_t rank, rank_t size) const {
  rendezvous result(shared_->meeting, rank, size, shared_->options);
  result.shared_->prefix = sentence(shared_->prefix, group, "/");
  return result;
}

SPAR_INLINE rendezvous rendezvous::among_all(std::string_view group, rank_t rank, rank_t size) const {
  return rendezvous(shared_->meeting, rank, size, shared_->options).among(group, rank, size);
}

SPAR_INLINE std::string rendezvous::key(std::string_view name) const { return sentence(shared_->prefix, name); }

SPAR_INLINE std::string rendezvous::place_of(std::uint64_t number) const {
  return key(sentence("exchange/", number, "/"));
}

SPAR_INLINE std::vector<std::string> rendezvous::exchange_beside(std::string_view own, const work& meanwhile) const {
  const std::uint64_t number = shared_->exchanges++;
  try {
    return exchange_at(place_of(number), own, meanwhile);
  } catch (const std::bad_alloc& why) { // the others would wait for this rank until the deadline
    refuse_exchange(number, why.what());
    throw;
  }
}

SPAR_INLINE void rendezvous::refuse_exchange(std::string_view why) const noexcept {
  refuse_exchange(shared_->exchanges++, why);
}

SPAR_INLINE void rendezvous::refuse_exchange(std::uint64_t number, std::string_view why) const noexcept {
  try {
    const std::string place = place_of(number);
    const peer_failed reason(sentence("rank ", rank(), " has failed to meet the others: ", why));
    if (rank() == 0)
      refuse(place, reason);
    else // rank 0 refuses for all
      meeting().put(detail::arrival_key(place, rank()), detail::encode_refusal(reason));
  } catch (...) { // the others learn it by their deadline
  }
}

SPAR_INLINE std::vector<std::string> rendezvous::exchange_at(const std::string& place, std::string_view own,
                                                             const work& meanwhile) const {
  const std::string arrived = detail::encode({version, shared_->options.job, shared_->process, shared_->size, own});
  const std::string kept = meeting().put(detail::arrival_key(place, rank()), arrived);
  detail::throw_refusal(kept);
  if (kept != arrived) {
    const mismatch why(sentence("two processes have the rank ", rank(), ": ", detail::decode_arrival(kept).process,
                                " and ", shared_->process));
    refuse(place, why);
    throw why;
  }
  if (rank() == 0) {
    std::string table;
    try {
      const std::vector<std::string> texts = collect(place, meanwhile);
      table = detail::encode_table(texts);
      detail::throw_refusal(meeting().put(detail::table_key(place), table));
      return texts;
    } catch (const transport_error&) {
      throw;
    } catch (const error& why) {
      refuse(place, why);
      throw;
    }
  }
  constexpr double longer = 5; // than rank 0 waits, so that its error says who is missing
  const auto table = wait(detail::table_key(place), deadline() + longer, meanwhile);
  if (!table) {
    raise<timeout>({"rank ", rank(), " has waited ", deadline(),
                    " s for rank 0 to collect the addresses of all ranks; rank 0 has ended or waits for others"});
  }
  detail::throw_refusal(*table);
  std::vector<std::string> texts = detail::decode_table(*table);
  if (texts.size() != static_cast<std::size_t>(size()))
    raise<mismatch>({"rank ", rank(), " expects ", size(), " ranks, but rank 0 expects ", texts.size()});
  return texts;
}

SPAR_INLINE std::optional<std::string> rendezvous::wait(const std::string& key, double seconds,
                                                        const work& meanwhile) const {
  if (meanwhile.call == nullptr) return meeting().wait(key, seconds);
  constexpr double slice = 1e-3; // seconds between calls of `meanwhile`
  for (const double until = detail::monotonic_seconds() + seconds;;) {
    auto value = meeting().wait(key, slice);
    if (value || detail::monotonic_seconds() >= until) return value;
    try {
      meanwhile.call(meanwhile.self);
    } catch (...) { // a rank that has the value may have failed afterwards
      value = meeting().wait(key, 0);
      if (value) return value;
      throw;
    }
  }
}

SPAR_INLINE std::vector<std::string> rendezvous::collect(const std::string& place, const work& meanwhile) const {
  const double until = detail::monotonic_seconds() + deadline();
  std::vector<std::string> texts;
  std::vector<rank_t> missing;
  for (rank_t r = 0; r < size(); ++r) {
    const double left = std::max(until - detail::monotonic_seconds(), 0.);
    const auto entry = wait(detail::arrival_key(place, r), left, meanwhile);
    if (!entry) {
      missing.push_back(r);
      continue;
    }
    detail::throw_refusal(*entry);
    const detail::arrival a = detail::decode_arrival(*entry);
    const std::string& job = shared_->options.job;
    if (a.version != version) {
      raise<mismatch>({"rank ", r, " runs spar ", a.version, ", but rank 0 runs spar ", version, ": ", a.process,
                       "; start all ranks from one build"});
    }
    if (a.size != size())
      raise<mismatch>({"rank ", r, " expects ", a.size, " ranks, but rank 0 expects ", size(), ": ", a.process});
    if (a.job != job) {
      raise<mismatch>({"rank ", r, " belongs to ", detail::name_of_job(a.job), ", but rank 0 to ",
                       detail::name_of_job(job), ": ", a.process});
    }
    texts.emplace_back(a.text);
  }
  if (!missing.empty()) {
    const char* const have = missing.size() == 1 ? " has" : " have";
    const auto* const server = dynamic_cast<const tcp_store_server*>(&meeting());
    std::string listens;
    if (server != nullptr) {
      const std::string refusals = server->refusals();
      listens = sentence("; rank 0 listens on port ", server->port(), refusals.empty() ? "" : " and ", refusals);
    }
    raise<timeout>(
        {detail::list_of_ranks(missing), " of ", size(), have, " not come within ", deadline(), " s", listens});
  }
  return texts;
}

SPAR_INLINE void rendezvous::refuse(const std::string& place, const error& why) const {
  const std::string refusal = detail::encode_refusal(why);
  for (rank_t r = 0; r < size(); ++r) meeting().put(detail::arrival_key(place, r), refusal);
  meeting().put(detail::table_key(place), refusal);
  // The error may end this process at once, and its store with it.
  constexpr double last_answers = 0.25; // seconds in which the ranks that wait get the reason
  if (rank() == 0 && size() > 1) detail::rest(last_answers);
}

} // namespace spar::inline v0_1
