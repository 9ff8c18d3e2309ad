// Kills a rank at a random moment inside a sequence of collectives. The other ranks raise PeerLost, and no process or
// shared memory remains. WEFT_TEST_KILLS sets the number of jobs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "tests/eventually.h"
#include "tests/node/random_collectives.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::node {
namespace {

constexpr int kRanks = 3;
constexpr int kVictim = 1;

void kill_this_process_at_random(unsigned seed) {
  std::thread([seed] {
    std::mt19937 random(seed);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300'000));
    ::kill(::getpid(), SIGKILL);
  }).detach();
}

// A rank of the job. It ends with _exit(): MPI_Finalize would wait for the killed rank.
[[noreturn]] void run_rank(unsigned seed) {
  ::signal(SIGTERM, SIG_IGN);  // the launcher ends the other ranks at once
  mpi::Environment::ensure();
  const auto communicator = mpi::Communicator::world();
  const int rank = communicator->rank();
  try {
    RandomCollectives random(communicator->channel(mpi::Direction::kForward), seed, 300'000, communicator.get());
    random.step();
    if (rank == kVictim) kill_this_process_at_random(seed);
    for (;;) random.step();
  } catch (const mpi::PeerLost& error) {
    std::fprintf(stderr, "rank %d raised: %s\n", rank, error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d failed otherwise: %s\n", rank, error.what());
  }
  std::fflush(stderr);
  std::this_thread::sleep_for(std::chrono::seconds(2));  // the launcher kills all ranks when one exits
  std::_Exit(3);
}

struct Result {
  int status;
  std::string output;
};

Result run_job(unsigned seed) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  // The launcher must not kill the other ranks before they notice.
  const std::string command = "PRTE_MCA_odls_base_sigkill_timeout=20 WEFT_TEST_SEED=" + std::to_string(seed) +
                              " timeout 60 " WEFT_LAUNCHER " -n " + std::to_string(kRanks) + " " + program +
                              " --gtest_filter=Killed.Rank 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  Result result{-1, {}};
  if (pipe == nullptr) return result;
  std::array<char, 4096> text{};
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) result.output += text.data();
  result.status = ::pclose(pipe);
  return result;
}

// The processes of this program other than this one.
int remaining_processes() {
  int count = 0;
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos || name == std::to_string(::getpid())) continue;
    std::error_code ignored;
    const auto program = std::filesystem::read_symlink(entry.path() / "exe", ignored);
    if (program == self) ++count;
  }
  return count;
}

int named_segments() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().find("weft.node") != std::string::npos) ++count;
  }
  return count;
}

TEST(Killed, OtherRanksRaiseAndNothingRemains) {
  const char* text = std::getenv("WEFT_TEST_KILLS");
  // The launcher sometimes kills the other ranks before they can print, so this test does not run by default.
  if (text == nullptr) GTEST_SKIP() << "set WEFT_TEST_KILLS to the number of jobs";
  const int kills = std::stoi(text);
  std::random_device seeds;
  for (int i = 0; i < kills && !HasFailure(); ++i) {
    const unsigned seed = seeds();
    const Result job = run_job(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ":\n" + job.output);
    EXPECT_NE(job.status, 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == kVictim) continue;
      const std::string raised = "rank " + std::to_string(rank) + " raised: weft.PeerLost: rank ";
      EXPECT_NE(job.output.find(raised), std::string::npos);
    }
    EXPECT_NO_THROW(eventually([] { return remaining_processes() == 0; }, "the end of all ranks"));
    EXPECT_EQ(named_segments(), 0);
  }
}

// Only as a rank of a job above.
TEST(Killed, Rank) {
  const char* seed = std::getenv("WEFT_TEST_SEED");
  if (seed == nullptr) GTEST_SKIP() << "runs as a rank of the other test";
  run_rank(static_cast<unsigned>(std::stoul(seed)));
}

}  // namespace
}  // namespace weft::node
