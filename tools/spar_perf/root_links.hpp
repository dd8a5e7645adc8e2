// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts the payload that crosses the links below a tree's root.
#pragma once

#include <spar/topology/tree.hpp>
#include <spar/transport/decorator.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perf {

/// Maps each rank to the link between a tree's root and the child of the root above the rank.
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

/// Adds up the payload in bytes that goes up and down each link, for all ranks that share the counters. Counts less
/// than spar::counting, whose counters for each pair of ranks need too much memory in the simulator.
template <spar::transport Net>
class counting_links_port : public spar::decorated_port<Net> {
 public:
  counting_links_port(Net& net, const root_links& links) : spar::decorated_port<Net>(net), links_(&links) {}

  /// Counts from now on in `bytes`: bytes[2 * link] for up, bytes[2 * link + 1] for down. Null stops counting.
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
