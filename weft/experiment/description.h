// An experiment as its file describes it, whatever the file's form: plain values, validated, nothing built yet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/experiment/layer_spec.h"

namespace weft::experiment {

enum class Cost : std::uint8_t { kBinaryCrossEntropy, kSumSquared, kSoftmaxCrossEntropy };

struct Pretraining {
  bool wanted = false;
  std::int64_t epochs = 0;
  std::int64_t initial_epochs = 0;  // of the last layer alone, before the whole stack
  bool spot_check = false;
  bool visualize = false;
};

// Measured besides cost and error.
struct Metric {
  std::string name{};
  std::int64_t largest = 0;  // images whose class is not among so many largest outputs; 0: the area under the curve
  Place place{};
};

struct ModelSpec {
  std::string name{};  // Convnet, MLP, GB, or the plain form's own
  Place place{};
  bool split = true;
  std::int64_t epochs = 1;
  std::int64_t batch_size = 100;
  LearningRule rule{};
  Cost cost = Cost::kBinaryCrossEntropy;
  Pretraining pretraining{};
  std::vector<Metric> metrics{};
  std::vector<LayerSpec> layers{};
};

struct DatasetSpec {
  std::string kind = "mnist";  // mnist, cifar10; made up: toy_images, blobs, shapes
  Place place{};
  bool split = true;
  std::filesystem::path folder{};     // empty: where weft/data looks
  bool folder_may_be_absent = false;  // neon's files name their authors' folders
  double sample = 1;                  // the part of the training images that is used
  std::string cache{};                // serialized_path, with {rank} and {size}
  std::optional<std::int64_t> test_images{};
  std::optional<std::int64_t> batch_size{};  // neon's datapar: the whole batch; the model then names a process's part
  bool shuffle = false;                      // between epochs
  std::int64_t prefetch = 2;                 // batches made ahead; 0: none, and no thread
  std::int64_t images = 1000;                // of made-up sets: how many, and of what size
  Sizes shape{8, 8};
  std::int64_t maps = 1;
  std::int64_t classes = 10;

  [[nodiscard]] bool made_up() const { return kind != "mnist" && kind != "cifar10"; }
};

// How ranks share the work. Without a grid: the tiles as square as the number of ranks and the images allow.
struct SplitSpec {
  enum class Mode : std::uint8_t { kNone, kTiles, kBatch };
  Mode mode = Mode::kTiles;
  std::optional<Sizes> grid{};
  std::int64_t batch_parts = 1;  // tiles times micro-batches; kBatch takes all ranks
  bool strict_neon = false;      // 1, 4 or 16 ranks; neon, too, gave what does not divide to the first tiles
};

struct Experiment {
  std::string file{};
  std::string name{};
  Place place{};
  std::uint64_t seed = 0;
  bool float64 = false;
  bool predict = true;  // evaluate the errors, not only fit
  DatasetSpec dataset{};
  SplitSpec split{};
  ModelSpec model{};
  std::int64_t checkpoint_steps = 0;  // besides those at the end of epochs; 0: none
};

}  // namespace weft::experiment
