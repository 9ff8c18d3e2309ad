// metrics.jsonl: complete lines, killed writers, and resumed runs.
#include "weft/trace/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "tests/temporary_folder.h"
#include "weft/files/error.h"

namespace weft::trace {
namespace {

using nlohmann::json;

class Metrics : public testing::Test {
 protected:
  // Throws if a line is not JSON or the last one is incomplete.
  [[nodiscard]] std::vector<json> lines() const {
    std::ifstream file(path_);
    std::vector<json> result;
    for (std::string line; std::getline(file, line);) {
      if (file.eof()) throw std::runtime_error("incomplete line");
      result.push_back(json::parse(line));
    }
    return result;
  }
  // The number of lines that are not JSON.
  [[nodiscard]] int incomplete() const {
    std::ifstream file(path_);
    int count = 0;
    for (std::string line; std::getline(file, line);) count += json::accept(line) ? 0 : 1;
    return count;
  }
  [[nodiscard]] std::uintmax_t size() const {
    std::error_code absent;
    const std::uintmax_t bytes = std::filesystem::file_size(path_, absent);
    return absent ? 0 : bytes;
  }
  void append(const std::string& text) const { std::ofstream(path_, std::ios::app) << text; }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "run" / "metrics.jsonl";
};

TEST_F(Metrics, WritesOneObjectPerLine) {
  MetricsFile file(path_);
  file.add({1, 20, "train/loss", 0.25});
  file.add({1, 21, "odd \"name\"\n", std::nan("")});
  const auto got = lines();
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0]["epoch"], 1);
  EXPECT_EQ(got[0]["step"], 20);
  EXPECT_EQ(got[0]["name"], "train/loss");
  EXPECT_EQ(got[0]["value"], 0.25);
  EXPECT_NEAR(got[0]["time"].get<double>(), static_cast<double>(time(nullptr)), 5);
  EXPECT_EQ(got[1]["name"], "odd \"name\"\n");
  EXPECT_EQ(got[1]["value"], "NaN");
}

TEST_F(Metrics, AppendsAfterRemovingAnIncompleteLine) {
  {
    MetricsFile(path_).add({0, 1, "a", 1});
  }
  append(R"({"epoch": 0, "st)");
  MetricsFile(path_).add({0, 2, "a", 2});
  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[1]["step"], 2);
}

TEST_F(Metrics, RemovesAnIncompleteFirstLine) {
  {
    MetricsFile made(path_);
  }
  append("{\"ep");
  MetricsFile(path_).add({0, 1, "a", 1});
  EXPECT_EQ(lines().size(), 1U);
}

TEST_F(Metrics, KilledWritersLeaveAtMostOneIncompleteLine) {
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      MetricsFile file(path_);
      for (int step = 0;; ++step) file.add({round, step, "loss", 1.0 / step});
    }
    // Waits until the child has written some lines.
    const auto before = size();
    while (size() < before + 1 + 97 * static_cast<std::uintmax_t>(round)) usleep(100);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    // If the process is killed, Linux may end a write between two pages; only the last line is then incomplete.
    ASSERT_LE(incomplete(), 1);
    {
      const MetricsFile reopened(path_);
    }
    ASSERT_NO_THROW((void)lines());
  }
  EXPECT_GE(lines().size(), 20U);
}

TEST_F(Metrics, RemovesLaterSteps) {
  MetricsFile file(path_);
  for (int step = 0; step < 10; ++step) file.add({0, step, "loss", 1});
  append("{\"note\": \"no step\"}\nnot JSON\n");
  file.remove_after(6);
  file.add({1, 7, "loss", 2});
  std::ifstream text(path_);
  std::vector<std::string> got;
  for (std::string line; std::getline(text, line);) got.push_back(line);
  ASSERT_EQ(got.size(), 10U);  // steps 0 to 6, two foreign lines, and the new one
  EXPECT_EQ(json::parse(got[6])["step"], 6);
  EXPECT_EQ(got[8], "not JSON");
  EXPECT_EQ(json::parse(got[9])["value"], 2);
}

TEST_F(Metrics, ThrowsIfTheFileCannotBeCreated) {
  EXPECT_THROW(MetricsFile("/dev/null/metrics.jsonl"), files::FileError);
}

}  // namespace
}  // namespace weft::trace
