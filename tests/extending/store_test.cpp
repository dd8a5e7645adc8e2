// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user-defined store of a rendezvous, as in docs/guide/ranks.md: a folder that all processes see.
#include <spar/rendezvous/rendezvous.hpp>

#include "rendezvous/processes.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

/// A store in a folder that all processes see, with one file for each key.
class file_store : public spar::rendezvous_store {
 public:
  explicit file_store(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::string put(std::string_view key, std::string_view value) override {
    const auto own = folder_ / (std::to_string(::getpid()) + "." + std::to_string(count_++));
    std::ofstream(own, std::ios::binary) << value;
    std::error_code there_is_one;
    std::filesystem::create_hard_link(own, file_of(key), there_is_one); // fails if another value was first
    std::filesystem::remove(own);
    return wait(key, 0).value();
  }

  std::optional<std::string> wait(std::string_view key, double seconds) override {
    for (const test::stopwatch watch;; test::rest(0.01)) {
      if (std::ifstream file(file_of(key), std::ios::binary); file)
        return std::string(std::istreambuf_iterator<char>(file), {});
      if (watch.seconds() >= seconds) return std::nullopt;
    }
  }

 private:
  [[nodiscard]] std::filesystem::path file_of(std::string_view key) const {
    std::string name(key);
    for (char& c : name) c = c == '/' ? '-' : c;
    return folder_ / name;
  }

  std::filesystem::path folder_;
  std::atomic<int> count_ = 0;
};

TEST(store, of_a_user_lets_processes_meet) {
  std::string folder = std::filesystem::temp_directory_path() / "spar_store_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::vector<test::process> processes;
  for (spar::rank_t rank = 0; rank < 4; ++rank) {
    processes.emplace_back([&] {
      const spar::rendezvous meeting(std::make_shared<file_store>(folder), rank, 4, {.deadline = 20});
      return meeting.exchange(std::to_string(rank)) == std::vector<std::string>{"0", "1", "2", "3"} ? 0 : 1;
    });
  }
  for (auto& one : processes) EXPECT_EQ(one.status(), 0);
  std::filesystem::remove_all(folder);
}

TEST(store, of_a_user_keeps_the_first_value) {
  std::string folder = std::filesystem::temp_directory_path() / "spar_store_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  file_store store(folder);
  EXPECT_EQ(store.wait("a/b", 0), std::nullopt);
  EXPECT_EQ(store.put("a/b", "one"), "one");
  EXPECT_EQ(store.put("a/b", "two"), "one");
  EXPECT_EQ(store.wait("a/b", 0), "one");
  std::filesystem::remove_all(folder);
}

} // namespace
