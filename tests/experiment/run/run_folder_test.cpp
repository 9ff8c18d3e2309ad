// Tests the choice of the run folder, for new and for resumed runs.
#include "weft/experiment/run/run_folder.h"

#include <gtest/gtest.h>

#include <fstream>

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;

TEST(RunFolderTest, LastFolderHasTheLargestNumber) {
  const fs::path runs = fs::path(testing::TempDir()) / "weft-run-folder";
  fs::remove_all(runs);
  EXPECT_EQ(last_folder(runs, "toy"), runs / "toy");
  for (int i = 0; i < 11; ++i) static_cast<void>(fresh_folder(runs, "toy"));
  fs::remove_all(runs / "toy-2");
  fs::remove_all(runs / "toy-10");
  EXPECT_EQ(last_folder(runs, "toy"), runs / "toy-11");
  for (const char* other : {"toy-012", "toy-99x", "toy-", "toys-77", "toy-99999999999999999999"}) {
    fs::create_directory(runs / other);
  }
  std::ofstream(runs / "toy-50") << "a file";
  EXPECT_EQ(last_folder(runs, "toy"), runs / "toy-11");
  EXPECT_EQ(fresh_folder(runs, "toy"), runs / "toy-2");
  fs::remove_all(runs);
}

}  // namespace
}  // namespace weft::experiment
