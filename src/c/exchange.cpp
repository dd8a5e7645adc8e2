// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The collectives of the C interface that are no allreduce: allgather, broadcast and the barrier.
#include "request.hpp"
#include "stream.hpp"

#include <spar/storage/gathered.hpp>
#include <spar/system/collectives.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/transport/any.hpp>

namespace spar::inline v0_1::c {

namespace {

/// The streams of all ranks.
class gathered_streams : public object {
 public:
  static constexpr kind handles = kind::gathered;

  [[nodiscard]] virtual spar_vector view(int rank) const = 0;
};

template <class T, class Index>
class typed_gathered final : public gathered_streams {
 public:
  typed_gathered(std::shared_ptr<communicator> on, gathered<T, Index>&& all) noexcept
      : on_(std::move(on)), all_(std::move(all)) {}

  [[nodiscard]] spar_vector view(int rank) const override {
    if (rank < 0 || static_cast<std::size_t>(rank) >= all_.size())
      raise<invalid_argument>({"'rank' is ", rank, "; expected 0 to ", all_.size() - 1});
    return vector_of(all_.part(static_cast<std::size_t>(rank)));
  }

 private:
  std::shared_ptr<communicator> on_; // whose pool owns the memory
  gathered<T, Index> all_;
};

struct nothing {};

void allgather_values(spar_comm comm, void* values, std::int64_t n, int type, spar_request* request) {
  const auto on = open_communicator(comm);
  for_type(type, [&]<class T>(std::type_identity<T>) {
    const auto x = checked_array<T>(values, n, "values");
    make_call(comm, on, nothing{}, request, [&] { return start_allgather(on->net(), x); }, [] {});
  });
}

void allgather_streams(spar_comm comm, const spar_vector* mine, spar_gathered* all, spar_request* request) {
  const auto on = open_communicator(comm);
  begin_output(all, "all");
  check_pointer(mine, "mine");
  for_types(mine->type, mine->index_bits, [&]<class T, class Index>(std::type_identity<T>, std::type_identity<Index>) {
    const sparse_arrays<T, Index> given(*mine);
    const auto view = stream_view<T, Index>::sparse(given.n, given.indices, given.values);
    make_call(
        comm, on, nothing{}, request, [&] { return start_allgather(on->net(), view); },
        [on, all](gathered<T, Index> result) {
          *all = handle_for<spar_gathered>(
              std::shared_ptr<gathered_streams>(std::make_shared<typed_gathered<T, Index>>(on, std::move(result))));
        });
  });
}

void broadcast_values(spar_comm comm, void* values, std::int64_t n, int type, int root, spar_request* request) {
  const auto on = open_communicator(comm);
  for_type(type, [&]<class T>(std::type_identity<T>) {
    const auto x = checked_array<T>(values, n, "values");
    make_call(comm, on, nothing{}, request, [&] { return start_broadcast(on->net(), x, rank_t{root}); }, [] {});
  });
}

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar;
using namespace spar::c;

extern "C" {

int spar_barrier(spar_comm comm) {
  return guarded(__func__, comm, [&] { barrier(open_communicator(comm)->net()); });
}

int spar_start_barrier(spar_comm comm, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    const auto on = open_communicator(comm);
    make_call(comm, on, nothing{}, request, [&] { return start_barrier(on->net()); }, [] {});
  });
}

int spar_allgather(spar_comm comm, void* values, int64_t n, int type) {
  return guarded(__func__, comm, [&] { allgather_values(comm, values, n, type, nullptr); });
}
int spar_start_allgather(spar_comm comm, void* values, int64_t n, int type, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    allgather_values(comm, values, n, type, request);
  });
}

int spar_allgather_sparse(spar_comm comm, const spar_vector* mine, spar_gathered* all) {
  return guarded(__func__, comm, [&] { allgather_streams(comm, mine, all, nullptr); });
}
int spar_start_allgather_sparse(spar_comm comm, const spar_vector* mine, spar_gathered* all, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    allgather_streams(comm, mine, all, request);
  });
}

int spar_broadcast(spar_comm comm, void* values, int64_t n, int type, int root) {
  return guarded(__func__, comm, [&] { broadcast_values(comm, values, n, type, root, nullptr); });
}
int spar_start_broadcast(spar_comm comm, void* values, int64_t n, int type, int root, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    broadcast_values(comm, values, n, type, root, request);
  });
}

int spar_block(int64_t n, int ranks, int rank, int64_t* begin, int64_t* end) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(begin, "begin");
    check_pointer(end, "end");
    if (ranks < 1) raise<invalid_argument>({"'ranks' is ", ranks, "; expected at least 1"});
    if (rank < 0 || rank >= ranks) raise<invalid_argument>({"'rank' is ", rank, "; expected 0 to ", ranks - 1});
    const index_range block = uniform_ownership{checked_count(n, "n"), ranks}[rank];
    *begin = signed_of(block.begin);
    *end = signed_of(block.end);
  });
}

int spar_gathered_view(spar_gathered all, int rank, spar_vector* view) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(view, "view");
    *view = get<gathered_streams>(all, "all").view(rank);
  });
}

int spar_gathered_free(spar_gathered* all) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(all, "all");
    if (*all != nullptr) take<gathered_streams>(all, "all");
  });
}

} // extern "C"
