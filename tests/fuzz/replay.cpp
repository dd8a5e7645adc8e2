// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Replays the corpus of a fuzz target without a fuzzer: each file and each prefix of it. The library must reject a file
// if and only if its name begins with bad_; a good file that is rejected at its first message would test nothing.
#include "fuzz/fuzz.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

TEST(corpus, is_replayed_whole_and_cut_off_at_each_byte) {
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(fuzz::corpus)) {
    SCOPED_TRACE(file.path().string());
    std::ifstream stream(file.path(), std::ios::binary);
    const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(stream), {}};
    ++files;
    for (std::size_t size = 0; size <= bytes.size(); ++size) {
      const std::vector<std::uint8_t> beginning(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      fuzz::refused = false;
      ASSERT_NO_THROW(LLVMFuzzerTestOneInput(beginning.data(), size)) << size << " bytes";
    }
    EXPECT_EQ(fuzz::refused, file.path().filename().string().starts_with("bad_"));
  }
  EXPECT_GT(files, 0U) << "no corpus in " << fuzz::corpus;
}
