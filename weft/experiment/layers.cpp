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
