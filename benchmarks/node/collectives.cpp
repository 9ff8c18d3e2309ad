// Compares the collectives of weft/node with MPI's on the same memory, and all_reduce with a memory-bandwidth roofline.
//
// mpirun -n 2 collectives [all_reduce,broadcast,...] [largest bytes]
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/timing.h"
#include "weft/memory/block_pool.h"
#include "weft/mpi/environment.h"
#include "weft/node/all_gather.h"
#include "weft/node/all_reduce.h"
#include "weft/node/all_to_all.h"
#include "weft/node/broadcast.h"
#include "weft/node/gather.h"
#include "weft/node/reduce.h"
#include "weft/node/reduce_scatter.h"
#include "weft/node/scatter.h"

namespace {

using weft::benchmarks::Alternative;
using weft::mpi::Datatype;
using weft::mpi::ReduceOp;

constexpr auto kType = Datatype::kFloat32;

// Memory like that of weft's tensors.
class Buffer {
 public:
  explicit Buffer(std::int64_t elements)
      : data_(static_cast<float*>(weft::memory::BlockPool::of_process().allocate(
            std::max<std::size_t>(static_cast<std::size_t>(elements), 1) * sizeof(float)))) {
    std::fill_n(data_, elements, 1.0F);
  }
  ~Buffer() { weft::memory::BlockPool::of_process().deallocate(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  [[nodiscard]] float* data() const { return data_; }

 private:
  float* data_;
};

struct Case {
  std::int64_t elements;  // per rank
  weft::mpi::CommView comm;
  weft::mpi::CommView raw;
  Buffer in{elements};
  Buffer out{elements};

  [[nodiscard]] int count() const { return static_cast<int>(elements); }
  [[nodiscard]] int share() const { return static_cast<int>(elements / comm.size()); }
  [[nodiscard]] std::vector<std::int64_t> shares() const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(comm.size()), share());
  }
};

// The memory traffic of an all-reduce whose communication is free: every rank adds its part of all contributions and
// copies the other parts.
void roofline(const Case& c) {
  const std::int64_t part = c.elements / c.comm.size();
  float* out = c.out.data();
  const float* in = c.in.data();
  for (int k = 1; k < c.comm.size(); ++k) {
    const float* first = k == 1 ? in : out;
    const float* next = in + k * part;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < part; ++i) out[i] = first[i] + next[i];
  }
  std::memcpy(out + part, in + part, static_cast<std::size_t>(c.elements - part) * sizeof(float));
}

// weft's collective, MPI's, and for all_reduce the roofline.
std::vector<Alternative> alternatives(const std::string& name, const Case& c) {
  float* in = c.in.data();
  float* out = c.out.data();
  const int n = c.count();
  const int share = c.share();
  const MPI_Comm raw = c.raw.handle();
  const auto shares = c.shares();
  const std::vector<int> counts(shares.begin(), shares.end());
  if (name == "all_reduce") {
    return {{"weft", [=, &c] { weft::node::all_reduce(in, out, n, kType, ReduceOp::kSum, c.comm, {}); }},
            {"mpi", [=] { MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, raw); }},
            {"roofline", [&c] { roofline(c); }}};
  }
  if (name == "all_reduce_in_place") {
    return {{"weft", [=, &c] { weft::node::all_reduce(in, in, n, kType, ReduceOp::kMax, c.comm, {}); }},
            {"mpi", [=] { MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_FLOAT, MPI_MAX, raw); }}};
  }
  if (name == "reduce") {
    return {{"weft", [=, &c] { weft::node::reduce(in, out, n, kType, ReduceOp::kSum, 0, c.comm, {}); }},
            {"mpi", [=] { MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, 0, raw); }}};
  }
  if (name == "reduce_scatter") {
    return {{"weft", [=, &c] { weft::node::reduce_scatter(in, out, shares, kType, ReduceOp::kSum, c.comm, {}); }},
            {"mpi", [=] { MPI_Reduce_scatter(in, out, counts.data(), MPI_FLOAT, MPI_SUM, raw); }}};
  }
  if (name == "broadcast") {
    return {{"weft", [=, &c] { weft::node::broadcast(in, n, kType, 0, c.comm, {}); }},
            {"mpi", [=] { MPI_Bcast(in, n, MPI_FLOAT, 0, raw); }}};
  }
  if (name == "all_gather") {
    return {{"weft", [=, &c] { weft::node::all_gather(in, out, shares, kType, c.comm, {}); }},
            {"mpi", [=] { MPI_Allgather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, raw); }}};
  }
  if (name == "gather") {
    return {{"weft", [=, &c] { weft::node::gather(in, out, shares, kType, 0, c.comm, {}); }},
            {"mpi", [=] { MPI_Gather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, 0, raw); }}};
  }
  if (name == "scatter") {
    return {{"weft", [=, &c] { weft::node::scatter(in, out, shares, kType, 0, c.comm, {}); }},
            {"mpi", [=] { MPI_Scatter(in, share, MPI_FLOAT, out, share, MPI_FLOAT, 0, raw); }}};
  }
  return {{"weft", [=, &c] { weft::node::all_to_all(in, shares, out, shares, kType, c.comm, {}); }},
          {"mpi", [=] { MPI_Alltoall(in, share, MPI_FLOAT, out, share, MPI_FLOAT, raw); }}};
}

void measure(const std::string& name, std::int64_t bytes, weft::mpi::CommView comm, weft::mpi::CommView raw) {
  const Case c{.elements = bytes / 4, .comm = comm, .raw = raw};
  // Ranks that share cores take tens of microseconds for each call.
  const std::int64_t most_calls = comm.size() > 2 ? 100 : 1000;
  const int calls = static_cast<int>(std::clamp<std::int64_t>((4 << 20) / bytes, 1, most_calls));
  const auto times = weft::benchmarks::compare(alternatives(name, c), calls,
                                               bytes >= 64 << 20  ? 9
                                               : bytes >= 4 << 20 ? 15
                                                                  : 31,
                                               comm);
  if (comm.rank() != 0) return;
  const std::string label = "node/" + name + "/n" + std::to_string(comm.size()) + "/" + std::to_string(bytes);
  weft::benchmarks::report(label, times[0], "MPI", times[1]);
  if (times.size() > 2) weft::benchmarks::report(label, times[0], "roofline", times[2]);
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const auto comm = weft::mpi::CommView::world().dup("node");
  const auto raw = weft::mpi::CommView::world().dup("raw");
  const std::string wanted =
      argc > 1 ? argv[1] : "all_reduce,reduce,reduce_scatter,broadcast,all_gather,gather,scatter,all_to_all";
  const std::int64_t largest = argc > 2 ? std::atoll(argv[2]) : std::int64_t{256} << 20;
  for (std::size_t begin = 0; begin < wanted.size();) {
    const std::size_t end = std::min(wanted.find(',', begin), wanted.size());
    for (std::int64_t bytes = 4; bytes <= largest; bytes *= 4) {
      measure(wanted.substr(begin, end - begin), bytes, comm, raw);
    }
    begin = end + 1;
  }
  return 0;
}
