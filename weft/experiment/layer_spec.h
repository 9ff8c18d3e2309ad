// A layer as an experiment's file describes it, whatever the file's form: plain values, nothing built yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/experiment/document.h"
#include "weft/experiment/learning_rule.h"

namespace weft::experiment {

using Sizes = std::vector<std::int64_t>;

enum class Activation : std::uint8_t {
  kLinear,
  kLogistic,
  kRectified,
  kTanh,
  kGelu,
  kLeakyRectified,
  kElu,
  kSilu,
  kSoftplus,
};

// The first values of weights. Drawn whole from the seed and then cut, so that a split run begins like the unsplit one.
struct WeightInit {
  enum class Kind : std::uint8_t { kUniform, kNormal, kNodeNormalized, kFanIn };
  Kind kind = Kind::kFanIn;
  double low = 0, high = 1;   // uniform
  double loc = 0, scale = 1;  // normal; node_normalized takes the scale
  double bias = 0;            // all biases,
  bool draws_bias = false;    // or drawn as the weights are
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
  kTransposedConvolution,
  kUpsample,
  kAdaptiveAveragePool,
  kAdaptiveMaxPool,
  kFlatten,  // marks the field as a vector; its values stay where they are
  kGroupNorm,
  kInstanceNorm,
  kLayerNorm,
  kResidualBlock,  // layers of its own beside a shortcut, added
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
  bool counts_bias = false;  // one more input may be declared: neon's bias is a weight of an input that is always 1
  std::int64_t outputs = 0;  // maps or nodes
  Sizes kernel{1, 1};
  Sizes stride{1, 1};
  Sizes padding{0, 0};
  bool bias = false;
  Activation activation = Activation::kLinear;
  double below = 0;  // what values below 0 are multiplied by: leaky_relu's slope, elu's alpha
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
  Sizes dilation{1, 1};        // a convolution's
  std::int64_t groups = 1;     // a convolution's, or of channels that are normalised together
  Sizes output_padding{0, 0};  // a transposed convolution's
  Sizes size{};                // of outputs, of upsampling and adaptive pooling
  Sizes scale{};               // of upsampling, in place of a size
  std::string resampling = "nearest";
  bool align_corners = false;
  bool counts_padding = true;         // an average's: as values of 0
  bool affine = true;                 // whether what is normalised gets a scale and a shift
  double epsilon = 1e-5;              // what normalisation adds to a variance
  std::vector<LayerSpec> body{};      // a residual block's
  std::vector<LayerSpec> shortcut{};  // beside them; none: the block's input as it is
};

}  // namespace weft::experiment
