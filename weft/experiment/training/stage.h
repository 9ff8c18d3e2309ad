// The stages of training: pre-training of filters, the last layer alone, the whole network. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::experiment {

struct ModelSpec;

// A part of training with its own number of epochs.
struct Stage {
  enum class Kind : std::uint8_t { kPretrain, kLastLayer, kWhole };
  Kind kind = Kind::kWhole;
  std::size_t layer = 0;  // kPretrain: the pretrained layer
  std::int64_t epochs = 0;
  std::int64_t first_epoch = 0;  // supervised epochs before this stage
  std::string name{};
};

// Returns the stages of a model: pre-training of each local filter, then the last layer alone, then the whole network.
// Models without pre-training have only the last stage.
[[nodiscard]] std::vector<Stage> stages_of(const ModelSpec& model);

}  // namespace weft::experiment
