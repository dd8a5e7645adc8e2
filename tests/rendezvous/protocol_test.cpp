// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The messages of a store over TCP and of an exchange as bytes, and the proof of a secret.
#include <spar/rendezvous/table.hpp>
#include <spar/rendezvous/tcp/proof.hpp>
#include <spar/rendezvous/tcp/protocol.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using namespace spar::detail;

std::string hexadecimal(const std::string& bytes) {
  std::string digits;
  for (const char byte : bytes) {
    for (const int shift : {4, 0}) digits.push_back("0123456789abcdef"[static_cast<unsigned char>(byte) >> shift & 15]);
  }
  return digits;
}

TEST(proof, is_the_hmac_of_rfc_4231) {
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hexadecimal(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(proof, depends_on_all_that_it_proves) {
  const std::string a(nonce_bytes, 'a'), b(nonce_bytes, 'b');
  const std::string proof = proof_of("client", "secret", a, b, "job");
  EXPECT_EQ(proof.size(), 32U);
  EXPECT_EQ(proof, proof_of("client", "secret", a, b, "job"));
  EXPECT_NE(proof, proof_of("server", "secret", a, b, "job"));
  EXPECT_NE(proof, proof_of("client", "Secret", a, b, "job"));
  EXPECT_NE(proof, proof_of("client", "secret", b, a, "job"));
  EXPECT_NE(proof, proof_of("client", "secret", a, a, "job"));
  EXPECT_NE(proof, proof_of("client", "secret", a, b, "jobs"));
  EXPECT_EQ(proof_of("client", "", a, b, "job"), "");
}

TEST(proof, is_compared_whole) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("xbc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
  EXPECT_FALSE(equal_in_constant_time("", "a"));
}

TEST(proof, nonces_differ) {
  EXPECT_EQ(random_bytes(nonce_bytes).size(), nonce_bytes);
  EXPECT_NE(random_bytes(nonce_bytes), random_bytes(nonce_bytes));
}

TEST(frame, comes_when_all_its_bytes_have) {
  const std::string bytes = frame_bytes(frame_kind::value, "abc");
  EXPECT_EQ(bytes, std::string("\x04\0\0\0\x07"
                               "abc",
                               8));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(first_frame(std::string_view(bytes).substr(0, size), 100)) << size;
  const std::string longer = bytes + "rest";
  const auto frame = first_frame(longer, 100);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, frame_kind::value);
  EXPECT_EQ(frame->body, "abc");
  EXPECT_EQ(frame->size(), bytes.size());
}

TEST(frame, is_refused_before_its_bytes_come) {
  EXPECT_TRUE(first_frame(frame_bytes(frame_kind::put, "abc"), 8));
  EXPECT_THROW(first_frame(frame_bytes(frame_kind::put, "abcd").substr(0, 4), 8), spar::corrupt_message);
  EXPECT_THROW(first_frame(std::string_view("\0\0\0\0", 4), 8), spar::corrupt_message);
  EXPECT_THROW(first_frame(std::string_view("\xff\xff\xff\xff", 4), most_frame_bytes), spar::corrupt_message);
  EXPECT_THROW(first_frame(std::string_view("\x04\0\0\0\x09", 5), 8), spar::corrupt_message);
}

TEST(frame, leaves_room_for_a_value_from_elsewhere) {
  EXPECT_EQ(frame_bytes(frame_kind::value, "", 3) + "abc", frame_bytes(frame_kind::value, "abc"));
}

TEST(request, comes_back_as_it_was) {
  const auto both_ways = [](const store_request& request) {
    const std::string bytes = encode(request);
    const auto frame = first_frame(bytes, most_frame_bytes);
    ASSERT_TRUE(frame);
    const store_request back = decode_request(*frame);
    EXPECT_EQ(back.kind, request.kind);
    EXPECT_EQ(back.key, request.key);
    EXPECT_EQ(back.value, request.value);
    EXPECT_EQ(back.milliseconds, request.milliseconds);
  };
  both_ways({frame_kind::put, "key", "value", 0});
  both_ways({frame_kind::put, std::string(most_key_bytes, 'k'), "", 0});
  both_ways({frame_kind::wait, "key", "", 0xFFFFFFFF});
  both_ways({frame_kind::wait, std::string(most_key_bytes, 'k'), "", 0});
}

TEST(request, is_refused_if_it_is_malformed) {
  const auto decode = [](frame_kind kind, std::string_view body) { (void)decode_request({kind, body}); };
  const std::string long_key = std::string("\x01\x04", 2) + std::string(1025, 'k');
  EXPECT_THROW(decode(frame_kind::put, "\x01"), spar::corrupt_message);
  EXPECT_THROW(decode(frame_kind::put, std::string_view("\x04\0abc", 5)), spar::corrupt_message);
  EXPECT_THROW(decode(frame_kind::put, std::string_view("\0\0abc", 5)), spar::corrupt_message);
  EXPECT_THROW(decode(frame_kind::put, long_key), spar::corrupt_message);
  EXPECT_THROW(decode(frame_kind::wait, "abc"), spar::corrupt_message);
  EXPECT_THROW(decode(frame_kind::wait, "abcd"), spar::corrupt_message);
  EXPECT_THROW(decode(frame_kind::hello, "abcdefgh"), spar::corrupt_message);
}

TEST(table, gives_each_text_back) {
  const std::vector<std::string> texts{"one", "", std::string("\0\xff", 2), std::string(1000, 'x')};
  const std::string bytes = encode_table(texts);
  EXPECT_EQ(decode_table(bytes), texts);
  EXPECT_EQ(decode_table(encode_table({})), std::vector<std::string>{});
  EXPECT_THROW(decode_table(bytes.substr(0, bytes.size() - 1)), spar::corrupt_message);
  EXPECT_THROW(decode_table(""), spar::corrupt_message);
  EXPECT_THROW(decode_table("x"), spar::corrupt_message);
}

TEST(table, arrivals_come_back_as_they_were) {
  const arrival a{"0.1.0", "job", "process 1 on a", 5, std::string_view("\0bytes", 6)};
  const std::string bytes = encode(a);
  const arrival back = decode_arrival(bytes);
  EXPECT_EQ(back.version, a.version);
  EXPECT_EQ(back.job, a.job);
  EXPECT_EQ(back.process, a.process);
  EXPECT_EQ(back.size, a.size);
  EXPECT_EQ(back.text, a.text);
  const std::size_t before_text = bytes.size() - a.text.size();
  for (std::size_t size = 0; size < before_text; ++size)
    EXPECT_THROW(decode_arrival(std::string_view(bytes).substr(0, size)), spar::corrupt_message) << size;
  EXPECT_THROW(decode_arrival(encode(arrival{"", "", "", 0, ""})), spar::corrupt_message);
  EXPECT_THROW(decode_arrival(encode(arrival{"", "", "", -1, ""})), spar::corrupt_message);
}

TEST(table, refusals_are_thrown_as_what_they_were) {
  EXPECT_THROW(throw_refusal(encode_refusal(spar::timeout("late"))), spar::timeout);
  EXPECT_THROW(throw_refusal(encode_refusal(spar::mismatch("other"))), spar::mismatch);
  EXPECT_THROW(throw_refusal(encode_refusal(spar::corrupt_message("bytes"))), spar::mismatch);
  EXPECT_NO_THROW(throw_refusal(encode_table({"a"})));
  EXPECT_NO_THROW(throw_refusal(""));
}

TEST(table, names_at_most_eight_ranks) {
  EXPECT_EQ(list_of_ranks({3}), "rank 3");
  EXPECT_EQ(list_of_ranks({3, 5}), "ranks 3 and 5");
  EXPECT_EQ(list_of_ranks({0, 1, 2, 3, 4, 5, 6, 7}), "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
  EXPECT_EQ(list_of_ranks({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

} // namespace
