#include "weft/experiment/layer.h"

namespace weft::experiment {

LayerPtr make_layer(const LayerContext& context, spatial::LayoutPtr& layout) {
  switch (context.spec.kind) {
    case LayerKind::kLinear:
      return make_linear(context, layout);
    case LayerKind::kLocalFilter:
      return make_local_filter(context, layout);
    case LayerKind::kResidualStack:
      return make_residual_stack(context, layout);
    case LayerKind::kResidualBlock:
      return make_residual_block(context, layout);
    case LayerKind::kTransposedConvolution:
    case LayerKind::kUpsample:
    case LayerKind::kAdaptiveAveragePool:
    case LayerKind::kAdaptiveMaxPool:
      return make_resizing_layer(context, layout);
    case LayerKind::kGroupNorm:
    case LayerKind::kInstanceNorm:
    case LayerKind::kLayerNorm:
      return make_normalization(context, layout);
    case LayerKind::kFlatten:
    case LayerKind::kBatchNorm:
    case LayerKind::kDropout:
    case LayerKind::kActivation:
    case LayerKind::kGlobalAverage:
      return make_pointwise_layer(context, layout);
    default:
      return make_windowed_layer(context, layout);
  }
}

}  // namespace weft::experiment
