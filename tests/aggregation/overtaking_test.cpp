#include "weft/aggregation/overtaking.h"

#include <gtest/gtest.h>

namespace weft::aggregation {
namespace {

TEST(Overtaking, AnswersInOrderOvertakeNobody) {
  Overtaking packets(4, 2);
  for (int turn = 0; turn < 100; ++turn) {
    for (std::size_t slot = 0; slot < 4; ++slot) packets.sent(slot);
    for (std::size_t slot = 0; slot < 4; ++slot) {
      packets.answered(slot);
      EXPECT_EQ(packets.next(), std::nullopt);
    }
  }
}

TEST(Overtaking, OneThatIsPassedByMoreThanToleratedIsToldOnce) {
  Overtaking packets(8, 2);
  for (std::size_t slot = 0; slot < 8; ++slot) packets.sent(slot);
  packets.answered(1);
  packets.answered(2);
  EXPECT_EQ(packets.next(), std::nullopt);  // 0 was passed by two: a little disorder
  packets.answered(3);
  EXPECT_EQ(packets.next(), 0U);
  EXPECT_EQ(packets.next(), std::nullopt);
  packets.answered(7);
  EXPECT_EQ(packets.next(), 4U);  // 5 and 6 are within what is tolerated
  EXPECT_EQ(packets.next(), std::nullopt);
}

TEST(Overtaking, ALateAnswerToOneThatWasToldOvertakesNobody) {
  Overtaking packets(8, 2);
  for (std::size_t slot = 0; slot < 8; ++slot) packets.sent(slot);
  packets.answered(3);
  EXPECT_EQ(packets.next(), 0U);  // is sent again
  packets.answered(0);
  packets.answered(0);  // and the second copy
  EXPECT_EQ(packets.next(), std::nullopt);
  packets.sent(0);  // the slot's next packet: as new as any
  packets.answered(1);
  packets.answered(2);
  EXPECT_EQ(packets.next(), std::nullopt);
}

TEST(Overtaking, NoneIsWhereThatIsTurnedOffOrForgotten) {
  Overtaking off(3, 0);
  Overtaking forgotten(3, 1);
  for (Overtaking* packets : {&off, &forgotten}) {
    for (std::size_t slot = 0; slot < 3; ++slot) packets->sent(slot);
    packets->forget();
    packets->answered(2);
    EXPECT_EQ(packets->next(), std::nullopt);
  }
}

}  // namespace
}  // namespace weft::aggregation
