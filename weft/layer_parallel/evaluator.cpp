#include "weft/layer_parallel/evaluator.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <utility>

#include "weft/layer_parallel/states.h"

namespace weft::layer_parallel {
namespace {

// Restores buffers. It writes through variable_data(), which has a separate version counter: the values do not change
// in the end, so graphs that saved them stay valid.
class BufferGuard {
 public:
  BufferGuard(const Tensors& buffers, Buffers what) {
    if (what == Buffers::kKeep) return;
    for (const auto& buffer : buffers) saved_.emplace_back(buffer, buffer.detach().clone());
  }
  ~BufferGuard() {
    const c10::AutoGradMode no_grad(false);
    for (const auto& [buffer, value] : saved_) buffer.variable_data().copy_(value);
  }
  BufferGuard(const BufferGuard&) = delete;
  BufferGuard& operator=(const BufferGuard&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;
};

std::string title(std::int64_t number, const Layer& layer) {
  return "layer " + std::to_string(number) + (layer.name.empty() ? "" : " (" + layer.name + ")");
}

// Removes torch's stack trace, which does not describe the user's layer.
std::string text_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace

Tensors LayerEvaluator::call(std::int64_t number, const Tensors& x, double dt, Buffers buffers) {
  Layer& layer = layers_[number];
  const BufferGuard guard(layer.buffers, buffers);
  random_.begin(number);
  try {
    Tensors y = layer.function(x, dt);
    require_state(y, "a layer's result");
    return y;
  } catch (const std::exception& error) {
    std::throw_with_nested(LayerError(title(number, layer) + ": " + text_of(error)));
  }
}

Tensors LayerEvaluator::next(std::int64_t number, const Tensors& x, double dt, Buffers buffers) {
  const c10::AutoGradMode no_grad(false);
  Tensors y = call(number, x, dt, buffers);
  return layers_[number].form == Form::kResidual ? advance(x, std::move(y), dt) : y;
}

Recorded LayerEvaluator::record(std::int64_t number, const Tensors& x, double dt, Buffers buffers) {
  const c10::AutoGradMode grad(true);
  Recorded recorded;
  for (const auto& tensor : x) recorded.input.push_back(tensor.detach().set_requires_grad(true));
  recorded.output = call(number, recorded.input, dt, buffers);
  return recorded;
}

Tensors LayerEvaluator::next(std::int64_t number, const Recorded& recorded, double dt) {
  const c10::AutoGradMode no_grad(false);
  if (layers_[number].form == Form::kResidual) return advance(detached(recorded.input), detached(recorded.output), dt);
  return detached(recorded.output);
}

}  // namespace weft::layer_parallel
