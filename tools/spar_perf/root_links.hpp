// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What crosses the links of a tree's root.
#pragma once

#include <spar/topology/tree.hpp>
#include <spar/transport/decorator.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perf {

/// Which of the links of a tree's root each rank is behind.
class root_links {
 public:
  explicit root_links(const spar::tree& topology)
      : behind_(static_cast<std::size_t>(topology.ranks())), count_(topology.nodes()[0].children.size()) {
    for (std::size_t link = 0; link < count_; ++link) {
      for (const spar::rank_t r : topology.leaves_of(topology.nodes()[topology.nodes()[0].children[link]])) {
        behind_[static_cast<std::size_t>(r)] = link;
      }
    }
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t behind(spar::rank_t rank) const noexcept { return behind_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::size_t> behind_;
  std::size_t count_;
};

/// Adds up the payload that goes up and down each link, which counts for all ranks that share `bytes`. Less than
/// spar::counting, whose counters for each pair of ranks are too many for the simulator.
template <spar::transport Net>
class counting_links_port : public spar::decorated_port<Net> {
 public:
  counting_links_port(Net& net, const root_links& links) : spar::decorated_port<Net>(net), links_(&links) {}

  /// From now on; nowhere if null. Up and down of a link stand side by side.
  void count_in(std::vector<std::uint64_t>* bytes) {
    bytes_ = bytes;
    if (bytes_ != nullptr) bytes_->resize(2 * links_->count());
  }

  auto send(const spar::message_pieces& out, spar::rank_t peer, spar::tag_t tag) {
    const std::size_t up = links_->behind(this->rank()), down = links_->behind(peer);
    if (bytes_ != nullptr && up != down) {
      (*bytes_)[2 * up] += out.head.payload_bytes();
      (*bytes_)[2 * down + 1] += out.head.payload_bytes();
    }
    return this->inner().send(out, peer, tag);
  }
  auto receive(spar::message_buffer& in, spar::rank_t peer, spar::tag_t tag) {
    return this->inner().receive(in, peer, tag);
  }

 private:
  const root_links* links_;
  std::vector<std::uint64_t>* bytes_ = nullptr;
};

template <spar::communicates Net>
class counting_links : public spar::communicator_rank<counting_links_port<typename Net::port_type>> {
 public:
  counting_links(Net& net, const root_links& links) : counting_links::communicator_rank(net.port(), links) {}

  void count_in(std::vector<std::uint64_t>* bytes) { this->port().count_in(bytes); }
};

} // namespace perf
