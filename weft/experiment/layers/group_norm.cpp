// Group and instance normalization: statistics of each image and group of maps.
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/image_norm.h"
#include "weft/spatial/nn/layers.h"
#include "weft/spatial/normalization.h"

namespace weft::experiment {
namespace {

// Without `groups`, each map is a group: instance normalization.
class GroupNormSettings final : public LayerSettings {
 public:
  GroupNormSettings(std::optional<std::int64_t> groups, AffineSettings affine) : groups_(groups), affine_(affine) {}

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    const std::int64_t maps = sizes.in.maps;
    if (groups_ && maps % *groups_ != 0)
      problems.expected("groups that divide " + std::to_string(maps) + " maps", std::to_string(*groups_));
    if (!groups_ && sizes.in.values() == maps)
      problems.expected("maps of more than one cell, because one cell has no variance", sizes.in.describe());
    return sizes.in;
  }
  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override {
    return affine_.wanted ? 2 * sizes.in.maps : 0;
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    const std::int64_t maps = context.sizes.in.maps;
    const auto parameters = affine_parameters(context, affine_, {maps});
    const auto layer = spatial::nn::on_tiles(
        "group normalization", [groups = groups_.value_or(maps), affine = affine_tensors(parameters),
                                epsilon = affine_.epsilon](const spatial::DistTensor& x) {
          return spatial::group_norm(x, groups, affine.weight, affine.bias, epsilon);
        });
    layer->set_parameters(parameters);
    return {layer, context.inputs};
  }

 private:
  std::optional<std::int64_t> groups_;
  AffineSettings affine_;
};

LayerSettingsPtr read_group_norm(Fields& fields, LayerListReader& /*lists*/) {
  fields.require("groups");
  const std::int64_t groups = fields.integer("groups", kSize).value_or(1);
  return std::make_shared<GroupNormSettings>(groups, read_affine(fields, true));
}

// Like torch, instance normalization has no weights by default.
LayerSettingsPtr read_instance_norm(Fields& fields, LayerListReader& /*lists*/) {
  return std::make_shared<GroupNormSettings>(std::nullopt, read_affine(fields, false));
}

const RegisterLayerType kGroupNorm({.name = "group_norm", .read = &read_group_norm, .short_key = "groups"});
const RegisterLayerType kInstanceNorm({.name = "instance_norm", .read = &read_instance_norm});

}  // namespace
}  // namespace weft::experiment
