// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the ranks of a communicator over UCX tell each other before they can send messages.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/util/atomic.hpp>
#include <spar/core/util/crc32c.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

namespace spar::inline v0_1::detail {

/// Identifies the host of this process: two processes with the same text can share memory and see each other's process
/// numbers. It is the identity of the boot and of the namespace of processes.
inline std::string ucx_host() {
  std::array<char, 64> text{};
  if (std::FILE* const boot = std::fopen("/proc/sys/kernel/random/boot_id", "re"); boot != nullptr) {
    if (std::fgets(text.data(), static_cast<int>(text.size()), boot) == nullptr) text[0] = '\0';
    std::fclose(boot);
  }
  std::string host(text.data());
  const ssize_t length = readlink("/proc/self/ns/pid", text.data(), text.size());
  return host.append(text.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
}

/// What a rank tells about itself.
struct ucx_member {
  std::int32_t process = 0; // number of the process
  std::int32_t number = 0;  // of the communicator among those that the process has made
  std::int32_t colour = 0;  // arguments of `split`
  std::int32_t key = 0;
  std::string host;    // see `ucx_host`
  std::string address; // of the rank's worker

  /// This process, with the address of its worker.
  static ucx_member self(std::string address, int colour, int key) {
    static atomic<std::int32_t> communicators = 0;
    return {getpid(), communicators += 1, colour, key, ucx_host(), std::move(address)};
  }
  [[nodiscard]] std::string text() const {
    numbers head{0, process, number, colour, key, static_cast<std::uint32_t>(host.size())};
    std::string all(reinterpret_cast<const char*>(&head), sizeof(head));
    all.append(host).append(address);
    head.checksum = checksum_of(all);
    std::memcpy(all.data(), &head, sizeof(head));
    return all;
  }
  /// Reads what `who` tells, such as "rank 3". Throws `corrupt_message` if `text` is malformed: UCX would end the
  /// program by an address with other bytes.
  static ucx_member read(std::string_view who, std::string_view text) {
    numbers head{};
    if (text.size() >= sizeof(head)) std::memcpy(&head, text.data(), sizeof(head));
    if (text.size() <= sizeof(head) || text.size() > most_bytes || head.host >= text.size() - sizeof(head)) {
      raise<corrupt_message>({who, " has described itself by ", text.size(), " bytes, of which ", head.host,
                              " name its host; expected ", sizeof(head), " bytes, the host and an address, at most ",
                              most_bytes});
    }
    if (head.checksum != checksum_of(text)) {
      raise<corrupt_message>({who, " has described itself by ", text.size(), " bytes with the checksum ", head.checksum,
                              "; expected ", checksum_of(text)});
    }
    text.remove_prefix(sizeof(head));
    return {head.process,
            head.number,
            head.colour,
            head.key,
            std::string(text.substr(0, head.host)),
            std::string(text.substr(head.host))};
  }

 private:
  static constexpr std::size_t most_bytes = 65536; // so that the table of a thousand ranks is a value of the store
  struct numbers {
    std::uint32_t checksum; // of all that follows
    std::int32_t process, number, colour, key;
    std::uint32_t host; // its bytes
  };
  static std::uint32_t checksum_of(std::string_view text) noexcept {
    text.remove_prefix(sizeof(numbers::checksum));
    return crc32c(text.data(), text.size());
  }
};

/// Of each rank: the lowest rank on the same host.
inline std::vector<rank_t> hosts_of(const std::vector<ucx_member>& all) {
  std::vector<rank_t> hosts;
  for (const ucx_member& own : all) {
    rank_t first = 0;
    while (all[static_cast<std::size_t>(first)].host != own.host) ++first;
    hosts.push_back(first);
  }
  return hosts;
}

} // namespace spar::inline v0_1::detail
