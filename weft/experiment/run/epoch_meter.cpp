#include "weft/experiment/run/epoch_meter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <sys/resource.h>

#include "weft/collective/all_gather.h"
#include "weft/mpi/profiling.h"

namespace weft::experiment {
namespace {

double memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double seconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void EpochMeter::begin_step() {
  begin_ = Clock::now();
  waited_before_ = mpi::time_waited();
}

void EpochMeter::end_step(std::int64_t images) {
  elapsed_ += Clock::now() - begin_;
  waited_ += mpi::time_waited() - waited_before_;
  images_ += images;
}

EpochMeasurements EpochMeter::finish(const CommunicatorPtr& world) {
  const at::NoGradGuard no_grad;
  const at::Tensor mine = at::tensor({seconds(elapsed_), seconds(elapsed_ - waited_), memory_mib()}).view({1, 3});
  const at::Tensor all = world->size() == 1 ? mine : collective::all_gather(mine, world);
  const auto largest = [&](int column) { return all.select(1, column).max().item<double>(); };
  const double busy = all.select(1, 1).mean().item<double>();
  EpochMeasurements result{.largest_memory_mib = largest(2)};
  if (largest(0) > 0) result.images_per_second = static_cast<double>(images_) / largest(0);
  if (busy > 0) result.load_imbalance = largest(1) / busy;
  *this = {};
  return result;
}

}  // namespace weft::experiment
