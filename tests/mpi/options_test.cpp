// Environment variables: their meaning and the rejected values.
#include "weft/mpi/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

#include "tests/mpi/scoped_options.h"
#include "weft/mpi/chunks.h"

namespace weft::mpi {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
const char* const kNames[] = {"WEFT_TIMEOUT", "WEFT_WARN",       "WEFT_DEBUG",
                              "WEFT_CHECK",   "WEFT_CUDA_AWARE", "WEFT_MAX_COUNT"};

class OptionsTest : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : kNames) unsetenv(name);
  }
  static Options with(const char* name, const char* value) {
    setenv(name, value, 1);
    return Options::from_environment();
  }
};

TEST_F(OptionsTest, HasDocumentedDefaults) {
  const Options options = Options::from_environment();
  EXPECT_EQ(options.timeout, milliseconds(300'000));
  EXPECT_EQ(options.warn_after, milliseconds(30'000));
  EXPECT_FALSE(options.debug);
  EXPECT_TRUE(options.check);
  EXPECT_TRUE(options.cuda_aware);
  EXPECT_EQ(options.max_count, 1 << 30);
}

TEST_F(OptionsTest, EachVariableSetsItsOption) {
  EXPECT_EQ(with("WEFT_TIMEOUT", "2.5").timeout, milliseconds(2500));
  EXPECT_EQ(Options::from_environment().warn_after, milliseconds(1250)) << "the warning precedes the timeout";
  EXPECT_EQ(with("WEFT_WARN", "0.1").warn_after, milliseconds(100));
  EXPECT_TRUE(with("WEFT_DEBUG", "1").debug);
  EXPECT_FALSE(with("WEFT_CHECK", "0").check);
  EXPECT_FALSE(with("WEFT_CUDA_AWARE", "0").cuda_aware);
  EXPECT_EQ(with("WEFT_MAX_COUNT", "1000").max_count, 1000);
  EXPECT_EQ(with("WEFT_MAX_COUNT", "2147483647").max_count, std::numeric_limits<int>::max());
}

TEST_F(OptionsTest, EmptyMeansUnset) { EXPECT_EQ(with("WEFT_TIMEOUT", "").timeout, milliseconds(300'000)); }

TEST_F(OptionsTest, RejectsInvalidValuesByName) {
  // A count above int would be truncated in MPI calls; an infinite time does not fit into milliseconds.
  const std::pair<const char*, const char*> bad[] = {
      {"WEFT_TIMEOUT", "soon"}, {"WEFT_TIMEOUT", "-1"},           {"WEFT_TIMEOUT", "10s"}, {"WEFT_TIMEOUT", "nan"},
      {"WEFT_TIMEOUT", "inf"},  {"WEFT_WARN", "1e300"},           {"WEFT_DEBUG", "yes"},   {"WEFT_MAX_COUNT", "0"},
      {"WEFT_MAX_COUNT", "-7"}, {"WEFT_MAX_COUNT", "4294967298"},
  };
  for (const auto& [name, value] : bad) {
    clear();
    try {
      static_cast<void>(with(name, value));
      ADD_FAILURE() << name << "=" << value << " was accepted";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(name));
      EXPECT_THAT(error.what(), HasSubstr(std::string("'") + value + "'"));
    }
  }
}

TEST_F(OptionsTest, ChunksCoverEachElementOnceAndEmptyTransfersOnce) {
  const ScopedOptions chunks([](Options& options) { options.max_count = 7; });
  for (std::int64_t total = 0; total < 50; ++total) {
    std::int64_t next = 0;
    int calls = 0;
    for_each_chunk(total, [&](std::int64_t first, int count) {
      EXPECT_EQ(first, next);
      EXPECT_LE(count, 7);
      EXPECT_EQ(count == 0, total == 0);
      next += count;
      ++calls;
    });
    EXPECT_EQ(next, total);
    EXPECT_EQ(calls, total == 0 ? 1 : (total + 6) / 7);
  }
}

}  // namespace
}  // namespace weft::mpi
