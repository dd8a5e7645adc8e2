// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads the packages of a Debian system, and on which packages each of them depends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <istream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

struct package_graph {
  std::vector<std::string> names;
  std::vector<std::vector<std::size_t>> depends; // by package: the packages on which it depends
};

/// Reads paragraphs of the form of /var/lib/dpkg/status. Of alternatives, all count; versions do not matter.
inline package_graph read_packages(std::istream& status) {
  package_graph packages;
  std::map<std::string, std::size_t> numbers;
  const auto number_of = [&](const std::string& name) {
    const auto [place, is_new] = numbers.try_emplace(name, numbers.size());
    if (is_new) {
      packages.names.push_back(name);
      packages.depends.emplace_back();
    }
    return place->second;
  };
  std::size_t package = 0;
  for (std::string line, word; std::getline(status, line);) {
    if (line.starts_with("Package: ")) package = number_of(line.substr(9));
    if (!line.starts_with("Depends: ")) continue; // such as "Depends: libc6 (>= 2.34), perl:any | awk"
    std::replace_if(line.begin(), line.end(), [](char c) { return c == ',' || c == '|'; }, ' ');
    for (std::istringstream words(line.substr(9)); words >> word;) {
      if (word.find_first_of("()") != word.npos) continue; // a version
      const std::size_t needed = number_of(word.substr(0, word.find(':')));
      packages.depends[package].push_back(needed);
    }
  }
  return packages;
}

/// Reads the packages from a file or, if there is no such file, returns a small graph.
inline package_graph packages_of(const char* file) {
  std::ifstream status(file);
  if (status) return read_packages(status);
  std::istringstream small("Package: editor\nDepends: libc (>= 2), fonts\n"
                           "Package: fonts\n"
                           "Package: shell\nDepends: libc, libterm | libtty\n"
                           "Package: libterm\nDepends: libc:any\n");
  return read_packages(small);
}
