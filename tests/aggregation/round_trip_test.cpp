#include "weft/aggregation/round_trip.h"

#include <gtest/gtest.h>

namespace weft::aggregation {
namespace {

using namespace std::chrono_literals;

RoundTrip after(Duration round_trip, int samples = 100) {
  RoundTrip measured{RetransmissionOptions{}};
  for (int i = 0; i < samples; ++i) measured.answered(round_trip, round_trip, 0);
  return measured;
}

TEST(RoundTrip, WaitsTwiceWhatItMeasuredWithinBounds) {
  EXPECT_EQ(RoundTrip{RetransmissionOptions{}}.timeout(0), 20ms);
  EXPECT_EQ(after(1ms).timeout(0), 5ms);
  EXPECT_NEAR(static_cast<double>(after(30ms).timeout(0).count()), 60e6, 1e6);
  EXPECT_EQ(after(30ms).timeout(9), 250ms);
  EXPECT_EQ(after(1ms).timeout(2), 20ms);
}

// A small first packet is answered in 1 ms, full ones queue for 28: all are sent again before any answer is here.
TEST(RoundTrip, WhereEverythingIsSentTwiceTheWaitStaysLong) {
  RoundTrip measured = after(1ms);
  measured.answered(28ms, 13ms, 2);  // of which copy? nothing is learnt
  EXPECT_EQ(measured.timeout(0), 20ms);
  measured.answered(28ms, 8ms, 1);
  EXPECT_EQ(measured.timeout(0), 20ms);
  measured.answered(28ms, 28ms, 0);  // a wait that was long enough
  EXPECT_GT(measured.smoothed(), 3ms);
  EXPECT_GT(measured.timeout(0), 28ms);
}

TEST(RoundTrip, AnAnswerTooSoonToBeTheSecondsTeaches) {
  RoundTrip measured = after(10ms);
  measured.answered(30ms, 1ms, 1);
  EXPECT_GT(measured.smoothed(), 12ms);
}

}  // namespace
}  // namespace weft::aggregation
