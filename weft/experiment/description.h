// An experiment as its file describes it, whatever the file's form: plain values, validated, nothing built yet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/experiment/document.h"

namespace weft::experiment {

using Sizes = std::vector<std::int64_t>;

enum class Activation : std::uint8_t { kLinear, kLogistic, kRectified, kTanh };

// The first values of weights. Drawn whole from the seed and then cut, so that a split run begins like the unsplit one.
struct WeightInit {
  enum class Kind : std::uint8_t { kUniform, kNormal, kNodeNormalized, kFanIn };
  Kind kind = Kind::kFanIn;
  double low = 0, high = 1;   // uniform
  double loc = 0, scale = 1;  // normal; node_normalized takes the scale
  double bias = 0;            // all biases
};

// linear_monotone goes from `initial` at `start` to `saturated` at `saturate`, in epochs; constant has all equal.
struct MomentumSchedule {
  double initial = 0;
  double saturated = 0;
  std::int64_t start = 0;
  std::int64_t saturate = 0;
  [[nodiscard]] double at(std::int64_t epoch) const;
};

// The factor of the learning rate.
struct RateSchedule {
  enum class Kind : std::uint8_t { kConstant, kStep, kExponential, kCosine };
  Kind kind = Kind::kConstant;
  std::vector<std::int64_t> steps{};  // kStep: the epochs at which it is multiplied by `gamma`
  double gamma = 1;                   // kStep, kExponential
  double last = 0;                    // kCosine: the factor at the end
  [[nodiscard]] double at(double epoch, std::int64_t epochs) const;
};

struct LearningRule {
  enum class Kind : std::uint8_t { kGradientDescent, kAdam, kAdamW };
  Kind kind = Kind::kGradientDescent;
  double rate = 0.01;
  MomentumSchedule momentum{};
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  RateSchedule schedule{};
};

enum class LayerKind : std::uint8_t {
  kConvolution,
  kMaxPool,
  kAveragePool,
  kNormPool,  // root of the sum of squares
  kContrastNorm,
  kLocalFilter,
  kLinear,
  kBatchNorm,
  kDropout,
  kActivation,
  kGlobalAverage,
  kResidualStack,  // many equal residual layers, which layer_parallel may spread over the ranks
};

// How a residual stack is solved over the ranks; one level runs layer after layer.
struct LayerParallelSpec {
  std::int64_t levels = 1;
  std::int64_t coarsening = 4;
  std::int64_t iterations = 2;
};

struct LayerSpec {
  LayerKind kind = LayerKind::kLinear;
  std::string name{};
  Place place{};
  bool split = true;  // neon's Dist suffix
  // What the file says of its input; sizes.h compares it with what the layers before give.
  std::optional<std::int64_t> declared_maps{};
  std::optional<Sizes> declared_shape{};
  std::optional<std::int64_t> declared_inputs{};
  std::int64_t outputs = 0;  // maps or nodes
  Sizes kernel{1, 1};
  Sizes stride{1, 1};
  Sizes padding{0, 0};
  bool bias = false;
  Activation activation = Activation::kLinear;
  WeightInit init{};
  std::optional<LearningRule> rule{};  // else the model's
  bool pretraining = false;            // a local filter's
  double sparsity = 0;
  bool tied_weights = false;
  double pretrain_rate = 0;
  double probability = 0.5;  // dropout's
  std::int64_t depth = 0;    // a residual stack's
  double time = 1;           // a residual stack's; each layer adds time / depth of its output
  LayerParallelSpec parallel{};
};

enum class Cost : std::uint8_t { kBinaryCrossEntropy, kSumSquared, kSoftmaxCrossEntropy };

struct Pretraining {
  bool wanted = false;
  std::int64_t epochs = 0;
  std::int64_t initial_epochs = 0;  // of the last layer alone, before the whole stack
  bool spot_check = false;
  bool visualize = false;
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
  std::vector<LayerSpec> layers{};
};

struct DatasetSpec {
  std::string kind = "mnist";  // mnist, cifar10, toy_images
  Place place{};
  bool split = true;
  std::filesystem::path folder{};     // empty: where weft/data looks
  bool folder_may_be_absent = false;  // neon\'s files name their authors\' folders
  double sample = 1;                  // the part of the training images that is used
  std::string cache{};                // serialized_path, with {rank} and {size}
  std::optional<std::int64_t> test_images{};
  bool shuffle = false;        // between epochs
  std::int64_t images = 1000;  // toy_images': how many, and of what size
  Sizes shape{8, 8};
  std::int64_t maps = 1;
  std::int64_t classes = 10;
};

// How ranks share the work. Without a grid: the tiles as square as the number of ranks allows.
struct SplitSpec {
  enum class Mode : std::uint8_t { kNone, kTiles, kBatch };
  Mode mode = Mode::kTiles;
  std::optional<Sizes> grid{};
  std::int64_t batch_parts = 1;  // tiles times micro-batches; kBatch takes all ranks
  bool strict_neon = false;      // 1, 4 or 16 ranks in a square, sizes that divide
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
