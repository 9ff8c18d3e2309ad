#include "weft/control/frame_meter.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::control {
namespace {

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string frame(char type, std::size_t length) {
  std::string bytes{
      static_cast<char>(length >> 16), static_cast<char>(length >> 8), static_cast<char>(length), type, 0, 0, 0, 0, 1};
  return bytes + std::string(length, '\x01');
}

TEST(FrameMeter, ChargesRequestsResetsAndContinuationsMore) {
  FrameMeter meter;
  EXPECT_EQ(meter.cost(kPreface), 0);
  EXPECT_EQ(meter.cost(frame(1, 0)), FrameMeter::kRequest);
  EXPECT_EQ(meter.cost(frame(3, 0)), FrameMeter::kRequest);
  EXPECT_EQ(meter.cost(frame(9, 0)), FrameMeter::kRequest);
  for (const char type : {0, 2, 4, 6, 7, 8}) EXPECT_EQ(meter.cost(frame(type, 0)), FrameMeter::kOther) << int{type};
}

TEST(FrameMeter, ChargesLength) {
  FrameMeter meter;
  EXPECT_EQ(meter.cost(kPreface + frame(0, 16 << 10)), FrameMeter::kOther + 16 * FrameMeter::kPerKibibyte);
}

// The payload contains the bytes of other frames, which must not count.
TEST(FrameMeter, TheCostDoesNotDependOnHowBytesArrive) {
  const std::string all = kPreface + frame(4, 36) + frame(1, 700) + frame(0, 5) + frame(3, 4) + frame(1, 0);
  FrameMeter whole;
  const double expected = whole.cost(all);
  for (const std::size_t step : {1, 2, 7, 9, 10, 100}) {
    FrameMeter split;
    double total = 0;
    for (std::size_t i = 0; i < all.size(); i += step) total += split.cost(std::string_view(all).substr(i, step));
    EXPECT_EQ(total, expected) << step;
  }
}

}  // namespace
}  // namespace weft::control
