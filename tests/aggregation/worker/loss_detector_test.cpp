#include "weft/aggregation/worker/loss_detector.h"

#include <gtest/gtest.h>

namespace weft::aggregation {
namespace {

TEST(LossDetector, AnswersInOrderReportNoLoss) {
  LossDetector packets(4, 2);
  for (int turn = 0; turn < 100; ++turn) {
    for (std::size_t slot = 0; slot < 4; ++slot) packets.sent(slot);
    for (std::size_t slot = 0; slot < 4; ++slot) {
      packets.answered(slot);
      EXPECT_EQ(packets.next(), std::nullopt);
    }
  }
}

TEST(LossDetector, ReportsAPacketBeyondTheThresholdOnce) {
  LossDetector packets(8, 2);
  for (std::size_t slot = 0; slot < 8; ++slot) packets.sent(slot);
  packets.answered(1);
  packets.answered(2);
  EXPECT_EQ(packets.next(), std::nullopt);  // two packets overtook 0, which is within the threshold
  packets.answered(3);
  EXPECT_EQ(packets.next(), 0U);
  EXPECT_EQ(packets.next(), std::nullopt);
  packets.answered(7);
  EXPECT_EQ(packets.next(), 4U);  // 5 and 6 are within the threshold
  EXPECT_EQ(packets.next(), std::nullopt);
}

TEST(LossDetector, ALateAnswerToALostPacketReportsNoLoss) {
  LossDetector packets(8, 2);
  for (std::size_t slot = 0; slot < 8; ++slot) packets.sent(slot);
  packets.answered(3);
  EXPECT_EQ(packets.next(), 0U);  // retransmitted
  packets.answered(0);
  packets.answered(0);  // answer to the second copy
  EXPECT_EQ(packets.next(), std::nullopt);
  packets.sent(0);  // the slot's next packet
  packets.answered(1);
  packets.answered(2);
  EXPECT_EQ(packets.next(), std::nullopt);
}

TEST(LossDetector, ReportsNothingIfDisabledOrReset) {
  LossDetector off(3, 0);
  LossDetector forgotten(3, 1);
  for (LossDetector* packets : {&off, &forgotten}) {
    for (std::size_t slot = 0; slot < 3; ++slot) packets->sent(slot);
    packets->forget();
    packets->answered(2);
    EXPECT_EQ(packets->next(), std::nullopt);
  }
}

}  // namespace
}  // namespace weft::aggregation
