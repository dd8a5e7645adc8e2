// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trees in JSON files. Needs nlohmann's json; spar.hpp does not include this header.
#pragma once

#include <spar/topology/tree.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

namespace spar {

namespace detail {

inline tree_node node_of_json(const nlohmann::json& from, const std::string& place) {
  if (!from.is_object()) raise<invalid_argument>({place, " of the tree is no object"});
  tree_node node;
  if (from.contains("rank") && (from.contains("bandwidth") || from.contains("latency"))) {
    raise<invalid_argument>({place, " of the tree is a rank, and has links"});
  }
  for (const auto& [key, value] : from.items()) {
    if (key == "rank") {
      constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<rank_t>::max());
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() > largest) {
        raise<invalid_argument>({place, ".rank of the tree is no rank: ", value.dump()});
      }
      node.rank = value.get<rank_t>();
    } else if (key == "bandwidth" || key == "latency") {
      if (!value.is_number()) raise<invalid_argument>({place, ".", key, " of the tree is no number: ", value.dump()});
      (key == "bandwidth" ? node.links.bandwidth : node.links.latency) = value.get<double>();
    } else if (key == "children") {
      if (!value.is_array()) raise<invalid_argument>({place, ".children of the tree is no array"});
      for (std::size_t c = 0; c < value.size(); ++c) {
        node.children.push_back(node_of_json(value[c], sentence(place, ".children[", c, "]")));
      }
    } else {
      raise<invalid_argument>(
          {place, " of the tree has '", key, "'; a node has rank, or bandwidth, latency and children"});
    }
  }
  return node;
}

} // namespace detail

/// The tree in a text like `{"bandwidth": 1.25e8, "latency": 5e-5, "children": [{"rank": 0}, ...]}`: a branch has
/// children and the bandwidth, in bytes a second, and latency, in seconds, of the link to each of them, by default
/// those of `tree_link`; a leaf has its rank. Throws `invalid_argument`, which names the place, as `tree` does.
inline tree parse_tree(const std::string& text) {
  try {
    return tree(detail::node_of_json(nlohmann::json::parse(text), "root"));
  } catch (const nlohmann::json::exception& e) {
    raise<invalid_argument>({"a tree is no JSON: ", e.what()});
  }
}

/// The tree in a file. Throws `invalid_argument` with the file's name.
inline tree read_tree(const std::string& path) {
  std::ifstream file(path);
  if (!file) raise<invalid_argument>({"cannot read ", path, ": ", std::strerror(errno)});
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return parse_tree(text);
  } catch (const invalid_argument& e) {
    raise<invalid_argument>({path, ": ", e.what()});
  }
}

} // namespace spar
