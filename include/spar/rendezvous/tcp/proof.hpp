// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a client and the server of a store prove to each other that they know the shared secret of the job: HMAC-SHA256
// (RFC 2104) of a nonce of each. OpenSSL's libcrypto computes it, and is loaded when a secret is first used, so that
// programs without one neither link nor need it.
#pragma once

#include <spar/core/error.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace spar::inline v0_1::detail {

/// Random bytes of the operating system. Throws `transport_error` if it has none.
std::string random_bytes(std::size_t size);

/// HMAC-SHA256 of `text`. Throws `invalid_argument` if libcrypto cannot be loaded.
std::string hmac_sha256(std::string_view secret, std::string_view text);

/// What the one who is `who`, `client` or `server`, sends as proof; empty if `secret` is. Throws `invalid_argument` if
/// libcrypto cannot be loaded.
std::string proof_of(std::string_view who, std::string_view secret, std::string_view client_nonce,
                     std::string_view server_nonce, std::string_view job);

/// Whether two texts are equal, in a time that depends only on their lengths.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/rendezvous/tcp/proof-inl.hpp>
#endif
