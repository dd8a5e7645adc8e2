// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A search by a regular expression: a header of the standard library that is known to be slow to compile.
#include <regex>
#include <string>

int main(int count, char** words) {
  const std::regex number("[0-9]+(\\.[0-9]+)?");
  return count > 1 && std::regex_search(std::string(words[1]), number) ? 0 : 1;
}
