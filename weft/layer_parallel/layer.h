// A layer of the network for the time stepper: a function from one state to the next.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::layer_parallel {

// A state of the network between two layers: one or more tensors.
using Tensors = std::vector<at::Tensor>;

// The formula of the next state.
enum class Form : std::int8_t {
  kResidual,  // x + dt * layer(x)
  kStep,      // layer(x, dt)
  kPlain,     // layer(x)
};

struct Layer {
  using Function = std::function<Tensors(const Tensors& x, double dt)>;

  // Must be a pure function of its input within one pass. Form::kStep uses dt, which is larger on coarse levels.
  Function function{};
  Form form = Form::kResidual;
  Tensors parameters{};
  // Tensors that the function changes, such as running statistics; only the last evaluation of a pass updates them.
  Tensors buffers{};
  std::string name{};
  // If set, evaluations throw it: the layer could not be brought up to date.
  std::exception_ptr problem{};
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
  throw std::invalid_argument("weft: Form::kStep requires forward(x, dt), other forms require forward(x)");
}

}  // namespace detail

// Returns a layer that calls a torch::nn module.
// module: a module holder or shared_ptr with forward(Tensor) or forward(Tensors); Form::kStep adds an argument dt.
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
