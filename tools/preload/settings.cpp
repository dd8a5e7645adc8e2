// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "settings.hpp"

#include <spar/core/error.hpp>
#include <spar/model/network_file.hpp>
#include <spar/storage/named_codec.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace preload {

namespace {

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

constexpr std::pair<std::string_view, algorithm> names[] = {{"automatic", algorithm::automatic},
                                                            {"rabenseifner", algorithm::rabenseifner},
                                                            {"ring", algorithm::ring},
                                                            {"rec_doubling", algorithm::rec_doubling},
                                                            {"two_shot", algorithm::two_shot},
                                                            {"one_shot", algorithm::one_shot},
                                                            {"flexreduce", algorithm::flexreduce}};

void read_algorithm(std::string_view text, settings& to) {
  const auto plus = text.find('+');
  const std::string_view name = text.substr(0, plus);
  const auto* const found = std::find_if(std::begin(names), std::end(names), [&](auto& n) { return n.first == name; });
  if (found == std::end(names)) {
    spar::raise<spar::invalid_argument>({"SPAR_ALLREDUCE=", std::string(text), ": expected automatic, rabenseifner, ",
                                         "ring, rec_doubling, two_shot, one_shot or flexreduce, got '",
                                         std::string(name), "'"});
  }
  to.chosen = found->second;
  if (plus == std::string_view::npos) {
    if (to.chosen != algorithm::two_shot && to.chosen != algorithm::one_shot) return;
    spar::raise<spar::invalid_argument>({"SPAR_ALLREDUCE=", std::string(text), ": ", std::string(name),
                                         " needs a codec, as in ", std::string(name), "+qsgd:8"});
  }
  const std::string_view codec = text.substr(plus + 1);
  try {
    const spar::storage::named_codec known(codec);
  } catch (const spar::invalid_argument& unknown) {
    spar::raise<spar::invalid_argument>({"SPAR_ALLREDUCE=", std::string(text), ": ", unknown.what()});
  }
  if (to.chosen == algorithm::rabenseifner || codec.size() >= to.codec.size()) {
    spar::raise<spar::invalid_argument>({"SPAR_ALLREDUCE=", std::string(text),
                                         ": only automatic, ring, rec_doubling, two_shot, one_shot and ",
                                         "flexreduce can be compressed, ", std::string(name), " cannot"});
  }
  std::copy(codec.begin(), codec.end(), to.codec.begin());
}

void read_bytes(std::string_view text, settings& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to.min_bytes);
  if (error != std::errc() || end != text.data() + text.size()) {
    spar::raise<spar::invalid_argument>({"SPAR_MIN_BYTES must be a number of bytes, not '", std::string(text), "'"});
  }
}

void read_model(std::string_view file, settings& to) {
  try {
    to.network = spar::read_network(std::string(file));
  } catch (const spar::invalid_argument& e) {
    spar::raise<spar::invalid_argument>({"SPAR_NETWORK: ", e.what()});
  }
}

} // namespace

settings read_settings() noexcept {
  settings read;
  read.verbose = environment("SPAR_VERBOSE") == "1";
  try {
    const auto chosen = environment("SPAR_ALLREDUCE");
    read_algorithm(chosen.empty() ? "automatic" : chosen, read);
    if (const auto bytes = environment("SPAR_MIN_BYTES"); !bytes.empty()) {
      read_bytes(bytes, read);
      read.min_exact_bytes = read.min_exact_bytes_on_one_host = read.min_bytes;
      read.min_exact_bytes_a_rank = 0;
    }
    if (const auto file = environment("SPAR_NETWORK"); !file.empty()) {
      read_model(file, read);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "spar: %s; every MPI_Allreduce goes to the MPI library\n", e.what());
    read.chosen = algorithm::none;
  }
  return read;
}

} // namespace preload
