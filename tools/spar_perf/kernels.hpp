// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that measures policies alone, by Google Benchmark: selectors, codecs and operations.
//
//   int main(int argc, char** argv) {
//     spar::perf::register_selector("mine", my_selector{.density = 0.01});
//     spar::perf::register_storage<my_codec>();
//     return spar::perf::run_kernels(argc, argv);
//   }
#pragma once

#include "kernels/policies.hpp"

#include <string>
#include <type_traits>
#include <utility>

namespace spar::perf {

namespace detail {

void add_kernel(selector_policy policy);
void add_kernel(stream_policy policy);
void add_kernel(block_policy policy);
void add_kernel(merge_policy policy);

} // namespace detail

/// Adds a selector of values of type float.
template <class Selector>
void register_selector(std::string name, Selector select) {
  detail::add_kernel(erased_selector(std::move(name), std::move(select)));
}
template <class Selector>
void register_selector() {
  register_selector(std::string(Selector::name), Selector{});
}

/// Adds the stream codec and the block codec of a storage of values of type float. `error` bounds |decoded - value| /
/// the largest |value|, for a codec that rounds and does not state its `relative_error`.
template <class Storage>
void register_storage(std::string name, const Storage& store, double error = 0) {
  static_assert(has_stream_codec<Storage> || has_block_codec<Storage>,
                "this is not a storage: a stream codec has exact, entry_bits, delta, bound, encode and decode; a block "
                "codec has encoded_bytes, encode and decode; both have fills, name and options(f)");
  if constexpr (has_stream_codec<Storage>)
    detail::add_kernel(erased_stream_codec(name, storage::streams_of(store), error));
  if constexpr (has_block_codec<Storage>)
    detail::add_kernel(erased_block_codec(name, storage::blocks_of(store), error));
}
template <class Storage>
void register_storage(double error = 0) {
  register_storage(std::string(Storage::name), Storage{}, error);
}

/// Adds an operation, by which two sparse streams are merged.
template <class Op>
void register_merge(std::string name, Op op) {
  detail::add_kernel(erased_operation(std::move(name), std::move(op)));
}
template <class Op>
void register_merge() {
  register_merge(std::string(Op::name), Op{});
}

/// Checks the contracts of the policies that were registered, then measures them beside the library's own. Takes the
/// options of Google Benchmark, and `--gradients FILE`: float32 values, little-endian, as another input. Returns the
/// exit status of the program: 1 if a policy has thrown an exception, 2 for a wrong option or a policy that breaks its
/// contract, of which a sentence says how.
int run_kernels(int argc, char** argv);

} // namespace spar::perf
