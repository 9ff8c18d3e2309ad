#include "weft/spatial/nn/parameter.h"

#include <utility>

#include "weft/spatial/exchange/cells.h"

namespace weft::spatial::nn {

at::Tensor cut(const at::Tensor& whole, const partition::Box& box) {
  return region(whole, box, partition::Box::whole(whole.sizes().vec()));
}

bool is_whole(const Parameter& parameter) { return parameter.part == partition::Box::whole(parameter.whole); }

Parameter whole_parameter(std::string name, at::Tensor value) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.whole = value.sizes().vec();
  parameter.part = partition::Box::whole(parameter.whole);
  parameter.value = value.set_requires_grad(true);
  return parameter;
}

Parameter cut_parameter(std::string name, const at::Tensor& whole_value, const partition::Box& part) {
  Parameter parameter = whole_parameter(std::move(name), cut(whole_value, part).clone(at::MemoryFormat::Contiguous));
  parameter.whole = whole_value.sizes().vec();
  parameter.part = part;
  return parameter;
}

}  // namespace weft::spatial::nn
