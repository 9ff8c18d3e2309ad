#include "weft/spatial/nn/halo_region.h"

#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <algorithm>

#include "weft/collective/all_reduce.h"
#include "weft/spatial/nn/layers.h"

namespace weft::spatial::nn {
namespace {

using at::Tensor;

double median(std::vector<double>& samples) {
  const auto middle = samples.begin() + std::ssize(samples) / 2;
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

// The index of the only layer that reads the output of `i` and joins its region; -1 if no such layer exists.
std::int64_t successor(const std::vector<RegionCandidate>& candidates, std::int64_t i) {
  if (candidates[static_cast<std::size_t>(i)].users != 1) return -1;
  const auto next = std::find_if(candidates.begin() + i + 1, candidates.end(),
                                 [i](const RegionCandidate& candidate) { return candidate.source == i; });
  return next != candidates.end() && next->joins ? next - candidates.begin() : -1;
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  // Python's form of region_chains(): one entry per layer in each list. `windows` has six numbers a dimension, as
  // halo_region takes them, and is empty for layers without windows.
  m.def("halo_region_chains", [](const Sizes& sources, const Sizes& users, const Sizes& joins,
                                 const std::vector<Sizes>& windows, const Sizes& extents) {
    TORCH_CHECK_VALUE(
        users.size() == sources.size() && joins.size() == sources.size() && windows.size() == sources.size(),
        "weft: halo_region_chains expects lists of one length");
    std::vector<RegionCandidate> candidates;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const bool exchanges = needs_halo(windows_of_numbers(windows[i], extents.size()), extents);
      candidates.push_back({sources[i], users[i], joins[i] != 0, exchanges});
    }
    return region_chains(candidates);
  });
  m.def("halo_region_timing_rounds", [] { return kTimingRounds; });
  m.def("halo_region_is_faster",
        [](const std::vector<double>& candidate, const std::vector<double>& present, std::int64_t comm) {
          return is_faster(candidate, present, Communicator::find(comm));
        });
}

}  // namespace

std::vector<Sizes> region_chains(const std::vector<RegionCandidate>& candidates) {
  const auto exchanges = [&](std::int64_t i) {
    return candidates[static_cast<std::size_t>(i)].joins && candidates[static_cast<std::size_t>(i)].exchanges;
  };
  std::vector<Sizes> regions;
  std::vector<bool> taken(candidates.size(), false);
  for (std::int64_t first = 0; first < std::ssize(candidates); ++first) {
    if (taken[static_cast<std::size_t>(first)] || !exchanges(first)) continue;
    Sizes chain;
    for (std::int64_t i = first; i >= 0; i = successor(candidates, i)) chain.push_back(i);
    while (!exchanges(chain.back())) chain.pop_back();
    for (const std::int64_t i : chain) taken[static_cast<std::size_t>(i)] = true;
    if (std::count_if(chain.begin(), chain.end(), exchanges) > 1) regions.push_back(std::move(chain));
  }
  return regions;
}

bool is_faster(std::vector<double> candidate, std::vector<double> present, const CommunicatorPtr& comm) {
  const Tensor medians = at::tensor({median(candidate), median(present)}, at::kDouble);
  const Tensor slowest = collective::all_reduce(medians, comm, mpi::ReduceOp::kMax);
  return slowest[0].item<double>() < slowest[1].item<double>();
}

LayerPtr halo_region(std::vector<RegionLayer> layers, const LayoutPtr& layout, LayerPtr one_by_one) {
  std::vector<std::vector<partition::Window>> windows;
  for (const RegionLayer& layer : layers) {
    if (!layer.windows.empty()) windows.push_back(layer.windows);
  }
  const auto region = c10::make_intrusive<Region>(layout, windows);
  return function_layer([layers = std::move(layers), layout, region, one_by_one = std::move(one_by_one)](
                            const Activations& x, const ForwardContext& context) -> Activations {
    const auto* tiles = std::get_if<DistTensor>(&x);
    if (tiles == nullptr || tiles->layout->tiling() != layout->tiling()) return one_by_one->forward(x, context);
    return run_region(*tiles, *region, layers);
  });
}

}  // namespace weft::spatial::nn
