// Random sequences of all collectives, types, reductions and sizes, bit-equal to a reference computed on each rank.
// WEFT_TEST_COLLECTIVES sets their number.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/node/random_collectives.h"
#include "tests/node/scoped_options.h"

namespace weft::node {
namespace {

int collectives() {
  const char* text = std::getenv("WEFT_TEST_COLLECTIVES");
  return text != nullptr ? std::stoi(text) : 300;
}

void run(unsigned seed, std::int64_t largest) {
  const mpi::UniqueComm comm = mpi::CommView::world().dup("random");
  RandomCollectives random(comm, seed, largest);
  for (int i = 0; i < collectives() && !testing::Test::HasFailure(); ++i) random.step();
}

TEST(Random, WithTheUsualAlgorithms) { run(1, 100'000); }

TEST(Random, ThroughTheSegmentIfItFits) {
  Options options;
  options.one_step_bytes = 1 << 10;
  options.two_step_bytes = options.copy_bytes = Group::capacity();
  const ScopedOptions scope(options);
  run(2, 20'000);
}

TEST(Random, AcrossMemoryInSmallChunks) {
  Options options;
  options.one_step_bytes = options.two_step_bytes = options.copy_bytes = 1;
  options.chunk_bytes = 8192;
  const ScopedOptions scope(options);
  run(3, 20'000);
}

TEST(Random, WithoutCrossMemoryAttachOnOneRank) {
  Options options;
  options.cross_memory = mpi::CommView::world().rank() != 1;
  const ScopedOptions scope(options);
  run(4, 2'000);  // MPI adds in another order, but reductions of this size never reach it
}

}  // namespace
}  // namespace weft::node
