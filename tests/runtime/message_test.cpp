// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The header of a message, which detects every damaged bit, and the buffer in which a message arrives.
#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/messages/message.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

namespace {

spar::header good_header() {
  spar::header h;
  h.format = spar::wire_format::sparse;
  h.sequence = 12345;
  h.dimension = 1'000'000'007;
  h.count = 5;
  h.lengths = {20, 20, 0};
  h.digest = 0xABCD'1234'5678'9ABC;
  h.element = spar::element_code::float32;
  h.index = spar::element_code::uint32;
  h.checksum = h.expected_checksum();
  return h;
}

std::string error_of(const spar::header& h) {
  try {
    h.validate();
  } catch (const spar::corrupt_message& e) {
    return e.what();
  }
  return {};
}

TEST(header, has_64_bytes) { EXPECT_EQ(sizeof(spar::header), 64U); }

TEST(header, an_undamaged_one_is_valid) {
  EXPECT_EQ(error_of(good_header()), "");
  EXPECT_EQ(good_header().payload_bytes(), 40U);
}

TEST(header, every_damaged_bit_is_noticed) {
  for (std::size_t bit = 0; bit < 8 * sizeof(spar::header); ++bit) {
    auto h = good_header();
    std::array<unsigned char, sizeof(h)> bytes;
    std::memcpy(bytes.data(), &h, sizeof(h));
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1U << (bit % 8)));
    std::memcpy(&h, bytes.data(), sizeof(h));
    EXPECT_FALSE(error_of(h).empty()) << "bit " << bit;
  }
}

TEST(header, every_field_is_under_the_checksum) {
  const std::vector<std::function<void(spar::header&)>> damages{[](auto& h) { h.format = spar::wire_format::dense; },
                                                                [](auto& h) { h.sequence += 1; },
                                                                [](auto& h) { h.dimension ^= 1; },
                                                                [](auto& h) { h.count = 6; },
                                                                [](auto& h) { h.lengths[0] = 24; },
                                                                [](auto& h) { h.lengths[1] = 24; },
                                                                [](auto& h) { h.lengths[2] = 1; },
                                                                [](auto& h) { h.digest += 1; },
                                                                [](auto& h) { h.element = spar::element_code::int32; },
                                                                [](auto& h) { h.index = spar::element_code::uint64; },
                                                                [](auto& h) { h.order = 1; },
                                                                [](auto& h) { h.payload_checksum = 1; },
                                                                [](auto& h) { h.checksum += 1; }};
  for (std::size_t d = 0; d < damages.size(); ++d) {
    auto h = good_header();
    damages[d](h);
    EXPECT_NE(error_of(h).find("checksum"), std::string::npos) << "damage " << d;
  }
}

TEST(header, a_stranger_and_another_version_are_named) {
  auto h = good_header();
  h.magic = 0x7370; // the magic number in the other byte order
  h.checksum = h.expected_checksum();
  EXPECT_NE(error_of(h).find("magic"), std::string::npos);
  h = good_header();
  for (const int version : {1, 2, 9}) {
    h.version = static_cast<std::uint8_t>(version);
    h.checksum = h.expected_checksum();
    EXPECT_EQ(error_of(h),
              "a message has version " + std::to_string(version) + " of the wire format, but this rank has version 3");
  }
}

TEST(header, absurd_lengths_are_refused) {
  for (std::size_t piece = 0; piece < spar::max_pieces; ++piece) {
    auto h = good_header();
    h.lengths[piece] = (std::uint64_t{1} << 58) + 1;
    h.checksum = h.expected_checksum();
    EXPECT_FALSE(error_of(h).empty());
  }
}

// --- message_buffer ---

/// Simulates the arrival of a header with pieces of these lengths.
void arrive(spar::message_buffer& in, std::size_t first, std::size_t second) {
  in.arrived().lengths = {first, second, 0};
}

TEST(message_buffer, takes_memory_for_what_arrives) {
  spar::pool pool;
  {
    spar::message_buffer in(pool);
    arrive(in, 8, 4);
    ASSERT_TRUE(in.fits());
    const std::array<std::uint32_t, 2> indices{7, 9};
    const std::array<float, 1> values{2.5F};
    in.copy_from({std::as_bytes(std::span(indices)), std::as_bytes(std::span(values)), {}});
    EXPECT_EQ(in.piece<std::uint32_t>(0)[1], 9U);
    EXPECT_EQ(in.piece<float>(1)[0], 2.5F);
    EXPECT_TRUE(in.piece<float>(2).empty());
    EXPECT_EQ(pool.live(), 1U) << "both pieces must be in one block";
    in.release();
    EXPECT_EQ(pool.live(), 0U);
  }
}

TEST(message_buffer, writes_to_places) {
  spar::pool pool;
  std::array<float, 3> here{};
  spar::message_buffer in(pool);
  in.place(0, std::span<float>(here));
  arrive(in, 12, 0);
  ASSERT_TRUE(in.fits());
  const std::array<float, 3> values{1, 2, 3};
  in.copy_from({std::as_bytes(std::span(values)), {}, {}});
  EXPECT_EQ(here, values);
  EXPECT_EQ(pool.live(), 0U);
}

