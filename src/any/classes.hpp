// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The classes of <spar/any.hpp> for one type of values. Other files have the compositions.
#pragma once

#include <spar/system/any/allreduce-inl.hpp>
#include <spar/system/any/feedback-inl.hpp>
#include <spar/system/any/systems.hpp>

#include <cstdint>
#include <span>
#include <string_view>

#define SPAR_CLASSES_FOR(T, Index)                                                                                     \
  template class spar::any_sum<T, Index>;                                                                              \
  template class spar::any_pending<spar::any_sum<T, Index>>;                                                           \
  template class spar::any_pending<spar::any_selected_sum<T, Index>>;                                                  \
  template class spar::any_allreduce<T, Index>;                                                                        \
  template class spar::any_feedback<T, Index>;                                                                         \
  template const spar::detail::allreduce_object<T, Index>* spar::detail::allreduce_from(                               \
      std::string_view text, std::span<const spar::rank_t> hosts)

#define SPAR_CLASSES(T)                                                                                                \
  SPAR_CLASSES_FOR(T, std::uint32_t);                                                                                  \
  SPAR_CLASSES_FOR(T, std::uint64_t)
