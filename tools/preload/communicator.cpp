// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "communicator.hpp"

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/allreduce/rabenseifner.hpp>
#include <spar/collective/allreduce/recursive_doubling.hpp>
#include <spar/collective/allreduce/ring.hpp>
#include <spar/collective/compressed/two_shot.hpp>
#include <spar/collective/tree/chains.hpp>
#include <spar/collective/tree/on_tree.hpp>
#include <spar/collective/tree/tree_plans.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/system/collectives.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/transport/mpi/hosts.hpp>

#include <algorithm>
#include <cstdio>
#include <set>
#include <span>
#include <string>
#include <variant>

namespace preload {

namespace {

/// A communicator of the same ranks without the attributes of `comm`.
class bare_communicator {
 public:
  explicit bare_communicator(MPI_Comm comm) {
    MPI_Group group = MPI_GROUP_NULL;
    spar::detail::check_mpi(PMPI_Comm_group(comm, &group), "MPI_Comm_group");
    const int code = PMPI_Comm_create(comm, group, &comm_);
    PMPI_Group_free(&group);
    spar::detail::check_mpi(code, "MPI_Comm_create");
  }
  bare_communicator(const bare_communicator&) = delete;
  ~bare_communicator() {
    if (comm_ != MPI_COMM_NULL) PMPI_Comm_free(&comm_);
  }
  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// Limits the sum of the numbers of ranks of all cached plans: a plan for P ranks takes up to 20 P^2 bytes.
constexpr std::size_t most_planned_ranks = 4096;

} // namespace

communicator::communicator(MPI_Comm comm, const settings& chosen, bool devices)
    : settings_(chosen), parts_(spar::parse_composition(chosen.text.data())), devices_(devices) {
  const bare_communicator same_ranks(comm);
  net_.emplace(same_ranks.get());
  net_->set_deadline(); // no deadline: the program may make its calls at any time
  net_->port().set_network(settings_.network);
  const std::vector<spar::rank_t> host_of = spar::hosts_of(same_ranks.get());
  const std::size_t hosts = std::set<spar::rank_t>(host_of.begin(), host_of.end()).size();
  on_one_host_ = hosts == 1;
  // If several ranks share the link of their host, a tree sends each value over the link once per direction.
  const bool shares_links = !on_one_host_ && hosts < host_of.size();
  if (settings_.chosen == algorithm::chains || (settings_.chosen == algorithm::automatic && shares_links)) {
    const double bandwidth = 1 / std::max(settings_.network.beta, 1e-15); // beta may be 0
    hosts_ = spar::tree_of_hosts(host_of, {}, {.bandwidth = bandwidth, .latency = settings_.network.alpha / 2});
  }
}

const communicator::course& communicator::course_of(std::uint64_t n, std::size_t value_bytes) {
  const auto found = std::find_if(courses_.begin(), courses_.end(),
                                  [&](const auto& c) { return c->n == n && c->value_bytes == value_bytes; });
  if (found != courses_.end()) return **found;
  const std::size_t most = std::clamp<std::size_t>(most_planned_ranks / hosts_->leaves().size(), 1, 64);
  if (courses_.size() == most) courses_.erase(courses_.begin());
  return *needed([&] {
    auto made = std::make_unique<course>(course{n, value_bytes, std::nullopt});
    const double bytes = static_cast<double>(n) * static_cast<double>(value_bytes);
    if (parts_.over == spar::topology_text::blueconnect)
      made->plan = spar::blueconnect_plan(*hosts_, n);
    else if (parts_.over == spar::topology_text::hierarchical)
      made->plan = spar::flex_plan::hierarchical(*hosts_, n);
    // Use FlexReduce even if the model predicts that the ring is the fastest: measurements contradict the model.
    else if (settings_.chosen == algorithm::chains ||
             spar::choose_on_tree(*hosts_, bytes) != spar::tree_choice::rabenseifner)
      made->plan.emplace(*hosts_, n);
    return courses_.emplace_back(std::move(made)).get();
  });
}

template <class Text>
void communicator::tell(std::size_t n, Text text) {
  if (!settings_.verbose || net_->rank() != 0 || reported_ == n) return;
  reported_ = n;
  std::fprintf(stderr, "spar: %zu values: %s\n", n, std::string(text()).c_str());
}

template <class Word>
void communicator::exact(Word* x, std::size_t n, const reduction& what) {
  const any_reduction<Word> op{what.run};
  const std::span<Word> all(x, n);
  const auto with = [&](const auto&... parts) {
    const auto algorithm = spar::compose(parts...);
    const auto agreed = spar::signature_of<Word, std::uint32_t, any_reduction<Word>>(n, algorithm, what.code);
    spar::run_collective(*net_, agreed, algorithm, all, op);
  };
  switch (settings_.chosen) {
  case algorithm::rabenseifner:
    return with(spar::rabenseifner{});
  case algorithm::ring:
    return with(std::get<spar::ring>(parts_.by));
  case algorithm::rec_doubling:
    return with(std::get<spar::recursive_doubling>(parts_.by));
  default:
    if (!hosts_) return with(spar::cheapest{});
    const course& by = course_of(n, sizeof(Word));
    if (settings_.chosen == algorithm::automatic) {
      tell(n, [&] { return by.plan ? "flexreduce, because ranks share links" : "rabenseifner, by the network model"; });
    }
    if (by.plan) return with(spar::on_plan(*by.plan), spar::chains{});
    return with(spar::rabenseifner{});
  }
}

template <class T>
void communicator::lossy(T* x, std::size_t n) {
  const auto& codec = std::get<spar::storage::named_codec>(parts_.store);
  const std::span<T> all(x, n);
  switch (settings_.chosen) {
  case algorithm::ring:
    return spar::allreduce(*net_, all, spar::compose(codec, std::get<spar::ring>(parts_.by)));
  case algorithm::rec_doubling:
    return spar::allreduce(*net_, all, spar::compose(codec, std::get<spar::recursive_doubling>(parts_.by)));
  case algorithm::two_shot:
    return spar::allreduce(*net_, all, spar::compose(codec, std::get<spar::two_shot>(parts_.by)));
  case algorithm::one_shot:
    return spar::allreduce(*net_, all, spar::compose(codec, std::get<spar::one_shot>(parts_.by)));
  case algorithm::chains:
    return spar::allreduce(*net_, all,
                           spar::compose(codec, spar::on_plan(*course_of(n, sizeof(T)).plan), spar::chains{}));
  default:
    tell(n, [&] { return spar::cheapest::compression<T>(codec, net_->network(), net_->size(), n).reason(); });
    return spar::allreduce(*net_, all, spar::compose(codec, spar::cheapest{}));
  }
}

void communicator::allreduce(void* numbers, std::size_t n, const reduction& what) {
  if (is_lossy(settings_, what)) {
    if (what.type == number::float32) return lossy(static_cast<float*>(numbers), n);
    return lossy(static_cast<double*>(numbers), n);
  }
  switch (what.bytes) {
  case 1:
    return exact(static_cast<std::uint8_t*>(numbers), n, what);
  case 2:
    return exact(static_cast<std::uint16_t*>(numbers), n, what);
  case 4:
    return exact(static_cast<std::uint32_t*>(numbers), n, what);
  case 8:
    return exact(static_cast<std::uint64_t*>(numbers), n, what);
  default:
    return exact(static_cast<word16*>(numbers), n, what);
  }
}

} // namespace preload
