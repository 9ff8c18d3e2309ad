// TensorBoard files. tests/python/tools/tensorboard_test.py reads the records.
#include "weft/trace/tensorboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "weft/files/error.h"

namespace weft::trace {
namespace {

// Test vectors of RFC 3720, appendix B.4, and the standard check value.
TEST(Crc32c, MatchesPublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(""), 0U);
}

// Keeps the file in WEFT_EVENTS_FOLDER, if set, for the Python test.
TEST(TensorBoard, Scalars) {
  const char* kept = std::getenv("WEFT_EVENTS_FOLDER");
  const std::filesystem::path folder = kept != nullptr ? kept : testing::TempDir() + "weft-events";
  TensorBoardFile file(folder / "run");
  file.add_scalar("train/loss", 0, 0.5F, 1000.25);
  file.add_scalar("train/loss", 300, 1.0F / 3, 1001.5);
  file.add_scalar("gr\xC3\xBC\xC3\x9F", std::int64_t{1} << 40, -1e30F, 0);
  file.add_scalar(std::string(300, 'x'), -1, std::nanf(""), 1);
  file.restart_at(301, 1002);
  EXPECT_GT(std::filesystem::file_size(file.path()), 400U);
  if (kept == nullptr) std::filesystem::remove_all(folder);
}

TEST(TensorBoard, ThrowsIfTheFileCannotBeCreated) { EXPECT_THROW(TensorBoardFile("/dev/null/run"), files::FileError); }

}  // namespace
}  // namespace weft::trace
