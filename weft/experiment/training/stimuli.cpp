#include "weft/experiment/training/stimuli.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>

#include "weft/collective/all_gather.h"
#include "weft/collective/all_reduce.h"
#include "weft/collective/autograd/backward.h"
#include "weft/experiment/file/description.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/weights.h"

namespace weft::experiment {
namespace {

using at::Tensor;
using spatial::DistTensor;

constexpr int kAscents = 60;
constexpr double kStep = 0.2;

DistTensor units_of(const Network& network, const Activations& input) {
  return spatial::nn::tiles_of(network.run(input, 0, network.size() - 1, {}), "the search for the best units");
}

// Returns the global number of each unit in this rank's tile.
std::vector<std::int64_t> numbers_of(const DistTensor& units) {
  const auto sizes = units.sizes();  // [images, maps, rows, columns]
  const auto tile = units.layout->tile();
  std::vector<std::int64_t> numbers;
  for (std::int64_t map = 0; map < sizes[1]; ++map) {
    for (std::int64_t row = tile.ranges[0].begin; row < tile.ranges[0].end; ++row) {
      for (std::int64_t column = tile.ranges[1].begin; column < tile.ranges[1].end; ++column) {
        numbers.push_back((map * sizes[2] + row) * sizes[3] + column);
      }
    }
  }
  return numbers;
}

struct Responses {
  Tensor values;  // [units of this rank's tile, images]
  Tensor labels;
  std::vector<std::int64_t> numbers;
};

Responses responses(const Mesh& mesh, const Network& network, data::Loader& images) {
  const at::NoGradGuard no_grad;
  Responses result;
  std::vector<Tensor> values;
  std::vector<Tensor> labels;
  images.start(0);
  while (const auto batch = images.next()) {
    const DistTensor units = units_of(network, network.input(batch->images));
    if (result.numbers.empty()) result.numbers = numbers_of(units);
    values.push_back(units.local.flatten(1));
    labels.push_back(batch->labels);
  }
  result.values = collective::all_gather(at::cat(values), mesh.shards(), 0).t().contiguous();
  result.labels = collective::all_gather(at::cat(labels), mesh.shards(), 0);
  return result;
}

bool has_both(const Tensor& wanted) { return wanted.any().item<bool>() && !wanted.all().item<bool>(); }

// Normalizes each image to length 1 over all tiles. Images of zeros stay.
Tensor unit_lengths(const Tensor& tiles, const CommunicatorPtr& comm) {
  const Tensor squares = collective::all_reduce(tiles.mul(tiles).flatten(1).sum(1).to(at::kDouble), comm);
  const Tensor lengths = squares.sqrt().masked_fill(squares.eq(0), 1).to(tiles.scalar_type());
  return tiles.div(lengths.view({-1, 1, 1, 1}));
}

// Returns the sum of the responses of each unit to its own image, over the units of this rank's tile; nothing without
// such units. The other ranks only take part in the communication.
std::optional<Tensor> own_responses(const DistTensor& responses, const std::vector<std::int64_t>& units) {
  const auto numbers = numbers_of(responses);
  std::optional<Tensor> sum;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto at = std::find(numbers.begin(), numbers.end(), units[i]);
    if (at == numbers.end()) continue;
    const Tensor own =
        responses.local.select(0, static_cast<std::int64_t>(i)).flatten().select(0, at - numbers.begin());
    sum = sum ? sum->add(own) : own;
  }
  return sum;
}

}  // namespace

Tensor area_under_curve(const Tensor& values, const Tensor& wanted) {
  const Tensor mine = values.masked_select(wanted).view({values.size(0), -1});
  const Tensor others = std::get<0>(values.masked_select(wanted.logical_not()).view({values.size(0), -1}).sort(-1));
  const Tensor below = at::searchsorted(others, mine, false, false);
  const Tensor not_above = at::searchsorted(others, mine, false, true);
  return below.add(not_above).to(at::kDouble).mean(-1).div(2.0 * static_cast<double>(others.size(-1)));
}

