// Traces of all ranks: valid JSON, a common time axis, and errors that reach every rank.
#include "weft/trace/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/eventually.h"
#include "tests/mpi/scoped_options.h"
#include "weft/files/error.h"
#include "weft/mpi/error.h"
#include "weft/mpi/message/message_channel.h"
#include "weft/trace/json.h"

namespace weft::trace {
namespace {

using nlohmann::json;

Communicator& world() { return *Communicator::world(); }
ClockOffset clock_of_world() { return clock_offset(mpi::MessageChannel::open(world(), "clocks")); }

// The same path on every rank, based on the process id of rank 0.
std::filesystem::path shared_path() {
  int number = getpid();
  MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return testing::TempDir() + "weft-trace-" + std::to_string(number) + ".json";
}

json read_and_remove(const std::filesystem::path& path) {
  json trace;
  if (world().rank() == 0) {
    trace = json::parse(std::ifstream(path));
    std::filesystem::remove(path);
  }
  return trace;
}

TEST(ChromeTrace, PutsAllRanksOnOneTimeAxis) {
  const auto path = shared_path();
  start_recording();
  name_thread("main \"thread\"\n");
  for (int root = 0; root < world().size(); ++root) {
    {
      const Span before("before", root);
      if (world().rank() == root) usleep(3000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const Span after("after", root);
  }
  stop_recording();
  const std::int64_t uncertainty = clock_of_world().uncertainty_ns;
  std::int64_t worst = 0;
  MPI_Allreduce(&uncertainty, &worst, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  write_chrome_trace(path, world());
  const json trace = read_and_remove(path);
  if (world().rank() != 0) return;

  std::map<int, double> latest_before, earliest_after;  // by barrier
  std::set<int> processes;
  std::size_t complete = 0;
  for (const json& event : trace["traceEvents"]) {
    processes.insert(event["pid"].get<int>());
    if (event["ph"] == "M") {
      const std::string expected =
          event["name"] == "thread_name" ? "main \"thread\"\n" : "rank " + std::to_string(event["pid"].get<int>());
      EXPECT_EQ(event["args"]["name"], expected);
      continue;
    }
    ++complete;
    const int root = event["args"]["detail"].get<int>();
    const double begin = event["ts"].get<double>(), end = begin + event["dur"].get<double>();
    if (event["name"] == "before") latest_before[root] = std::max(latest_before[root], end);
    if (event["name"] == "after") {
      const auto [known, first] = earliest_after.try_emplace(root, begin);
      if (!first) known->second = std::min(known->second, begin);
    }
  }
  EXPECT_EQ(processes.size(), static_cast<std::size_t>(world().size()));
  EXPECT_EQ(complete, static_cast<std::size_t>(2 * world().size() * world().size()));
  // No rank leaves a barrier before the last one enters it. The trace measured the clocks separately from this test, so
  // the tolerance is twice the uncertainty.
  for (const auto& [root, begin] : earliest_after) EXPECT_GE(begin + 4e-3 * worst, latest_before[root]);
}

TEST(ChromeTrace, ClocksOfOneMachineAgree) {
  const ClockOffset clock = clock_of_world();
  EXPECT_LE(std::abs(clock.offset_ns), clock.uncertainty_ns);  // all ranks use the same clock
}

TEST(ChromeTrace, AllRanksThrowIfTheFileCannotBeWritten) {
  EXPECT_THROW(write_chrome_trace("/dev/null/trace.json", world()), files::FileError);
  const auto path = shared_path();
  write_chrome_trace(path, world());  // the ranks are still synchronized
  EXPECT_NO_THROW(read_and_remove(path));
}

// Rank 0 times out and notifies the others; afterwards the communicator is usable.
TEST(ChromeTrace, TimesOutIfARankDoesNotParticipate) {
  if (world().size() == 1) GTEST_SKIP() << "needs a second rank";
  const auto path = shared_path();
  if (world().rank() == 0) {
    const mpi::ScopedOptions soon([](mpi::Options& options) { options.timeout = std::chrono::milliseconds(200); });
    EXPECT_THROW(write_chrome_trace(path, world()), mpi::TimeoutError);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world().rank() != 0) {
    EXPECT_THROW(write_chrome_trace(path, world()), mpi::PeerLost);
  }
  write_chrome_trace(path, world());
  EXPECT_NO_THROW(read_and_remove(path));
}

// Rank 1 participates and fails before it replies.
TEST(ChromeTrace, ThrowsIfARankFailsDuringTheExchange) {
  if (world().size() == 1) GTEST_SKIP() << "needs a second rank";
  if (world().rank() == 1) {
    static_cast<void>(mpi::MessageChannel::open(world(), "clocks"));
    world().raise_alarm("fell over");
  } else {
    try {
      // A rank that does not communicate with the failed one sees the alarm at its next operation.
      static_cast<void>(clock_of_world());
      eventually(
          [] {
            world().enter();
            return false;
          },
          "an alarm");
    } catch (const mpi::PeerLost& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("fell over"));
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_NO_THROW(static_cast<void>(clock_of_world()));
}

TEST(Json, ArbitraryBytesBecomeValidJson) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  for (const std::string& text : {bytes, std::string("\xC0\x80"), std::string("\xED\xA0\x80"), std::string("\xF8"),
                                  std::string("\xE2\x82"), std::string("</script>")}) {
    EXPECT_NO_THROW(json::parse(dump_json(text)));
  }
  for (const std::string text : {"", "a\"b\\c\n\t", "gr\xC3\xBC\xC3\x9F", "\xF0\x9F\x98\x80"}) {
    EXPECT_EQ(json::parse(dump_json(text)), text);
  }
}

TEST(Json, NumbersRoundTrip) {
  for (const double value : {0.0, -0.0, 0.1, 1e300, 5e-324, -123456789.123456789}) {
    EXPECT_EQ(json::parse(dump_json(json_number(value))).get<double>(), value);
  }
  EXPECT_EQ(json_number(std::nan("")), "NaN");
  EXPECT_EQ(json_number(-HUGE_VAL), "-Infinity");
}

}  // namespace
}  // namespace weft::trace
