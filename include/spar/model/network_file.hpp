// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads a model of the network (`network_model`) from a text file, such as one that `spar_perf --calibrate` wrote.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/text_file.hpp>

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

namespace spar::inline v0_1 {

/// Reads the file `path` of lines such as `alpha 1.5e-6`: one line, in any order, for each of alpha, beta, gamma_sparse
/// and gamma_dense, in seconds. Lines for gamma_coded and alpha_shared may be missing: they then keep their defaults.
/// Skips empty lines and lines that begin with #. Throws `invalid_argument` if the file cannot be read, has more than 1
/// MiB or a zero byte, contains an invalid or repeated line, or lacks another parameter; the message names the file and
/// the invalid line.
inline network_model read_network(const std::string& path) {
  const std::string content = detail::read_text_file(path, std::size_t{1} << 20);
  network_model network;
  struct parameter {
    const char* name;
    double* value;
    bool optional = false;
    bool given = false;
  };
  parameter parameters[] = {{"alpha", &network.alpha},
                            {"beta", &network.beta},
                            {"gamma_sparse", &network.gamma_sparse},
                            {"gamma_dense", &network.gamma_dense},
                            {"gamma_coded", &network.gamma_coded, true},
                            {"alpha_shared", &network.alpha_shared, true}};
  std::string_view rest = content;
  for (int number = 1; !rest.empty(); ++number) {
    constexpr std::string_view blank = " \t\r\n";
    std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    text = text.substr(0, text.find_last_not_of(blank) + 1);
    if (text.empty() || text.starts_with('#')) continue;
    const std::string_view name = text.substr(0, text.find_first_of(blank));
    parameter* found = nullptr;
    for (parameter& p : parameters) found = p.name == name ? &p : found;
    if (found == nullptr) {
      raise<invalid_argument>({path, ":", number, ": expected alpha, beta, gamma_sparse, gamma_dense, gamma_coded or ",
                               "alpha_shared, got '", detail::start_of(name), "'"});
    }
    if (found->given)
      raise<invalid_argument>(
          {path, ":", number, ": ", found->name, " has a value already; expected one line for each parameter"});
    text.remove_prefix(name.size());
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(blank)));
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *found->value);
    if (error != std::errc() || end != text.data() + text.size() || !detail::valid::duration.contains(*found->value)) {
      raise<invalid_argument>({path, ":", number, ": ", found->name,
                               " must be a finite, non-negative number of seconds, not '", detail::start_of(text),
                               "'"});
    }
    found->given = true;
  }
  for (const parameter& p : parameters) {
    if (!p.given && !p.optional)
      raise<invalid_argument>(
          {path, " has no line for the parameter ", p.name, "; expected alpha, beta, gamma_sparse and gamma_dense"});
  }
  return network;
}

} // namespace spar::inline v0_1
