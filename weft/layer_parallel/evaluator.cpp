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

// Values of buffers before an evaluation.
class SavedBuffers {
 public:
  SavedBuffers(const Tensors& buffers, Buffers what) {
    if (what == Buffers::kKeep) return;
    for (const auto& buffer : buffers) saved_.emplace_back(buffer, buffer.detach().clone());
  }

  // The versions do not change, because the values do not change in the end: graphs that saved them stay valid.
  void restore() const {
    const c10::AutoGradMode no_grad(false);
    for (const auto& [buffer, value] : saved_) {
      if (buffer.sizes() != value.sizes()) {
        buffer.set_data(value);  // the layer resized it
      } else {
        assign(buffer, value);
      }
    }
  }

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

void rethrow_as_layer_error(std::int64_t number, const Layer& layer) {
  try {
    throw;
  } catch (const Interrupted& error) {
    std::throw_with_nested(Interrupted(title(number, layer) + ": " + error.what()));
  } catch (const std::exception& error) {
    std::throw_with_nested(LayerError(title(number, layer) + ": " + text_of(error)));
  }
}

Tensors LayerEvaluator::call(std::int64_t number, const Tensors& x, double dt, Buffers buffers) {
  Layer& layer = layers_[number];
  try {
    if (layer.problem) std::rethrow_exception(layer.problem);
    const SavedBuffers saved(layer.buffers, buffers);
    random_.begin(number);
    Tensors y;
    try {
      y = functions_.evaluate ? functions_.evaluate(number, x, dt, buffers) : layer.function(x, dt);
    } catch (...) {
      saved.restore();
      throw;
    }
    saved.restore();
    require_state(y, "a layer's result");
    return y;
  } catch (...) {
    rethrow_as_layer_error(number, layer);
  }
}

Tensors LayerEvaluator::next(std::int64_t number, const Tensors& x, double dt, Buffers buffers) {
  const c10::AutoGradMode no_grad(false);
  Tensors y = call(number, x, dt, buffers);
  return layers_[number].form == Form::kResidual ? advance(x, std::move(y), dt) : y;
}

std::string LayerEvaluator::kind(std::int64_t number) {
  std::string kind = functions_.kind ? functions_.kind(number) : std::string();
  if (!kind.empty()) kind += std::to_string(static_cast<int>(layers_[number].form));
  return kind;
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
