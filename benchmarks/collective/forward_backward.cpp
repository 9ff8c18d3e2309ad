// Compares forward and backward of all_reduce and a sendrecv ring with plain MPI on preallocated memory.
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <mpi.h>

#include <vector>

#include "benchmarks/timing.h"
#include "weft/weft.h"

namespace {

using weft::benchmarks::Alternative;

int calls_for(std::int64_t elements) {
  return static_cast<int>(std::clamp<std::int64_t>((std::int64_t{1} << 22) / elements, 2, 2000));
}

int repeats_for(std::int64_t elements) { return elements > (1 << 22) ? 7 : 21; }

void all_reduce(std::int64_t elements, const weft::CommunicatorPtr& comm) {
  const auto raw_comm = weft::mpi::CommView(MPI_COMM_WORLD).dup("raw");
  const auto count = static_cast<int>(elements);
  std::vector<float> in(static_cast<std::size_t>(elements), 1), out(in), gradient(in), result(in);
  const at::Tensor g = at::ones({elements});
  at::Tensor x = at::randn({elements}).set_requires_grad(true);
  const auto times = weft::benchmarks::compare(
      {{"raw",
        [&] {
          MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, raw_comm.handle());
          MPI_Allreduce(gradient.data(), result.data(), count, MPI_FLOAT, MPI_SUM, raw_comm.handle());
        }},
       {"weft",
        [&] {
          weft::collective::all_reduce(x, comm).backward(g);
          x.mutable_grad().reset();
        }},
       {"view_as",
        [&] {
          x.view_as(x).backward(g);
          x.mutable_grad().reset();
        }}},
      calls_for(elements), repeats_for(elements), comm->origin());
  if (comm->rank() == 0) {
    const std::string name = "collective/all_reduce/cpp/" + std::to_string(elements);
    weft::benchmarks::report(name, times[1], "raw MPI", times[0]);
    weft::benchmarks::report(name, times[1], "view_as", times[2]);
  }
}

void ring(std::int64_t elements, const weft::CommunicatorPtr& comm) {
  const auto raw_comm = weft::mpi::CommView(MPI_COMM_WORLD).dup("raw");
  const auto count = static_cast<int>(elements);
  std::vector<float> in(static_cast<std::size_t>(elements), 1), out(in);
  const int next = (comm->rank() + 1) % comm->size();
  const int previous = (comm->rank() + comm->size() - 1) % comm->size();
  const at::Tensor g = at::ones({elements});
  at::Tensor x = at::randn({elements}).set_requires_grad(true);
  const auto times =
      weft::benchmarks::compare({{"raw",
                                  [&] {
                                    MPI_Sendrecv(in.data(), count, MPI_FLOAT, next, 0, out.data(), count, MPI_FLOAT,
                                                 previous, 0, raw_comm.handle(), MPI_STATUS_IGNORE);
                                    MPI_Sendrecv(in.data(), count, MPI_FLOAT, previous, 0, out.data(), count, MPI_FLOAT,
                                                 next, 0, raw_comm.handle(), MPI_STATUS_IGNORE);
                                  }},
                                 {"weft",
                                  [&] {
                                    weft::collective::sendrecv(x, comm, next, previous).backward(g);
                                    x.mutable_grad().reset();
                                  }}},
                                calls_for(elements), repeats_for(elements), comm->origin());
  if (comm->rank() == 0) {
    weft::benchmarks::report("collective/ring/cpp/" + std::to_string(elements), times[1], "raw MPI", times[0]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const weft::CommunicatorPtr comm = weft::world();
  for (const std::int64_t elements :
       {std::int64_t{1}, std::int64_t{1} << 10, std::int64_t{1} << 16, std::int64_t{1} << 20, std::int64_t{1} << 24}) {
    all_reduce(elements, comm);
    ring(elements, comm);
  }
  return 0;
}
