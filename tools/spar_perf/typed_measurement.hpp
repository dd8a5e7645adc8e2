// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement of all systems for values of type T and indices of type Index.
#pragma once

#include "measure_ranks.hpp"
#include "measure_sim.hpp"
#include "measurement.hpp"
#include "partial_systems.hpp"
#include "text_systems.hpp"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace spar::perf {

template <class T, class Index>
class typed_measurement : public measurement {
 public:
  explicit typed_measurement(const measured_systems& what)
      : options_(what.o), work_(workload_of(what.o, what.density, what.ranks)), topology_(what.topology),
        all_(what.o, what.density, what.topology) {
    register_systems(all_);
    what.own.register_in(all_);
    register_texts(all_);
    register_partial(all_);
    if (what.mpi) all_.add_mpi(what.mpi);
    if (options_.on_device) all_.add_nccl();
    systems_ = choose(all_, options_);
    if (options_.on_device) {
      if constexpr (has_partial<T, Index>)
        what.own.device()->place(systems_, what.o, what.density, what.topology, what.mpi);
      else
        throw missing("--memory device is available for float with 32-bit indices");
    }
    sums_ = sums_to_check<T>(work_, options_);
  }

  std::vector<record> on_rank(measured_net& net) const override {
    return measure(net, options_, work_, systems_, sums());
  }
  std::vector<record> simulated() const override {
    return measure_simulated(options_, work_, topology_, systems_, sums());
  }
  [[nodiscard]] std::size_t iterations() const override { return static_cast<std::size_t>(options_.iterations); }
  [[nodiscard]] std::vector<row> rows(std::vector<record> records) const override {
    return rows_of(systems_, std::move(records), work_, all_.density(), sums_, options_);
  }

 private:
  [[nodiscard]] const exact_sums* sums() const { return sums_ ? &*sums_ : nullptr; }

  options options_;
  workload work_;
  spar::tree topology_;
  registry<T, Index> all_; // owns what the systems refer to
  std::vector<system_entry<T, Index>> systems_;
  std::optional<exact_sums> sums_;
};

template <class T, class Index>
std::unique_ptr<measurement> measurement_for(const measured_systems& what) {
  return std::make_unique<typed_measurement<T, Index>>(what);
}

} // namespace spar::perf
