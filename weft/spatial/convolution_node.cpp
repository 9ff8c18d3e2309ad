#include "weft/spatial/convolution_node.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "weft/spatial/exchange.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

class ConvolutionNode final : public torch::autograd::Node {
 public:
  ConvolutionNode(const Tensor& padded, const Kernel& kernel)
      : early_(EarlyReply::of(padded)),
        padded_(padded, /*is_output=*/false),
        weight_(kernel.weight, /*is_output=*/false),
        kernel_(kernel) {
    if (kernel.bias && kernel.bias->defined()) bias_sizes_ = kernel.bias->sizes().vec();
    kernel_.weight.reset();
    kernel_.bias.reset();
  }

  variable_list apply(variable_list&& gradients) override {
    variable_list result(3);
    if (!gradients[0].defined()) return result;
    const Tensor padded = padded_.unpack();
    const Tensor weight = weight_.unpack();
    // Where derivatives of this backward pass are wanted, the exchange must see a recorded gradient; and from then on
    // this node's is not all of the padded tile's gradient, which depends on the recorded pass too.
    if (c10::GradMode::is_enabled()) early_.reset();
    if (task_should_compute_output(0)) {
      result[0] = std::get<0>(backward(gradients[0], padded, weight, {true, false, false}));
      if (early_) early_->begin(result[0]);
    }
    const bool for_weight = task_should_compute_output(1);
    const bool for_bias = bias_sizes_ && task_should_compute_output(2);
    if (!for_weight && !for_bias) return result;
    auto [unused, dw, db] = backward(gradients[0], padded, weight, {false, for_weight, for_bias});
    result[1] = std::move(dw);
    result[2] = std::move(db);
    return result;
  }

  void release_variables() override {
    padded_.reset_data();
    weight_.reset_data();
  }

  [[nodiscard]] std::string name() const override { return "weft::ConvolutionBackward"; }

 private:
  std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& g, const Tensor& padded, const Tensor& weight,
                                              std::array<bool, 3> mask) const {
    const at::OptionalIntArrayRef bias = bias_sizes_ ? at::OptionalIntArrayRef(*bias_sizes_) : std::nullopt;
    const std::vector<std::int64_t> no_output_padding(kernel_.stride.size(), 0);
    return at::convolution_backward(g, padded, weight, bias, kernel_.stride, kernel_.padding, kernel_.dilation,
                                    /*transposed=*/false, no_output_padding, kernel_.groups, mask);
  }

  std::shared_ptr<EarlyReply> early_;
  SavedVariable padded_;
  SavedVariable weight_;
  Kernel kernel_;  // without its tensors
  std::optional<std::vector<std::int64_t>> bias_sizes_;
};

// For tensors without data, which torch convolves in Python only.
std::vector<std::int64_t> result_sizes(const Tensor& padded, const Kernel& kernel) {
  std::vector<std::int64_t> sizes{padded.size(0), kernel.weight.size(0)};
  for (std::size_t i = 0; i < kernel.stride.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    const std::int64_t reach = kernel.dilation[i] * (kernel.weight.size(dim) - 1);
    sizes.push_back((padded.size(dim) + 2 * kernel.padding[i] - reach - 1) / kernel.stride[i] + 1);
  }
  return sizes;
}

}  // namespace

Tensor apply_kernel(const Tensor& padded, const Kernel& kernel) {
  if (padded.is_meta()) return at::empty(result_sizes(padded, kernel), padded.options());
  const std::vector<std::int64_t> no_output_padding(kernel.stride.size(), 0);
  return at::convolution(padded, kernel.weight, kernel.bias, kernel.stride, kernel.padding, kernel.dilation,
                         /*transposed=*/false, no_output_padding, kernel.groups);
}

void record_convolution(const Tensor& padded, const Kernel& kernel, const Tensor& y) {
  auto node = c10::make_intrusive<ConvolutionNode>(padded, kernel);
  const auto edge = [](const Tensor& x) {
    return x.defined() ? torch::autograd::impl::gradient_edge(x) : torch::autograd::Edge();
  };
  node->set_next_edges({edge(padded), edge(kernel.weight), edge(kernel.bias.value_or(Tensor()))});
  torch::autograd::set_history(y, node);
}

}  // namespace weft::spatial
