// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of proof.hpp.
#pragma once

#include <spar/core/util/checked_cast.hpp>
#include <spar/rendezvous/tcp/proof.hpp>

#include <array>
#include <cerrno>
#include <cstring>

#include <dlfcn.h>
#include <sys/random.h>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE std::string random_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  if (::getentropy(bytes.data(), size) != 0)
    raise<transport_error>({"the system has no random bytes: ", std::strerror(errno)});
  return bytes;
}

/// The two functions of libcrypto, which have been the same since OpenSSL 1.0 (man 3 HMAC).
struct libcrypto {
  const void* (*sha256)() = nullptr;
  unsigned char* (*hmac)(const void* hash, const void* key, int key_bytes, const unsigned char* text,
                         std::size_t text_bytes, unsigned char* result, unsigned* result_bytes) = nullptr;

  libcrypto() {
    void* library = nullptr;
    for (const char* const name : {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"}) {
      if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library != nullptr) {
      sha256 = reinterpret_cast<decltype(sha256)>(::dlsym(library, "EVP_sha256"));
      hmac = reinterpret_cast<decltype(hmac)>(::dlsym(library, "HMAC"));
    }
    if (sha256 == nullptr || hmac == nullptr) {
      const char* const why = ::dlerror();
      raise<invalid_argument>({"the job has a secret, but OpenSSL's libcrypto.so.3 cannot be loaded (",
                               why == nullptr ? "it lacks HMAC" : why,
                               "); install it (Debian package libssl3), or start all ranks without SPAR_SECRET"});
    }
  }
};

SPAR_INLINE std::string hmac_sha256(std::string_view secret, std::string_view text) {
  static const libcrypto library; // is loaded again by the next call if its constructor throws
  std::array<char, 64> result{};
  unsigned size = 0;
  const auto bytes = [](const char* of) { return reinterpret_cast<const unsigned char*>(of); };
  library.hmac(library.sha256(), secret.data(), checked_cast<int>(secret.size()), bytes(text.data()), text.size(),
               reinterpret_cast<unsigned char*>(result.data()), &size);
  ensure(size == 32, "HMAC-SHA256 has 32 bytes");
  return {result.data(), size};
}

SPAR_INLINE std::string proof_of(std::string_view who, std::string_view secret, std::string_view client_nonce,
                                 std::string_view server_nonce, std::string_view job) {
  if (secret.empty()) return {};
  std::string text("spar rendezvous ");
  text.append(who).append(client_nonce).append(server_nonce).append(job); // all but the job have a fixed length
  return hmac_sha256(secret, text);
}

SPAR_INLINE bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    different |= unsigned{static_cast<unsigned char>(a[i])} ^ unsigned { static_cast<unsigned char>(b[i]) };
  return different == 0;
}

} // namespace detail

} // namespace spar::inline v0_1
