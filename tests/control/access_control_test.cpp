#include "weft/control/access_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace weft::control {
namespace {

using Kind = Decision::Kind;
using std::chrono::seconds;
const Nonces::Clock::time_point kNow{seconds(1000)};
const std::string kDigits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string digits_of(const std::string& bytes) {
  std::string digits;
  for (const char byte : bytes) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned char>(byte));
    digits += text;
  }
  return digits;
}

class AdmissionByKey : public ::testing::Test {
 protected:
  [[nodiscard]] Caller proving(const std::string& nonce, const Claim& claim, const std::string& secret) const {
    return {false, nonce, request_mac(secret, nonce, claim)};
  }
  EventCounters counters;
  AccessControl admission{
      JobKeys::parse("jobs:\n  a: {key: " + kDigits + ", slots: 7}\n  b: {key: '" + kDigits + "ff'}\n", "k"), false,
      counters};
  std::string secret = bytes_of(kDigits);
  Claim claim{"UdpSession", "a", "mode=classic", "message"};
};

// Computed with Python's hmac module.
TEST(RequestMac, IsHmacSha256OverEveryPartWithItsLength) {
  const std::string nonce(32, 'n');
  EXPECT_EQ(digits_of(request_mac(bytes_of(kDigits), nonce, {"UdpSession", "a", "mode=classic", "message"})),
            "60d5a00f17c38eb7c8e092c017ad91e58fe0b6cc3a2c97f5e7d0b723e98a44c9");
}

TEST(RequestMac, DiffersBetweenClaims) {
  const std::string nonce(32, 'n');
  std::set<std::string> proofs;
  for (const Claim& claim : {Claim{"ab", "c", "", "d"}, Claim{"a", "bc", "", "d"}, Claim{"a", "b", "c", "d"},
                             Claim{"ab", "", "c", "d"}, Claim{"ab", "cd", "", ""}}) {
    proofs.insert(request_mac("secret", nonce, claim));
  }
  EXPECT_EQ(proofs.size(), 5U);
}

TEST_F(AdmissionByKey, ChallengesThenAdmits) {
  const Decision challenge = admission.decide({}, claim, kNow);
  ASSERT_EQ(challenge.kind, Kind::kChallenge);
  EXPECT_EQ(challenge.nonce.size(), kNonceBytes);
  const Decision decision = admission.decide(proving(challenge.nonce, claim, secret), claim, kNow);
  ASSERT_EQ(decision.kind, Kind::kAdmit);
  EXPECT_EQ(decision.key->slots, 7);
  EXPECT_EQ(counters.of(Event::kChallenged), 1U);
}

TEST_F(AdmissionByKey, ReplayedRequestsAreChallengedAndCounted) {
  const std::string nonce = admission.decide({}, claim, kNow).nonce;
  const Caller caller = proving(nonce, claim, secret);
  ASSERT_EQ(admission.decide(caller, claim, kNow).kind, Kind::kAdmit);
  const Decision again = admission.decide(caller, claim, kNow);
  EXPECT_EQ(again.kind, Kind::kChallenge);
  EXPECT_EQ(again.key, nullptr);
  EXPECT_NE(again.nonce, nonce);
  EXPECT_EQ(counters.of(Event::kRefusedReplay), 1U);
  EXPECT_EQ(admission.decide({false, again.nonce, caller.mac}, claim, kNow).kind, Kind::kRefuse);
}

// Expired nonces, nonces from before a restart and dropped nonces: an honest worker authenticates with the next one.
TEST_F(AdmissionByKey, UnknownNoncesAreAnsweredWithAnother) {
  const std::string old = admission.decide({}, claim, kNow).nonce;
  Decision decision = admission.decide(proving(old, claim, secret), claim, kNow + seconds(31));
  EXPECT_EQ(decision.kind, Kind::kChallenge);
  decision = admission.decide(proving(std::string(kNonceBytes, 'x'), claim, secret), claim, kNow);
  ASSERT_EQ(decision.kind, Kind::kChallenge);
  const std::string forgotten = decision.nonce;
  for (int i = 0; i < 4096; ++i) static_cast<void>(admission.decide({}, claim, kNow));
  decision = admission.decide(proving(forgotten, claim, secret), claim, kNow);
  ASSERT_EQ(decision.kind, Kind::kChallenge);
  EXPECT_EQ(admission.decide(proving(decision.nonce, claim, secret), claim, kNow).kind, Kind::kAdmit);
  EXPECT_EQ(counters.of(Event::kRefusedReplay), 3U);
}

