#include "weft/experiment/file/forms.h"
#include "weft/experiment/layers/window.h"
#include "weft/spatial/interpolation.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

// Resampling to a size, or by a factor.
class UpsampleSettings final : public LayerSettings {
 public:
  UpsampleSettings(Fields& fields, LayerListReader& /*lists*/) : size_(pair_of(fields.sizes("size"), {})) {
    scale_ = pair_of(fields.sizes("scale"), size_.empty() ? Sizes{1, 1} : Sizes{});
    mode_ = fields.choice("mode", {"nearest", "nearest-exact", "bilinear"}).value_or("nearest");
    align_corners_ = mode_ == "bilinear" && fields.boolean("align_corners").value_or(false);
    if (fields.has("size") != fields.has("scale")) return;
    fields.problems().add(fields.place(), std::string("expected either 'scale' or 'size' in an upsample layer, got ") +
                                              (fields.has("size") ? "both" : "neither"));
  }

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    const Extent& in = sizes.in;
    Extent out{in.maps, size_};
    if (size_.empty()) out.shape = {in.shape[0] * scale_[0], in.shape[1] * scale_[1]};
    return limit_growth(in, out, problems);
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    std::optional<std::vector<double>> scales;
    if (size_.empty()) scales = std::vector<double>(scale_.begin(), scale_.end());
    const auto resample = [size = context.sizes.out.shape, mode = spatial::parse_resampling(mode_),
                           corners = align_corners_, scales](const spatial::DistTensor& x) {
      return spatial::interpolate(x, size, mode, corners, scales);
    };
    return {spatial::nn::on_tiles("upsampling", resample), context.mesh.layout(context.sizes.out.shape)};
  }

 private:
  Sizes size_;
  Sizes scale_;
  std::string mode_;
  bool align_corners_ = false;
};

const RegisterLayerType kUpsampleRegistered(layer_type<UpsampleSettings>("upsample", "scale"));

}  // namespace
}  // namespace weft::experiment