std::vector<double> areas_of(const Mesh& mesh, const Network& network, const std::vector<BestUnit>& units,
                             data::Loader& images) {
  const Responses found = responses(mesh, network, images);
  const at::NoGradGuard no_grad;
  Tensor areas = at::zeros({static_cast<std::int64_t>(units.size())}, at::kDouble);
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto own = std::find(found.numbers.begin(), found.numbers.end(), units[i].number);
    const Tensor wanted = found.labels.eq(units[i].label);
    if (own == found.numbers.end() || !has_both(wanted)) continue;
    const Tensor values = found.values.narrow(0, own - found.numbers.begin(), 1);
    areas[static_cast<std::int64_t>(i)] = area_under_curve(values, wanted)[0];
  }
  areas = collective::all_reduce(areas, mesh.tiles()->comm());  // each unit has one owner
  const auto* data = areas.const_data_ptr<double>();
  std::vector<double> result(data, data + areas.numel());
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (!has_both(found.labels.eq(units[i].label))) result[i] = std::numeric_limits<double>::quiet_NaN();
  }
  return result;
}

std::vector<BestUnit> spot_check(const Experiment& experiment, const Mesh& mesh, const Network& network,
                                 data::Loader& images) {
  const Responses found = responses(mesh, network, images);
  const at::NoGradGuard no_grad;
  const std::int64_t classes = class_count(experiment.dataset);
  Tensor mine = at::zeros({1, classes, 2}, at::kDouble);
  for (std::int64_t label = 0; label < classes; ++label) {
    const Tensor wanted = found.labels.eq(label);
    if (found.numbers.empty() || !has_both(wanted)) continue;
    const Tensor areas = area_under_curve(found.values, wanted);
    const auto best = areas.argmax().item<std::int64_t>();
    mine[0][label][0] = areas[best];
    mine[0][label][1] = static_cast<double>(found.numbers[static_cast<std::size_t>(best)]);
  }
  const Tensor all = collective::all_gather(mine, mesh.tiles()->comm(), 0);
  std::vector<BestUnit> result;
  for (std::int64_t label = 0; label < classes; ++label) {
    if (!has_both(found.labels.eq(label))) continue;
    const Tensor areas = all.select(1, label).select(1, 0);
    const auto rank = areas.argmax().item<std::int64_t>();
    result.push_back(
        {label, areas[rank].item<double>(), static_cast<std::int64_t>(all[rank][label][1].item<double>())});
  }
  return result;
}

Tensor optimal_stimuli(const Experiment& experiment, const Mesh& mesh, const Network& network,
                       const std::vector<std::int64_t>& units) {
  const Extent image = image_extent(experiment.dataset);
  const CommunicatorPtr& comm = mesh.tiles()->comm();
  const auto layout = mesh.layout(image.shape);
  std::vector<Tensor> starts;
  for (const std::int64_t unit : units) {
    auto generator = layer_generator(experiment.seed, network.size() + static_cast<std::size_t>(unit));
    starts.push_back(initial_weights({.kind = WeightInit::Kind::kUniform, .low = 0, .high = 1},
                                     {1, image.maps, image.shape[0], image.shape[1]}, 1,
                                     experiment.float64 ? at::kDouble : at::kFloat, generator));
  }
  Tensor tiles = unit_lengths(spatial::tile_of(at::cat(starts), layout).local, comm);
  for (int i = 0; i < kAscents; ++i) {
    const Tensor x = tiles.detach().clone().set_requires_grad(true);
    const DistTensor responses = units_of(network, network.input(x));
    const Tensor gradient = collective::grad(own_responses(responses, units), {x}).front();
    const at::NoGradGuard no_grad;
    tiles = unit_lengths(tiles.add(unit_lengths(gradient, comm), kStep), comm);
  }
  const at::NoGradGuard no_grad;
  return spatial::gather({tiles, layout}, 0);
}

}  // namespace weft::experiment
