// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions `allreduce` and `start_allreduce`: allreduce of sparse streams and of dense values, blocking or
// non-blocking, with or without a name.
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/finalize.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/system/collectives.hpp>

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace spar {

namespace detail {

/// Whether `Algorithm` is a composition whose selector takes entries from dense values; false for every other
/// algorithm.
template <class Algorithm>
inline constexpr bool selects_entries = false;
template <class Selector, class Storage, class Topology, class Schedule>
inline constexpr bool selects_entries<composition<Selector, Storage, Topology, Schedule>> =
    composition<Selector, Storage, Topology, Schedule>::selects_entries;

/// Copies the values `in` to the equally many values `out`, by way of `memory` if both have gaps.
template <class In, class Out>
void copy_values(const In& in, const Out& out, [[maybe_unused]] pool& memory) {
  if constexpr (strided_values<In> && strided_values<Out>) {
    buffer<typename Out::element_type> values(memory, in.size());
    in.copy_to(values.span());
    out.copy_from(std::as_const(values).span());
  } else if constexpr (strided_values<In>) {
    in.copy_to(out);
  } else if constexpr (strided_values<Out>) {
    out.copy_from(in);
  } else {
    std::copy(in.begin(), in.end(), out.begin());
  }
}

/// The overloads of `allreduce` and `start_allreduce`, for streams and for dense values. `begin` starts a blocking or
/// non-blocking call, with or without a name.
struct allreduce_forms {
  template <class Mode, transport Net, element T, index_type Index, class Given = sparcml, reduction<T> Op = sum>
  auto operator()(Mode begin, Net& net, const stream_view<T, Index>& mine, Given given = {}, Op op = {}) const {
    auto algorithm = as_algorithm(std::move(given));
    using Algorithm = decltype(algorithm);
    check_protocol<Algorithm, T, Op>();
    static_assert(!selects_entries<Algorithm>, "a selector takes entries from dense values; to reduce a stream, use a "
                                               "composition with the selector everything");
    static_assert(
        stream_allreduce<Algorithm, Net, T, Index, Op>,
        "this algorithm does not allreduce sparse streams of this value type: it must be callable as "
        "algorithm(channel<Net>, stream_view<T, Index>, Op) -> task<sparse_stream<T, Index>>, and a storage that "
        "rounds takes floating-point values only");
    if constexpr (!values_on_device<Net>) validate(mine); // `on_device` has validated streams in device memory
    algorithm.template validate<T>(mine.dimension(), net.size(), op);
    const signature agreed = signature_of<T, Index, Op>(mine.dimension(), algorithm, options_of(op));
    return begin(net, agreed, with_finalize<Op, T>(std::move(algorithm)), mine, op);
  }
  template <class Mode, transport Net, element T, index_type Index, class... Rest>
  auto operator()(Mode begin, Net& net, const sparse_stream<T, Index>& mine, Rest&&... rest) const {
    return (*this)(begin, net, mine.view(), std::forward<Rest>(rest)...);
  }

  template <class Mode, transport Net, dense_values Values, class Given = sparcml, class Op = sum>
    requires(!dense_values<Given&>)
  auto operator()(Mode begin, Net& net, Values&& values, Given given = {}, Op op = {}) const {
    auto algorithm = as_algorithm(std::move(given));
    using Algorithm = decltype(algorithm);
    const auto x = view_of_values(values);
    using T = typename decltype(x)::element_type;
    if constexpr (expect_element<T>()) {
      static_assert(!reduction<Given, T>, "the operation of an allreduce follows the algorithm: for example "
                                          "allreduce(net, values, spar::sparcml{}, spar::maximum{})");
      static_assert(reduction<Op, T>,
                    "an allreduce needs an operation on its values: see spar::reduction; minimum and maximum "
                    "need values with an order");
      check_protocol<Algorithm, T, Op>();
      static_assert(dense_allreduce<Algorithm, Net, T, Op>,
                    "this algorithm does not allreduce dense values of this type: it must be callable as "
                    "algorithm(channel<Net>, std::span<T>, Op) -> task<void>, a storage that rounds takes "
                    "floating-point values only, and what keeps the largest values takes numbers only");
      validate_values<Net, T>(algorithm, x.size(), net.size(), op);
      const signature agreed = signature_of<T, no_indices, Op>(x.size(), algorithm, options_of(op));
      return begin(net, agreed, for_values(x, with_finalize<Op, T>(std::move(algorithm))), x, op);
    }
  }
  template <class Mode, transport Net, dense_values In, dense_values Out, class... Rest>
  auto operator()(Mode begin, Net& net, In&& input, Out&& output, Rest&&... rest) const {
    const auto in = view_of_values(input);
    const auto out = view_of_values(output);
    constexpr bool same =
        std::same_as<std::remove_const_t<typename decltype(in)::element_type>, typename decltype(out)::element_type>;
    static_assert(same, "the input and the output of an allreduce have different types of values, or the output cannot "
                        "be written: an allreduce does not convert values, because a narrower type would change them");
    if constexpr (same) {
      if (in.size() != out.size()) {
        raise<invalid_argument>(
            {"the input of an allreduce has length ", in.size(), ", but its output has length ", out.size()});
      }
      copy_values(in, out, net.memory());
      return (*this)(begin, net, output, std::forward<Rest>(rest)...);
    }
  }
};

} // namespace detail

/// Reduces the contributions of all ranks to their sum, or with another operation; the result has the same bits on all
/// ranks. The arguments must outlive the call.
///
/// - `allreduce(net, mine, algorithm = sparcml{}, op = sum{})` reduces streams: `mine` is a stream or a view of a
///   stream, and the result is returned as a new stream. Throws `invalid_argument`, before anything is sent, for a
///   malformed stream (see `validate`).
/// - `allreduce(net, values, algorithm = sparcml{}, op = sum{})` reduces dense values in place: `values` is a span,
///   vector or array of the same length on every rank, or a `strided`. After an error, `values` is unspecified.
/// - `allreduce(net, input, output, algorithm = sparcml{}, op = sum{})` reduces dense values, leaves `input` unchanged
///   and writes the result to `output`, which has values of the same type. Throws `invalid_argument` if the lengths
///   differ.
///
/// `algorithm` is a composition (see `compose`), a single part of a composition such as `ring{}`, or any struct that
/// follows the protocol in collective/algorithm.hpp. Calls with a name, which is the argument `named{"..."}` before the
/// values, may be made in different orders on different ranks.
template <communicates Net, class... Args>
auto allreduce(Net& net, Args&&... args) {
  return detail::begin_blocking(detail::allreduce_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}
/// Starts a non-blocking call and returns its handle (see `pending`). Takes the same arguments as `allreduce`, in any
/// of its forms; the arguments must stay valid until the call has ended.
template <communicates Net, class... Args>
auto start_allreduce(Net& net, Args&&... args) {
  return detail::begin_nonblocking(detail::allreduce_forms{}, detail::port_of(net), std::forward<Args>(args)...);
}

} // namespace spar
