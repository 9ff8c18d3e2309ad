#include "weft/experiment/training/stage.h"

#include <algorithm>

#include "weft/experiment/file/description.h"

namespace weft::experiment {

std::vector<Stage> stages_of(const ModelSpec& model) {
  std::vector<Stage> stages;
  const Pretraining& wanted = model.pretraining;
  for (std::size_t i = 0; wanted.wanted && i < model.layers.size(); ++i) {
    const LayerSpec& layer = model.layers[i];
    if (!layer.settings->pretrained() || wanted.epochs == 0) continue;
    stages.push_back({Stage::Kind::kPretrain, i, wanted.epochs, 0, "pretrain " + layer.name});
  }
  const std::int64_t alone = std::min(wanted.initial_epochs, model.epochs);
  if (alone > 0) stages.push_back({Stage::Kind::kLastLayer, 0, alone, 0, "last layer"});
  if (model.epochs > alone) stages.push_back({Stage::Kind::kWhole, 0, model.epochs - alone, alone, "train"});
  return stages;
}

}  // namespace weft::experiment
