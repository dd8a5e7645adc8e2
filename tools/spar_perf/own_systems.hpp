// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems that a program adds to spar's, for the types for which the program compiled them.
#pragma once

#include "device_memory.hpp"
#include "systems.hpp"

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spar::perf {

class own_systems {
 public:
  /// Stores a function that adds a system to a registry.
  template <class T, class Index>
  void add(std::function<void(registry<T, Index>&)> registers) {
    all_[typeid(registry<T, Index>)].emplace_back(std::move(registers));
  }
  /// Adds the systems of these types to `all`.
  template <class T, class Index>
  void register_in(registry<T, Index>& all) const {
    const auto found = all_.find(typeid(registry<T, Index>));
    if (found == all_.end()) return;
    for (const std::any& registers : found->second)
      std::any_cast<const std::function<void(registry<T, Index>&)>&>(registers)(all);
  }

  /// Lets the program measure values in device memory.
  void set_device(std::shared_ptr<const device_memory> device) { device_ = std::move(device); }
  /// Null if the program was compiled without nvcc.
  [[nodiscard]] const device_memory* device() const noexcept { return device_.get(); }

  void add_name(std::string name) { names_.push_back(std::move(name)); }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  std::unordered_map<std::type_index, std::vector<std::any>> all_; // by type of the registry
  std::vector<std::string> names_;
  std::shared_ptr<const device_memory> device_;
};

} // namespace spar::perf