TEST(message_buffer, what_is_expected_is_kept_in_one_block_for_all_messages) {
  spar::pool pool;
  spar::message_buffer in(pool);
  in.expect(12);
  EXPECT_TRUE(in.kept());
  EXPECT_FALSE(in.placed());
  arrive(in, 8, 0);
  EXPECT_FALSE(in.fits());
  const std::byte* first = nullptr;
  for (float round = 0; round < 3; ++round) {
    arrive(in, 12, 0);
    ASSERT_TRUE(in.fits());
    const std::array<float, 3> values{round, 2, 3};
    in.copy_from({std::as_bytes(std::span(values)), {}, {}});
    EXPECT_EQ(in.piece<float>(0)[0], round);
    if (first == nullptr) first = in.piece<std::byte>(0).data();
    EXPECT_EQ(in.piece<std::byte>(0).data(), first);
    EXPECT_EQ(pool.live(), 1U);
    in.end_loan();
    EXPECT_TRUE(in.piece<float>(0).empty());
  }
  in.release();
  EXPECT_EQ(pool.live(), 0U);
}

TEST(message_buffer, a_loan_ends_once) {
  spar::pool pool;
  spar::message_buffer in(pool);
  in.expect(4);
  arrive(in, 4, 0);
  int ended = 0;
  const std::array<std::byte, 4> theirs{};
  in.borrow({std::span(theirs), {}, {}}, [](void* count) noexcept { ++*static_cast<int*>(count); }, &ended);
  in.end_loan();
  EXPECT_EQ(ended, 1);
  in.release();
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(pool.live(), 0U);
}

TEST(message_buffer, a_place_of_another_size_is_a_mismatch_with_both) {
  spar::pool pool;
  std::array<float, 3> here{};
  spar::message_buffer in(pool);
  in.place(0, std::span<float>(here));
  arrive(in, 16, 0);
  EXPECT_FALSE(in.fits());
  try {
    in.check_fit();
    ADD_FAILURE() << "no error";
  } catch (const spar::mismatch& e) {
    EXPECT_NE(std::string(e.what()).find("16"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("12"), std::string::npos);
  }
}

TEST(message_buffer, a_piece_that_is_no_multiple_of_its_elements_is_corrupt) {
  spar::pool pool;
  spar::message_buffer in(pool);
  arrive(in, 7, 0);
  ASSERT_TRUE(in.fits());
  const std::array<std::byte, 7> bytes{};
  in.copy_from({std::span(bytes), {}, {}});
  EXPECT_THROW((void)in.piece<float>(0), spar::corrupt_message);
  EXPECT_EQ(in.piece<std::byte>(0).size(), 7U);
}

TEST(message_buffer, gives_borrowed_memory_back_once) {
  spar::pool pool;
  int given_back = 0;
  const std::array<float, 2> theirs{1, 2};
  {
    spar::message_buffer in(pool);
    arrive(in, 8, 0);
    ASSERT_TRUE(in.fits());
    in.borrow(
        {std::as_bytes(std::span(theirs)), {}, {}}, [](void* lender) noexcept { ++*static_cast<int*>(lender); },
        &given_back);
    EXPECT_EQ(in.piece<float>(0).data(), theirs.data()) << "the piece must not be copied";
    EXPECT_EQ(given_back, 0);
    in.release();
    EXPECT_EQ(given_back, 1);
  }
  EXPECT_EQ(given_back, 1);
}

TEST(control_message, every_damaged_bit_is_noticed) {
  const auto good = spar::part_of(spar::control_message::purpose::abort, 2, "it has failed", 0);
  good.validate(3);
  EXPECT_THROW(good.validate(2), spar::corrupt_message); // rank 2 does not exist
  for (std::size_t bit = 0; bit < 8 * sizeof(good); ++bit) {
    std::array<unsigned char, sizeof(good)> bytes{};
    std::memcpy(bytes.data(), &good, sizeof(good));
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ 1U << bit % 8);
    spar::control_message damaged;
    std::memcpy(&damaged, bytes.data(), sizeof(damaged));
    EXPECT_THROW(damaged.validate(3), spar::corrupt_message) << bit;
  }
}

TEST(control_message, names_are_numbered_once_and_by_rank_0) {
  spar::detail::call_names rank_0;
  spar::detail::call_name& name = rank_0.find("layer");
  const std::string first = rank_0.give_number(name), second = rank_0.give_number(name);
  const auto note = [](spar::rank_t from, const std::string& text) {
    return spar::part_of(spar::control_message::purpose::name, from, text, 0);
  };
  spar::endpoint node(1, 3, spar::pool_owner(*std::pmr::new_delete_resource()));
  node.on_control_message(note(0, first));
  node.on_control_message(note(0, first));
  EXPECT_EQ(node.name_call({"layer"}).number, spar::detail::first_named);
  EXPECT_THROW(node.on_control_message(note(0, second)), spar::corrupt_message);
  EXPECT_THROW(node.on_control_message(note(2, first)), spar::corrupt_message);
  EXPECT_THROW(node.on_control_message(note(0, "")), spar::corrupt_message);
}

} // namespace
