// Throughput (images/s) of reading a set whole, as tiles, as shards and from a cache, and of making batches with and
// without prefetching during a computation. Uses MNIST from WEFT_DATA, or the sample.
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "benchmarks/timing.h"
#include "weft/data/cache.h"
#include "weft/data/known_sets.h"
#include "weft/data/loader.h"
#include "weft/mpi/environment.h"

namespace {

using namespace weft::data;
using weft::benchmarks::compare;
using weft::benchmarks::report;

double images_per_second(std::int64_t images, double microseconds) { return 1e6 * images / microseconds; }

void measure_reading(const ImageOrigin& set, weft::mpi::CommView comm) {
  const auto folder = std::filesystem::temp_directory_path() / ("weft-loading-" + std::to_string(getpid()));
  const CacheOptions cache{(folder / "part_{rank}.bin").string()};
  const PartOptions whole, tiles{.split = Split::into_tiles(2, 2)}, shards{.split = Split::into_shards(4)};
  const std::int64_t count = load_part(set, tiles, cache).whole.count;
  const auto times = compare({{"whole", [&] { (void)load_part(set, whole); }},
                              {"tile", [&] { (void)load_part(set, tiles); }},
                              {"shard", [&] { (void)load_part(set, shards); }},
                              {"cache", [&] { (void)load_part(set, tiles, cache); }}},
                             1, 7, comm);
  std::filesystem::remove_all(folder);
  const double base = images_per_second(count, times[0]);
  report("data/read/tile_of_4", images_per_second(count, times[1]), "whole images", base, "images/s");
  report("data/read/shard_of_4", images_per_second(count, times[2]), "whole images", base, "images/s");
  report("data/read/tile_from_cache", images_per_second(count, times[3]), "whole images", base, "images/s");
}

// Simulates a training step: about one millisecond of matrix multiplication.
void compute(const at::Tensor& matrix) { (void)at::mm(matrix, matrix); }

void epoch(Loader& loader, const at::Tensor& matrix) {
  loader.start(0);
  while (loader.next()) compute(matrix);
}

void measure_batches(const ImageOrigin& set, weft::mpi::CommView comm) {
  const PartOptions options;
  const ImagePart part = load_part(set, options);
  Loader plain(part, options, {.prefetch = 0}), ahead(part, options, {.prefetch = 2});
  const at::Tensor matrix = at::ones({256, 256});
  const auto times = compare({{"alone",
                               [&] {
                                 plain.start(0);
                                 while (plain.next()) {
                                 }
                               }},
                              {"compute",
                               [&] {
                                 for (std::int64_t i = 0; i < plain.batches(); ++i) compute(matrix);
                               }},
                              {"plain", [&] { epoch(plain, matrix); }},
                              {"prefetched", [&] { epoch(ahead, matrix); }}},
                             1, 9, comm);
  const auto rate = [&](std::size_t i) { return images_per_second(part.whole.count, times[i]); };
  report("data/batches/no_prefetch", rate(2), "computing without data", rate(1), "images/s");
  report("data/batches/prefetch", rate(3), "computing without data", rate(1), "images/s");
  report("data/batches/alone", rate(0), "computing without data", rate(1), "images/s");
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const ImageOrigin set = mnist_set().train;
  measure_reading(set, weft::mpi::CommView::world());
  measure_batches(set, weft::mpi::CommView::world());
  return 0;
}
