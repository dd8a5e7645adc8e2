// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads trees (`tree`) from JSON. Needs nlohmann's json; spar.hpp does not include this header.
#pragma once

#include <spar/core/util/text_file.hpp>
#include <spar/topology/tree.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace spar::inline v0_1 {

namespace detail {

/// A JSON value as text, of which an error message shows only the start.
inline std::string shown(const nlohmann::json& value) { return start_of(value.dump()); }

/// Stores `value` in `link` if `key` is `bandwidth` or `latency`; returns false for any other key. Throws
/// `invalid_argument`, naming the node `place`, if `value` is not a number.
inline bool read_link(tree_link& link, const std::string& key, const nlohmann::json& value, const std::string& place) {
  if (key != "bandwidth" && key != "latency") return false;
  if (!value.is_number())
    raise<invalid_argument>({place, ".", key, " of the tree must be a number, not ", shown(value)});
  (key == "bandwidth" ? link.bandwidth : link.latency) = value.get<double>();
  return true;
}

inline tree_node node_of_json(const nlohmann::json& from, const std::string& place, const tree_link& above,
                              std::size_t depth) {
  tree::check_depth(depth);
  if (!from.is_object())
    raise<invalid_argument>({place, " of the tree is a JSON ", from.type_name(), "; expected a JSON object"});
  tree_node node;
  if (from.contains("rank") && (from.contains("bandwidth") || from.contains("latency"))) {
    raise<invalid_argument>({place, " of the tree has the rank ", shown(from["rank"]),
                             " and also a bandwidth or latency; expected a rank in a leaf, and a bandwidth or latency "
                             "in a branch or in a leaf's link"});
  }
  for (const auto& [key, value] : from.items()) {
    if (read_link(node.links, key, value, place) || key == "children") continue;
    if (key == "rank") {
      constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<rank_t>::max());
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() > largest) {
        raise<invalid_argument>(
            {place, ".rank of the tree is ", shown(value), "; expected an integer in [0, ", largest, "]"});
      }
      node.rank = value.get<rank_t>();
    } else if (key == "link") {
      if (!value.is_object())
        raise<invalid_argument>({place, ".link of the tree is a JSON ", value.type_name(), "; expected a JSON object"});
      node.link = above;
      for (const auto& [name, number] : value.items()) {
        if (!read_link(*node.link, name, number, place + ".link")) {
          raise<invalid_argument>(
              {place, ".link of the tree has the unknown key '", name, "'; expected bandwidth or latency"});
        }
      }
    } else {
      raise<invalid_argument>(
          {place, " of the tree has the unknown key '", key,
           "'; expected rank or link in a leaf, and bandwidth, latency, children or link in a branch"});
    }
  }
  if (!from.contains("children")) return node;
  const nlohmann::json& children = from["children"];
  if (!children.is_array())
    raise<invalid_argument>(
        {place, ".children of the tree is a JSON ", children.type_name(), "; expected a JSON array"});
  for (std::size_t c = 0; c < children.size(); ++c) {
    node.children.push_back(node_of_json(children[c], sentence(place, ".children[", c, "]"), node.links, depth + 1));
  }
  return node;
}

/// Parses a JSON text. Throws `invalid_argument`, with `what` as the name of the text, if an object has a key twice, of
/// which the parser alone would silently drop one value, or if values are nested more than 1000 deep, because functions
/// that visit them are recursive.
inline nlohmann::json json_without_doubles(const std::string& text, const char* what) {
  std::vector<std::set<std::string>> keys; // for each object that the parser has not finished, its keys
  using json = nlohmann::json;
  return json::parse(text, [&](int depth, json::parse_event_t event, const json& value) {
    if (depth > 1000) raise<invalid_argument>({what, " has values nested more than 1000 deep; expected at most 1000"});
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      raise<invalid_argument>({what, " has an object with the key '", value.get<std::string>(), "' twice"});
    }
    return true;
  });
}

} // namespace detail

/// Reads a tree from a JSON text such as `{"bandwidth": 1.25e8, "latency": 5e-5, "children": [{"rank": 0}, ...]}`.
/// - A branch has `children`. The `bandwidth` (bytes per second) and `latency` (seconds) of a branch describe the link
///   to each child; the defaults are the defaults of `tree_link`.
/// - A leaf has a `rank`.
/// - A branch or a leaf may have a `link` to its parent, such as `"link": {"bandwidth": 1e7}`. A `link` that omits the
///   bandwidth or the latency gets the missing value from the parent.
///
/// Throws `invalid_argument` if the JSON is malformed, if a node is invalid (the message names the node), or if `tree`
/// rejects the tree.
inline tree parse_tree(const std::string& text) {
  try {
    return tree(detail::node_of_json(detail::json_without_doubles(text, "a tree"), "root", {}, 0));
  } catch (const nlohmann::json::exception& e) {
    raise<invalid_argument>({"malformed JSON tree: ", e.what()});
  }
}

/// Reads a tree from the JSON file `path`, in the format of `parse_tree`. Throws `invalid_argument`, naming the file,
/// if the file cannot be read, has more than 64 MiB or a zero byte, or if its tree is invalid.
inline tree read_tree(const std::string& path) {
  const std::string text = detail::read_text_file(path, std::size_t{1} << 26);
  try {
    return parse_tree(text);
  } catch (const invalid_argument& e) {
    raise<invalid_argument>({path, ": ", e.what()});
  }
}

} // namespace spar::inline v0_1
