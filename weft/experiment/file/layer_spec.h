// A layer as an experiment's file describes it, in either form. Nothing is built yet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/experiment/file/document.h"
#include "weft/experiment/file/learning_rule.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {

using Sizes = std::vector<std::int64_t>;

// A field of `maps` channels, or (shape empty) a vector of `maps` values.
struct Extent {
  std::int64_t maps = 0;
  Sizes shape{};
  bool flat = false;  // a field that the next layers read as a vector of all its values
  bool operator==(const Extent&) const = default;
  [[nodiscard]] std::int64_t values() const;
  [[nodiscard]] std::string describe() const;
};

// Input and output of a layer.
struct LayerSizes {
  Extent in;
  Extent out{};
  std::vector<std::vector<LayerSizes>> branches{};  // sizes of the layers in each branch
};

struct Activation {
  enum Kind : std::uint8_t {
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
  Kind kind = kLinear;
  double below = 0;  // factor of negative values: the slope of leaky_relu, the alpha of elu
};

// The initial values of weights. Every rank draws the whole tensor and keeps its part, so that a split run starts like
// an unsplit one.
struct WeightInit {
  enum class Kind : std::uint8_t { kUniform, kNormal, kNodeNormalized, kFanIn };
  Kind kind = Kind::kFanIn;
  double low = 0, high = 1;   // uniform
  double loc = 0, scale = 1;  // normal; node_normalized uses the scale
  double bias = 0;            // value of all biases
  bool draws_bias = false;    // draws biases like weights instead
};

class LayerSettings;
struct LayerType;

struct LayerSpec {
  const LayerType* type = nullptr;
  std::shared_ptr<LayerSettings> settings{};
  std::string name{};
  Place place{};
  bool split = true;  // neon's form: whether the class has the suffix Dist
  // The input that the file declares; layer_sizes() compares it with the output of the layers before.
  std::optional<std::int64_t> declared_maps{};
  std::optional<Sizes> declared_shape{};
  std::optional<std::int64_t> declared_inputs{};
  bool counts_bias = false;            // declared_inputs may include neon's constant input of the bias
  std::optional<LearningRule> rule{};  // overrides the model's rule

  // Returns true if the layer has the type of this name in weft's own form.
  [[nodiscard]] bool is(const std::string& type_name) const;
};

// Layers inside a layer. Their names start with the name of the outer layer and `prefix`.
struct LayerBranch {
  std::string prefix{};
  std::vector<LayerSpec> layers{};
};

// Reports problems at the place of a layer.
class LayerProblems {
 public:
  LayerProblems(const LayerSpec& layer, Problems& problems) : layer_(layer), problems_(problems) {}
  // Adds "expected <expected> in layer '<name>', got <got>".
  void expected(const std::string& expected, const std::string& got) const;
  // Adds `text`.
  void add(const std::string& text) const { problems_.add(layer_.place, text); }
  [[nodiscard]] const std::string& name() const noexcept { return layer_.name; }

 private:
  const LayerSpec& layer_;
  Problems& problems_;
};

struct BuiltLayer;    // weft/experiment/layers/layer_context.h
struct LayerContext;  // likewise

// The settings of one layer. Each type of layer derives its own class.
class LayerSettings {
 public:
  virtual ~LayerSettings() = default;

  // Returns the output. `sizes` contains the input and the sizes of the branches. Reports sizes that do not fit. By
  // default, the output has the size of the input.
  [[nodiscard]] virtual Extent output(const LayerSizes& sizes, const LayerProblems& /*problems*/) const {
    return sizes.in;
  }
  // Returns the number of trained weights, for `weft check`.
  [[nodiscard]] virtual std::int64_t parameter_count(const LayerSizes& /*sizes*/) const { return 0; }
  // Builds the layer for this rank. Collective over the mesh.
  [[nodiscard]] virtual BuiltLayer build(const LayerContext& context) const = 0;

  // Returns true if the input must be a field; then output() is called with a field only.
  [[nodiscard]] virtual bool needs_field() const { return false; }
  [[nodiscard]] virtual Activation activation() const { return {}; }
  // Removes a logistic activation, so that the layer returns logits. Returns false if the layer cannot do so.
  virtual bool remove_logistic() { return false; }
  [[nodiscard]] virtual bool fully_connected() const { return false; }
  // Returns true if layer-wise pre-training trains this layer.
  [[nodiscard]] virtual bool pretrained() const { return false; }
  // Returns the number of layers that can be spread over the ranks; their weights are named <name>.0, <name>.1, ...
  [[nodiscard]] virtual std::int64_t depth() const { return 0; }
  // Returns true if the layer only works on ranks that share no batch or image.
  [[nodiscard]] virtual bool needs_unsplit_ranks() const { return false; }
  // Returns true if every rank gets the whole output vector, for `weft check`.
  [[nodiscard]] virtual bool output_is_whole(bool input_is_whole, bool /*linear_follows*/) const {
    return input_is_whole;
  }
  [[nodiscard]] virtual std::span<LayerBranch> branches() { return {}; }
};

using LayerSettingsPtr = std::shared_ptr<LayerSettings>;

}  // namespace weft::experiment
