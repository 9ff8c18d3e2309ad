// A layer of the network as the time stepper sees it: a function from one state to the next.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::layer_parallel {

// A state of the network between two layers: one tensor or several.
using Tensors = std::vector<at::Tensor>;

// How a layer makes the next state.
enum class Form : std::int8_t {
  kResidual,  // x + dt * layer(x)
  kStep,      // layer(x, dt)
  kPlain,     // layer(x)
};

struct Layer {
  using Function = std::function<Tensors(const Tensors& x, double dt)>;

  // A fixed function of its input within one pass. The step size is for Form::kStep; on coarse levels it is larger.
  Function function{};
  Form form = Form::kResidual;
  Tensors parameters{};
  // What the function itself changes, as batch normalisation does; kept only from the last evaluation of a pass.
  Tensors buffers{};
  std::string name{};
};

namespace detail {

inline Tensors as_tensors(at::Tensor x) { return {std::move(x)}; }
inline Tensors as_tensors(Tensors x) { return x; }

template <class Module>
Tensors call(Module& module, const Tensors& x, double dt, Form form) {
  if constexpr (requires { module->forward(x.front(), dt); }) {
    if (form == Form::kStep) return as_tensors(module->forward(x.front(), dt));
  }
  if constexpr (requires { module->forward(x.front()); }) return as_tensors(module->forward(x.front()));
  if constexpr (requires { module->forward(x); }) return as_tensors(module->forward(x));
  if constexpr (requires { module->forward(x, dt); }) return as_tensors(module->forward(x, dt));
  throw std::invalid_argument("weft: forward(x, dt) is for Form::kStep, other forms call forward(x)");
}

}  // namespace detail

// A layer from a torch::nn module (its holder or a shared_ptr to it) with forward(Tensor) or forward(Tensors), for
// Form::kStep with a second argument dt.
template <class Module>
[[nodiscard]] Layer layer(Module module, Form form = Form::kResidual) {
  Layer result;
  result.form = form;
  result.parameters = module->parameters();
  result.buffers = module->buffers();
  result.name = module->name();
  result.function = [module, form](const Tensors& x, double dt) mutable { return detail::call(module, x, dt, form); };
  return result;
}

}  // namespace weft::layer_parallel
