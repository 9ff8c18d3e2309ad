// main() of the tests that run under mpirun: runs GoogleTest on every rank and prints one report.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {

// Rank 0 prints the full report. The other ranks would repeat it, so they print only their failures, with the rank.
class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }

  // Must not query UnitTest for the current test: GoogleTest holds its lock during this call.
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s:%d: failure in %s\n%s\n", rank_,
                 result.file_name() ? result.file_name() : "unknown file", result.line_number(), test_.c_str(),
                 result.summary());
    std::fflush(stderr);
  }

 private:
  int rank_;
  std::string test_ = "the set-up";
};

void silence_all_but_failures(int rank) {
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  std::unique_ptr<testing::TestEventListener> printer(listeners.Release(listeners.default_result_printer()));
  listeners.Append(new FailurePrinter(rank));  // GoogleTest takes ownership
}

int initialize_mpi(int* argc, char*** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (provided < MPI_THREAD_MULTIPLE) {
    std::fprintf(stderr, "[rank %d] this MPI does not provide MPI_THREAD_MULTIPLE\n", rank);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  return rank;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int rank = initialize_mpi(&argc, &argv);
  if (rank != 0) silence_all_but_failures(rank);

  const int own_status = RUN_ALL_TESTS();
  // Every rank returns the worst status, because the launcher may use the status of any rank.
  int status = own_status;
  MPI_Allreduce(&own_status, &status, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return status;
}
