// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of <spar/any_ucx.hpp>.
#pragma once

#include <spar/system/ucx_grow.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/ucx.hpp>

#include <memory>

namespace spar::inline v0_1 {

namespace detail {

class ucx_rank final : public owned_rank<ucx> {
 public:
  explicit ucx_rank(ucx* own) : owned_rank(own) { hosts = hosts_of(net()); }

  any_rank* split(int colour, int key) override { return new ucx_rank(new ucx(net().split(colour, key))); }
  any_rank* shrink() override { return new ucx_rank(new ucx(net().shrink())); }
  any_rank* grow() override {
    std::unique_ptr<ucx> wider = net().grow();
    return wider == nullptr ? nullptr : new ucx_rank(wider.release()); // which allocates before it releases
  }
};

} // namespace detail

SPAR_INLINE any_transport any_ucx(const rendezvous& meeting) {
  return detail::any_access::transport(new detail::ucx_rank(new ucx(meeting)));
}
SPAR_INLINE any_transport any_ucx_join(const rendezvous_options& meeting) {
  return detail::any_access::transport(new detail::ucx_rank(new ucx(ucx::join(meeting))));
}
SPAR_INLINE any_transport any_ucx_join(const std::shared_ptr<rendezvous_store>& store,
                                       const rendezvous_options& meeting) {
  return detail::any_access::transport(new detail::ucx_rank(new ucx(ucx::join(store, meeting))));
}

} // namespace spar::inline v0_1
