// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses arbitrary text as a composition: what is accepted is written and read again, and what is refused is named.
#include "fuzz/fuzz.hpp"

#include <spar/system/text/composition_text.hpp>

#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string written = spar::parse_composition(text).to_text();
    fuzz::demand(spar::parse_composition(written).to_text() == written, "a composition is not read as it was written");
  } catch (const spar::invalid_argument& e) {
    fuzz::refused = true;
    const std::string_view sentence = e.what();
    // A sentence ends at the first zero byte of the text.
    fuzz::demand(text.find('\0') != std::string::npos || sentence.find("'" + text + "'") != std::string_view::npos,
                 "a refusal does not name the text");
  }
  return 0;
}
