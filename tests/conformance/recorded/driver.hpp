// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs allreduces on fixed inputs and records the result's bits and the traffic of every call. How an algorithm is
// composed is known to recorded/systems.hpp alone.
#pragma once

#include <spar/transport/threads.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <istream>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace spar_test::recorded {

/// One rank's contribution to one call: entries, or all values of a vector of dimension n. Adapters convert the numbers
/// to the types of their system.
struct contribution {
  std::uint64_t n = 0;
  bool dense = false;                   ///< `values` has n values, and `indices` is empty
  std::vector<std::uint64_t> indices{}; ///< ascending, each once, below n
  std::vector<double> values{};
};

/// FNV-1a over bytes.
class hash {
 public:
  void add(const void* bytes, std::size_t count) noexcept {
    const auto* const at = static_cast<const unsigned char*>(bytes);
    for (std::size_t i = 0; i < count; ++i) value_ = (value_ ^ at[i]) * 1099511628211U;
  }
  template <class Values>
  void add_values(const Values& values) noexcept {
    if (!values.empty()) add(values.data(), values.size() * sizeof(*values.data()));
  }
  void add_number(std::uint64_t number) noexcept { add(&number, sizeof number); }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 14695981039346656037U;
};

/// The outcome of one call on one rank, as hashes.
struct outcome {
  std::uint64_t result = 0;
  bool has_residual = false;
  std::uint64_t residual = 0; ///< hash of this rank's residual
};

/// A system on one rank: called once for each step, and destroyed on the thread of its rank.
using call = std::function<outcome(const contribution&)>;
/// Makes a system on one rank.
using program = std::function<call(spar::threads&)>;

/// Which inputs a system takes.
enum class takes { values, streams };

struct system {
  std::string name;
  takes input = takes::values;
  int steps = 1;
  std::function<program(spar::rank_t ranks, std::uint64_t n)> prepare;
};

/// A call, summed over all ranks; the texts are those of the file.
struct record {
  std::string call;     ///< system, number of ranks, input and step
  std::string result;   ///< the hash, in hexadecimal digits
  std::string residual; ///< hash of all ranks' residuals in the order of ranks; "-" if the system has none
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0; ///< payload bytes
};

/// Whether to run the system with this position, with this number of ranks and the input with this position.
using filter = std::function<bool(std::size_t system, spar::rank_t ranks, std::size_t input)>;
/// Runs every system with every input and number of ranks that pass the filter, and returns the records in the order of
/// the systems. Adds to `errors` each exception, and each call whose results differ between ranks, and to `omitted` the
/// names of the others, without a step.
std::vector<record> run_all(const std::vector<system>& systems, const filter& runs, std::vector<std::string>& errors,
                            std::vector<std::string>& omitted);

/// Lines that begin with '#' are comments.
std::vector<record> read(std::istream& in);
void write(std::ostream& out, const std::vector<record>& records);

} // namespace spar_test::recorded
