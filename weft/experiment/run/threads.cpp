#include "weft/experiment/run/threads.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "weft/collective/all_gather.h"

namespace weft::experiment {
namespace {

// The machine of a rank and the cores that the rank may run on.
struct Cores {
  std::array<char, 64> host{};
  cpu_set_t set{};

  [[nodiscard]] bool overlaps(const Cores& other) const {
    cpu_set_t shared;
    CPU_AND(&shared, &set, &other.set);
    return host == other.host && CPU_COUNT(&shared) > 0;
  }
};

Cores own_cores() {
  Cores cores;
  gethostname(cores.host.data(), cores.host.size() - 1);
  CPU_ZERO(&cores.set);
  if (sched_getaffinity(0, sizeof cores.set, &cores.set) != 0) CPU_SET(0, &cores.set);
  return cores;
}

int share_of_cores(const CommunicatorPtr& world) {
  const at::NoGradGuard no_grad;
  const Cores mine = own_cores();
  at::Tensor row = at::empty({1, sizeof mine}, at::kByte);
  std::memcpy(row.mutable_data_ptr(), &mine, sizeof mine);
  const at::Tensor all = world->size() == 1 ? row : collective::all_gather(row, world);
  int ranks = 0;
  for (std::int64_t i = 0; i < all.size(0); ++i) {
    Cores other;
    std::memcpy(&other, all[i].const_data_ptr(), sizeof other);
    if (mine.overlaps(other)) ++ranks;
  }
  return std::max(1, CPU_COUNT(&mine.set) / std::max(1, ranks));
}

}  // namespace

int set_threads(std::optional<int> requested, const CommunicatorPtr& world) {
  // torch itself would limit the variable to the number of cores.
  const char* const variable = std::getenv("OMP_NUM_THREADS");
  const int wanted = variable == nullptr ? 0 : std::atoi(variable);
  const int share = share_of_cores(world);  // collective, also if another rank has the variable
  at::set_num_threads(requested.value_or(wanted > 0 ? wanted : share));
  return at::get_num_threads();
}

}  // namespace weft::experiment
