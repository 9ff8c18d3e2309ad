// Splits the rows of a table over the ranks: the smallest program outside weft's source tree.

#include <mpi.h>

#include <cstdint>
#include <cstdio>

#include "weft/partition/range.h"

int main(int argc, char** argv) {
  constexpr std::int64_t kRows = 10;
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  const auto rows = weft::partition::balanced(kRows, size, rank);
  std::printf("rank %d of %d owns rows [%lld, %lld)\n", rank, size, static_cast<long long>(rows.begin),
              static_cast<long long>(rows.end));

  std::int64_t own = rows.size();
  std::int64_t total = 0;
  MPI_Allreduce(&own, &total, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return total == kRows ? 0 : 1;
}
