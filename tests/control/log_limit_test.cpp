#include "weft/control/log_limit.h"

#include <gtest/gtest.h>

namespace weft::control {
namespace {

using namespace std::chrono_literals;

class Limit : public ::testing::Test {
 protected:
  // Number of lines written out of `count` at the given time.
  int written(int lines, std::chrono::milliseconds when) {
    int count = 0;
    for (int i = 0; i < lines; ++i) count += limit_.pass("no", LogLimit::Clock::time_point(when)) ? 1 : 0;
    return count;
  }
  std::string next(std::chrono::milliseconds when) {
    return limit_.pass("no", LogLimit::Clock::time_point(when)).value_or("");
  }

  LogLimit limit_;
};

TEST_F(Limit, FewLinesAreWrittenUnchanged) {
  for (const auto when : {0ms, 1ms, 500ms, 999ms, 1000ms, 7000ms}) EXPECT_EQ(next(when), "no");
}

TEST_F(Limit, LimitsLinesPerSecond) {
  EXPECT_EQ(written(1'000'000, 5ms), LogLimit::kLinesPerSecond);
  EXPECT_EQ(written(1000, 1004ms), 0);
  EXPECT_EQ(written(1000, 1005ms), LogLimit::kLinesPerSecond);
  EXPECT_EQ(written(LogLimit::kLinesPerSecond, 9000ms), LogLimit::kLinesPerSecond);
}

TEST_F(Limit, ReportsSuppressedLinesOnce) {
  EXPECT_EQ(written(LogLimit::kLinesPerSecond + 123, 0ms), LogLimit::kLinesPerSecond);
  EXPECT_EQ(next(900ms), "");
  EXPECT_EQ(next(1000ms), "no (and 124 more suppressed)");
  EXPECT_EQ(next(1000ms), "no");
}

}  // namespace
}  // namespace weft::control