TEST_F(AdmissionByKey, AWrongKeyConsumesTheNonce) {
  const std::string nonce = admission.decide({}, claim, kNow).nonce;
  EXPECT_EQ(admission.decide(proving(nonce, claim, "wrong"), claim, kNow).kind, Kind::kRefuse);
  EXPECT_EQ(counters.of(Event::kRefusedWrongKey), 1U);
  const Decision second_guess = admission.decide(proving(nonce, claim, secret), claim, kNow);
  EXPECT_EQ(second_guess.kind, Kind::kChallenge);
  EXPECT_EQ(admission.decide(proving(second_guess.nonce, claim, "wrong"), claim, kNow).kind, Kind::kRefuse);
}

TEST_F(AdmissionByKey, AMacIsValidForOneRequestOfOneJob) {
  for (const Claim& other :
       {Claim{"Leave", "a", "mode=classic", "message"}, Claim{"UdpSession", "b", "mode=classic", "message"},
        Claim{"UdpSession", "a", "mode=extended", "message"}, Claim{"UdpSession", "a", "mode=classic", "massage"}}) {
    const std::string nonce = admission.decide({}, claim, kNow).nonce;
    EXPECT_EQ(admission.decide(proving(nonce, claim, secret), other, kNow).kind, Kind::kRefuse);
  }
  EXPECT_EQ(counters.of(Event::kRefusedWrongKey), 4U);
}

TEST_F(AdmissionByKey, AnUnknownJobLooksLikeAWrongKey) {
  const Claim unknown{"UdpSession", "unknown", "", ""};
  const Decision challenge = admission.decide({}, unknown, kNow);
  ASSERT_EQ(challenge.kind, Kind::kChallenge);
  const Decision refusal = admission.decide(proving(challenge.nonce, unknown, secret), unknown, kNow);
  EXPECT_EQ(refusal.kind, Kind::kRefuse);
  EXPECT_EQ(refusal.reason, "wrong key, or no such job");
}

TEST_F(AdmissionByKey, SwitchMLsOwnClientsHaveNoKey) {
  EXPECT_EQ(admission.decide({true, "", ""}, {"UdpSession", "", "", ""}, kNow).kind, Kind::kRefuse);
  EXPECT_EQ(counters.of(Event::kRefusedNoKey), 1U);
}

TEST(AdmissionWithoutKeys, AdmitsOnlyThisMachineUnlessOpen) {
  EventCounters counters;
  AccessControl closed({}, false, counters);
  AccessControl open({}, true, counters);
  const Claim claim{"UdpSession", "", "", ""};
  EXPECT_EQ(closed.decide({true, "", ""}, claim, kNow).kind, Kind::kAdmit);
  const Decision refusal = closed.decide({false, "", ""}, claim, kNow);
  EXPECT_EQ(refusal.kind, Kind::kRefuse);
  EXPECT_THAT(refusal.reason, ::testing::HasSubstr("--open"));
  EXPECT_EQ(open.decide({false, "", ""}, claim, kNow).kind, Kind::kAdmit);
  EXPECT_EQ(counters.of(Event::kRefusedNotOpen), 1U);
}

TEST(Nonces, MemoryIsBounded) {
  Nonces nonces(seconds(30), 3);
  const std::string first = nonces.issue(kNow);
  const std::string second = nonces.issue(kNow);
  static_cast<void>(nonces.issue(kNow));
  static_cast<void>(nonces.issue(kNow));
  EXPECT_FALSE(nonces.take(first, kNow));
  EXPECT_TRUE(nonces.take(second, kNow));
  EXPECT_FALSE(nonces.take(second, kNow));
}

}  // namespace
}  // namespace weft::control
