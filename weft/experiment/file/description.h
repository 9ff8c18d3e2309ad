// The validated description of an experiment, independent of the file format. Plain values only; nothing is built yet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/experiment/file/layer_spec.h"

namespace weft::experiment {

enum class Cost : std::uint8_t {
  kBinaryCrossEntropy,    // of logistic outputs, with neon's formula: saturated outputs have no gradient
  kLogisticCrossEntropy,  // the same cost, computed from the logits
  kSumSquared,
  kSoftmaxCrossEntropy,
};

struct Pretraining {
  bool wanted = false;
  std::int64_t epochs = 0;
  std::int64_t initial_epochs = 0;  // epochs that train only the last layer, before the whole network
  bool spot_check = false;
  bool visualize = false;
};

// A metric in addition to cost and error.
struct Metric {
  std::string name{};
  std::int64_t largest = 0;  // k of the top-k error; 0: area under the ROC curve
  Place place{};
};

struct ModelSpec {
  std::string name{};  // Convnet, MLP or GB; "network" in the plain form
  Place place{};
  bool split = true;
  std::int64_t epochs = 1;
  std::int64_t batch_size = 100;
  LearningRule rule{};
  Cost cost = Cost::kBinaryCrossEntropy;
  bool neon_derivative = false;  // the file requires neon's formula for the gradient of cross entropy
  Pretraining pretraining{};
  std::vector<Metric> metrics{};
  std::vector<LayerSpec> layers{};
};

struct DatasetSpec {
  std::string kind = "mnist";  // mnist, cifar10, or synthetic: toy_images, blobs, shapes
  Place place{};
  bool split = true;
  std::filesystem::path folder{};     // empty: the search path of weft/data
  bool folder_may_be_absent = false;  // neon files contain the paths of their authors
  double sample = 1;                  // fraction of the training images
  std::string cache{};                // path of the cache, with {rank} and {size}; neon: serialized_path
  std::optional<std::int64_t> test_images{};
  std::optional<std::int64_t> batch_size{};  // neon's datapar: size of the global batch; the model's is per rank
  bool shuffle = false;                      // reshuffle for every epoch
  std::int64_t prefetch = 2;                 // batches prepared in advance; 0: no prefetch thread
  std::int64_t images = 1000;                // number of synthetic images; shape and maps are their size
  Sizes shape{8, 8};
  std::int64_t maps = 1;
  std::int64_t classes = 10;

  [[nodiscard]] bool made_up() const { return kind != "mnist" && kind != "cifar10"; }
};

// How ranks share the work. Without a grid, tiles are as square as the rank count and the images allow.
struct SplitSpec {
  enum class Mode : std::uint8_t { kNone, kTiles, kBatch };
  Mode mode = Mode::kTiles;
  std::optional<Sizes> grid{};
  std::int64_t batch_parts = 1;  // groups that share a batch; kBatch: one per rank
  bool strict_neon = false;      // allow only neon's numbers of ranks: 1, 4 or 16
};

struct Experiment {
  std::string file{};
  std::string name{};
  Place place{};
  std::uint64_t seed = 0;
  bool float64 = false;
  bool predict = true;  // evaluate the test error
  DatasetSpec dataset{};
  SplitSpec split{};
  ModelSpec model{};
  std::int64_t checkpoint_steps = 0;  // interval of checkpoints within epochs; 0: only at the end of epochs
  std::vector<std::string> notes{};   // parts of the file that have no effect
};

}  // namespace weft::experiment
