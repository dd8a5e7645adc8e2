// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that compares its own systems with spar's: `suite().add("mine", spar::compose(...)).run(argc, argv)`.
#pragma once

#include "own_systems.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace spar::perf {

/// The systems of one program. The program has all options of spar_perf; without `--systems`, it compares spar's
/// systems with its own. Linked with MPI, the program measures over MPI, otherwise on threads and in the simulator.
class suite {
 public:
  /// Adds a system under a name that `--systems` accepts. `given` is what spar::allreduce accepts as an algorithm: a
  /// composition, a part of one, or an algorithm without slots. A composition that selects entries has error feedback.
  /// The system is compiled for values of type T and 32-bit indices, and `--type` must be this type. `relative_error`
  /// bounds |error| / the largest |sum| of a lossy system, for `--check`.
  template <class T = float, class Given>
  suite& add(std::string name, Given given, double relative_error = 0) {
    own_.add<T, std::uint32_t>([=](registry<T, std::uint32_t>& all) {
      const auto algorithm = spar::detail::as_algorithm(given);
      if constexpr (spar::detail::selects_entries<std::remove_cv_t<decltype(algorithm)>>)
        all.add_feedback(name, algorithm);
      else
        all.add(name, algorithm, relative_error);
    });
    own_.add_name(std::move(name));
    return *this;
  }

  /// Lets `--memory device` measure values in device memory: see device_systems.cuh.
  suite& add_device(std::shared_ptr<const device_memory> device) {
    own_.set_device(std::move(device));
    return *this;
  }

  /// Runs the command line. Returns the exit status of the program: 1 for a wrong result, 2 for a wrong option, 77 if
  /// something is missing.
  int run(int argc, char** argv) const;

 private:
  own_systems own_;
};

} // namespace spar::perf
