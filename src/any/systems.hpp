// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems that the library contains for one type of values.
#pragma once

#include <spar/any_compose.hpp>
#include <spar/spar.hpp>
#include <spar/system/any/allreduce-inl.hpp>

#include <cstdint>
#include <string_view>

namespace spar::inline v0_1::detail {

template <class T, class Index>
const allreduce_object<T, Index>* allreduce_from(std::string_view text) {
  const auto object = [](auto algorithm) -> const allreduce_object<T, Index>* {
    const auto composed = as_algorithm(algorithm);
    return new allreduce_of<T, Index, std::remove_const_t<decltype(composed)>>(composed);
  };
  if (text == "sparcml") return object(sparcml{});
  if (text == "ssar_split") return object(ssar_split{});
  if (text == "dsar_split") return object(dsar_split{});
  if (text == "rec_doubling") return object(recursive_doubling{});
  if (text == "ring") return object(ring{});
  if (text == "rabenseifner") return object(rabenseifner{});
  if (text == "allgather") return object(gather_and_merge{});
  raise<invalid_argument>({"there is no system '", text,
                           "'; expected sparcml, ssar_split, dsar_split, rec_doubling, ring, rabenseifner or "
                           "allgather"});
}

} // namespace spar::inline v0_1::detail

/// Defines the classes of <spar/any.hpp> for values of T and for indices of 32 and 64 bits.
#define SPAR_INSTANTIATE(T)                                                                                            \
  template class spar::any_sum<T, std::uint32_t>;                                                                      \
  template class spar::any_sum<T, std::uint64_t>;                                                                      \
  template class spar::any_pending<spar::any_sum<T, std::uint32_t>>;                                                   \
  template class spar::any_pending<spar::any_sum<T, std::uint64_t>>;                                                   \
  template class spar::any_allreduce<T, std::uint32_t>;                                                                \
  template class spar::any_allreduce<T, std::uint64_t>
