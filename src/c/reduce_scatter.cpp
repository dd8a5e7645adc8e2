// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reduce-scatter of the C interface.
#include "request.hpp"
#include "stream.hpp"

#include <spar/system/collectives.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/transport/any.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace spar::inline v0_1::c {

/// An operation of C, as schedules take it; an average is the sum here.
struct chosen : detail::chosen_operation {
  void options(auto&& f) const {
    f("kind", static_cast<std::uint64_t>(detail::chosen_operation::chosen.which()));
    detail::chosen_operation::options(f);
  }
};

namespace {

/// What must live as long as a call.
struct kept {
  used_operation by;
  std::vector<std::uint64_t> bounds;
};

/// The bounds of the blocks of `n` values: those that the program has given or, without any, those of blocks of equal
/// size.
std::vector<std::uint64_t> bounds_of(const std::int64_t* given, std::uint64_t n, rank_t ranks) {
  std::vector<std::uint64_t> bounds;
  bounds.reserve(static_cast<std::size_t>(ranks) + 1);
  for (rank_t r = 0; r <= ranks; ++r) {
    if (given != nullptr && given[r] < 0)
      raise<invalid_argument>({"bound ", r, " in 'bounds' is ", given[r], "; expected at least 0"});
    bounds.push_back(given != nullptr ? static_cast<std::uint64_t>(given[r]) : uniform_ownership{n, ranks}.begin(r));
  }
  return bounds;
}

/// Divides the sums `block` by the number of ranks if the operation is the average.
template <class T>
void finish_block(std::span<T> block, const used_operation& by, rank_t ranks) {
  if (by.what.which() != any_operation::kind::average) return;
  for (T& value : block) value = average::finalize(value, ranks);
}

void reduce_values(spar_comm comm, void* values, std::int64_t n, int type, spar_op op, const std::int64_t* bounds,
                   spar_request* request) {
  const auto on = open_communicator(comm);
  const used_operation by = operation_of(op, type);
  for_type(type, [&]<class T>(std::type_identity<T>) {
    const auto x = checked_array<T>(values, n, "values");
    any_transport& net = on->net();
    kept its{by, bounds_of(bounds, x.size(), net.size())};
    const bounded_ownership owner{std::span<const std::uint64_t>(its.bounds)};
    const auto rank = static_cast<std::size_t>(net.rank());
    const auto finish = [by, x, begin = its.bounds[rank], end = its.bounds[rank + 1], ranks = net.size()] {
      finish_block(x.subspan(begin, end - begin), by, ranks);
    };
    make_call(
        comm, on, std::move(its), request,
        [&] { return start_reduce_scatter(net, x, owner, ring_reduce_scatter{}, chosen{by.what}); }, finish);
  });
}

void reduce_streams(spar_comm comm, const spar_vector* mine, spar_op op, const std::int64_t* bounds, spar_stream* block,
                    spar_request* request) {
  const auto on = open_communicator(comm);
  begin_output(block, "block");
  check_pointer(mine, "mine");
  const used_operation by = operation_of(op, mine->type);
  for_types(mine->type, mine->index_bits, [&]<class T, class Index>(std::type_identity<T>, std::type_identity<Index>) {
    const sparse_arrays<T, Index> given(*mine);
    const auto view = stream_view<T, Index>::sparse(given.n, given.indices, given.values);
    any_transport& net = on->net();
    kept its{by, bounds_of(bounds, given.n, net.size())};
    const bounded_ownership owner{std::span<const std::uint64_t>(its.bounds)};
    const auto finish = [on, by, block](sparse_stream<T, Index> sum) {
      finish_block(sum.values(), by, on->net().size());
      *block = handle_of<T, Index>(on, by, std::move(sum));
    };
    make_call(
        comm, on, std::move(its), request,
        [&] { return start_reduce_scatter(net, view, owner, split_reduce_scatter{}, chosen{by.what}); }, finish);
  });
}

} // namespace

} // namespace spar::inline v0_1::c

using namespace spar::c;

extern "C" {

int spar_reduce_scatter(spar_comm comm, void* values, int64_t n, int type, spar_op op, const int64_t* bounds) {
  return guarded(__func__, comm, [&] { reduce_values(comm, values, n, type, op, bounds, nullptr); });
}
int spar_start_reduce_scatter(spar_comm comm, void* values, int64_t n, int type, spar_op op, const int64_t* bounds,
                              spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    reduce_values(comm, values, n, type, op, bounds, request);
  });
}

int spar_reduce_scatter_sparse(spar_comm comm, const spar_vector* mine, spar_op op, const int64_t* bounds,
                               spar_stream* block) {
  return guarded(__func__, comm, [&] { reduce_streams(comm, mine, op, bounds, block, nullptr); });
}
int spar_start_reduce_scatter_sparse(spar_comm comm, const spar_vector* mine, spar_op op, const int64_t* bounds,
                                     spar_stream* block, spar_request* request) {
  return guarded(__func__, comm, [&] {
    begin_output(request, "request");
    reduce_streams(comm, mine, op, bounds, block, request);
  });
}

} // extern "C"
