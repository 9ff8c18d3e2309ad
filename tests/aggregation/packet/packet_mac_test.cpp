// Packet authentication against published test vectors and against values from an independent implementation.
#include "weft/aggregation/packet/packet_mac.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/aggregation/packet/bytes.h"
#include "weft/aggregation/packet/byte_order.h"
#include "weft/aggregation/packet/extended_format.h"

namespace weft::aggregation {
namespace {

std::string text_of(const std::string& hex) {
  const Bytes bytes = from_hex(hex);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Array>
Array array_of(const std::string& hex) {
  Array array{};
  const Bytes bytes = from_hex(hex);
  std::memcpy(array.data(), bytes.data(), array.size());
  return array;
}

Bytes extended_packet(const Head& head, const Shape& shape = {2, 5}) {
  Bytes bytes(packet_size(Mode::kExtended, shape));
  write_head(bytes, head, shape).elements[3] = std::byte{7};
  return bytes;
}

const SessionKey kKey = array_of<SessionKey>("20b658b5044d094b868203074dd119b0ee915dd42c775eae94f222ed1499de68");

TEST(Hkdf, MatchesRfc5869) {
  EXPECT_EQ(hkdf_sha256(text_of("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"), text_of("000102030405060708090a0b0c"),
                        text_of("f0f1f2f3f4f5f6f7f8f9"), 42),
            text_of("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"));
}

// Case 1 of the GCM specification, and a vector of NIST's gcmEncryptExtIV128 without plaintext.
TEST(Gmac, MatchesNistVectors) {
  EXPECT_EQ(Gmac(SenderKey{}).tag(GmacNonce{}, {}), array_of<Tag>("58e2fccefa7e3061367f1d57a4e7455a"));
  Gmac gmac(array_of<SenderKey>("77be63708971c4e240d1cb79e8d77feb"));
  for (int use = 0; use < 2; ++use) {  // the context is reused
    EXPECT_EQ(gmac.tag(array_of<GmacNonce>("e0e00f19fed7ba0136a797f3"), from_hex("7a43ec1d9c0a5a78a0b16533a6213cab")),
              array_of<Tag>("209fcc8d3675ed938e9c7166709dd946"));
  }
}

// Computed in Python with hmac, hashlib and a GHASH over big integers.
TEST(PacketMac, MatchesAnIndependentImplementation) {
  const std::string secret = text_of("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
  EXPECT_EQ(derive_session_key(secret, 0x0123456789abcdef), kKey);
  const Sender worker{Sender::Role::kWorker, 0x1122334455667788, 9, 3,
                      array_of<WorkerSalt>("000102030405060708090a0b0c0d0e0f")};
  EXPECT_EQ(derive_sender_key(kKey, worker), array_of<SenderKey>("a688e4bacbce933d075a47bb8981f5a0"));
  Bytes packet = from_hex(
      "21 02 0102 03040506 0708090a0b0c0d0e 8000000000000001 deadbeef 1234 0003 0002 0000 80 00 7f 00 00000001 "
      "80000000");
  packet.resize(packet.size() + kTagBytes);
  PacketMac(kKey, {Sender::Role::kSwitch, 0x0708090a0b0c0d0e, 0x03040506, 0, {}}).seal(packet);
  EXPECT_EQ(Bytes(packet.end() - kTagBytes, packet.end()), from_hex("ddfb7a58b18a11c9b6d9077d936473ae"));
}

TEST(PacketMac, RejectsEveryChangedBit) {
  PacketMac mac(kKey, {});
  Bytes bytes = extended_packet({});
  mac.seal(bytes);
  ASSERT_TRUE(decode(bytes) && mac.verify(bytes));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Bytes changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(decode(changed) && mac.verify(changed)) << "bit " << bit;
  }
}

// The tag covers elements in shared memory, too. They have another nonce, because the switch may send one sum both
// ways.
TEST(PacketMac, CoversSharedElements) {
  const Shape shape{2, 5};
  Head head;
  head.shared = true;
  Bytes bytes(packet_size(head, shape));
  EXPECT_EQ(bytes.size(), packet_size(Mode::kExtended, {2, 0}));
  EXPECT_TRUE(write_head(bytes, head, shape).elements.empty());
  PacketMac mac(kKey, {});
  Bytes elements(20, std::byte{7});
  mac.seal(bytes, elements);
  const auto packet = decode(bytes);
  ASSERT_TRUE(packet);
  EXPECT_TRUE(packet->head.shared && packet->elements.empty());
  EXPECT_EQ(packet->element_count(), 5U);
  EXPECT_TRUE(mac.verify(bytes, elements));
  EXPECT_FALSE(mac.verify(bytes));
  elements[19] = std::byte{8};
  EXPECT_FALSE(mac.verify(bytes, elements));
  EXPECT_NE(extended::nonce_of(bytes), extended::nonce_of(extended_packet({}, shape)));
}

TEST(PacketMac, RejectsEveryTruncation) {
  PacketMac mac(kKey, {});
  Bytes bytes = extended_packet({}, {0, 40});
  mac.seal(bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode(std::span(bytes).first(size))) << size;
  // A shorter packet with a matching header, and the tag of the long one.
  Bytes shorter = extended_packet({}, {0, 39});
  std::copy(bytes.end() - kTagBytes, bytes.end(), shorter.end() - kTagBytes);
  ASSERT_TRUE(decode(shorter));
  EXPECT_FALSE(mac.verify(shorter));
}

TEST(PacketMac, EverySenderHasItsOwnKey) {
  const Sender sender{Sender::Role::kWorker, 1, 2, 3, {4}};
  std::vector<Sender> others(5, sender);
  others[0].role = Sender::Role::kSwitch;
  others[1].epoch = 2;
  others[2].job = 3;
  others[3].rank = 4;
  others[4].salt[15] = 1;
  Bytes bytes = extended_packet({});
  PacketMac(kKey, sender).seal(bytes);
  EXPECT_TRUE(PacketMac(kKey, sender).verify(bytes));
  for (const Sender& other : others) EXPECT_FALSE(PacketMac(kKey, other).verify(bytes));
  EXPECT_FALSE(PacketMac(derive_session_key("another job's secret", 1), sender).verify(bytes));
  EXPECT_FALSE(PacketMac().verify(bytes));
}

TEST(PacketMac, NoncesDifferBetweenKindsSlotsAndSequences) {
  std::set<GmacNonce> nonces;
  for (const Kind kind : {Kind::kContribution, Kind::kResult, Kind::kOperationsDiffer}) {
    for (const std::uint32_t slot : {0U, 1U, 256U, 65535U}) {
      for (const std::uint64_t sequence : {0ULL, 1ULL, 1ULL << 32, ~0ULL}) {
        Head head;
        head.kind = kind;
        head.slot = slot;
        head.sequence = sequence;
        EXPECT_TRUE(nonces.insert(extended::nonce_of(extended_packet(head))).second);
      }
    }
  }
}

TEST(PacketMac, WithoutAKeyTheTagIsZero) {
  Bytes bytes = extended_packet({});
  PacketMac mac(SessionKey{}, {});
  mac.seal(bytes);
  EXPECT_EQ(Bytes(bytes.end() - kTagBytes, bytes.end()), Bytes(kTagBytes));
  EXPECT_TRUE(mac.verify(bytes));
  bytes.back() = std::byte{1};
  EXPECT_FALSE(mac.verify(bytes));
}

TEST(WorkerSalt, IsRandom) { EXPECT_NE(random_worker_salt(), random_worker_salt()); }

}  // namespace
}  // namespace weft::aggregation
