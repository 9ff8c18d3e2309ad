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
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "tests/eventually.h"
#include "tests/node/random_collectives.h"
#include "tests/temporary_folder.h"
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

std::filesystem::path record_of(const std::filesystem::path& folder, int rank) { return folder / std::to_string(rank); }

bool all_survivors_recorded(const std::filesystem::path& folder) {
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != kVictim && !std::filesystem::exists(record_of(folder, rank))) return false;
  }
  return true;
}

// A rank of the job. It writes its exception into `folder`, because the launcher may lose output when it ends a job. It
// ends with _exit(): MPI_Finalize would wait for the killed rank.
[[noreturn]] void run_rank(unsigned seed, const std::filesystem::path& folder) {
  ::signal(SIGTERM, SIG_IGN);  // the launcher ends the other ranks at once
  mpi::Environment::ensure();
  const auto communicator = mpi::Communicator::world();
  const int rank = communicator->rank();
  std::string outcome;
  try {
    RandomCollectives random(communicator->channel(mpi::Direction::kForward), seed, 300'000, communicator.get());
    random.step();
    if (rank == kVictim) kill_this_process_at_random(seed);
    for (;;) random.step();
  } catch (const mpi::PeerLost& error) {
    outcome = std::string("raised: ") + error.what();
  } catch (const std::exception& error) {
    outcome = std::string("failed otherwise: ") + error.what();
  }
  std::ofstream(folder / ("partial." + std::to_string(rank))) << outcome;
  std::filesystem::rename(folder / ("partial." + std::to_string(rank)), record_of(folder, rank));
  // The launcher kills all ranks when one exits.
  eventually([&] { return all_survivors_recorded(folder); }, "the exceptions of the other ranks");
  std::_Exit(3);
}

struct Result {
  int status;
  std::string output;
};

Result run_job(unsigned seed, const std::filesystem::path& folder) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  // The launcher must not kill the other ranks before they notice.
  const std::string command = "WEFT_TEST_SEED=" + std::to_string(seed) + " WEFT_TEST_FOLDER=" + folder.string() +
                              " timeout 120 " WEFT_LAUNCHER " --enable-recovery -n " + std::to_string(kRanks) + " " +
                              program + " --gtest_filter=Killed.Rank 2>&1";
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
  const int kills = text != nullptr ? std::stoi(text) : 3;
  std::random_device seeds;
  for (int i = 0; i < kills && !HasFailure(); ++i) {
    const unsigned seed = seeds();
    const TemporaryFolder folder;
    const Result job = run_job(seed, folder.path());
    SCOPED_TRACE("seed " + std::to_string(seed) + ":\n" + job.output);
    EXPECT_NE(job.status, 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == kVictim) continue;
      std::string outcome;
      std::getline(std::ifstream(record_of(folder.path(), rank)), outcome);
      EXPECT_TRUE(outcome.starts_with("raised: weft.PeerLost: rank ")) << "rank " << rank << " " << outcome;
    }
    EXPECT_NO_THROW(eventually([] { return remaining_processes() == 0; }, "the end of all ranks"));
    EXPECT_EQ(named_segments(), 0);
  }
}

// Only as a rank of a job above.
TEST(Killed, Rank) {
  const char* seed = std::getenv("WEFT_TEST_SEED");
  if (seed == nullptr) GTEST_SKIP() << "runs as a rank of the other test";
  run_rank(static_cast<unsigned>(std::stoul(seed)), std::getenv("WEFT_TEST_FOLDER"));
}

}  // namespace
}  // namespace weft::node
