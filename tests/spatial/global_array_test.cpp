// GlobalArray: runs a layer for whole images on tiles.
#include "weft/spatial/global_array.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "tests/collective/single_process.h"
#include "weft/experiment/layers/mesh.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using collective::expect_close;
using collective::values;
using experiment::Sizes;
using experiment::squarest_grid;

LayoutPtr field(const Sizes& shape) {
  static const auto grid = c10::make_intrusive<RankGrid>(world(), squarest_grid(world()->size()));
  return Layout::balanced(grid, shape);
}

struct Case {
  Sizes shape, kernel, stride, padding;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{{{11, 9}, {3, 3}, {1, 1}, {0, 0}},
                                     {{11, 9}, {4, 2}, {2, 1}, {0, 0}},
                                     {{8, 8}, {3, 3}, {1, 1}, {1, 1}},
                                     {{5, 5}, {5, 5}, {1, 1}, {0, 0}},  // one output, so most ranks have none
                                     {{7, 6}, {1, 1}, {3, 2}, {0, 0}}};
  return all;
}

// A custom layer for whole images: the mean over windows of squares.
Tensor layer(const Tensor& x, const Case& c) { return at::avg_pool2d(x * x, c.kernel, c.stride); }

TEST(GlobalArrayTest, RunsALayerForWholeImagesOnTiles) {
  for (const Case& c : cases()) {
    const auto layout = field(c.shape);
    const auto input = GlobalArray::adjust_for_dist(layout, c.kernel, c.stride, c.padding);
    const Tensor whole = collective::leaf(values({2, 3, c.shape[0], c.shape[1]}, 1));
    const Tensor padded = at::constant_pad_nd(whole, {c.padding[1], c.padding[1], c.padding[0], c.padding[0]});
    const Tensor expected = layer(padded, c);
    const Tensor weight = values(expected.sizes(), 2);
    (expected * weight).sum().backward();

    const Tensor tile = collective::leaf(spatial::tile_of(whole.detach(), layout).local);
    const Tensor view = input.get_fprop_view(tile);
    EXPECT_EQ(view.sizes().slice(2), at::IntArrayRef(input.view_shape()));
    const bool computes = !input.outputs()->tile().empty();
    std::optional<Tensor> loss;
    if (computes) {
      const Tensor y = layer(view, c);
      EXPECT_EQ(y.sizes().slice(2), at::IntArrayRef(input.output_shape()));
      expect_close(y, spatial::tile_of(expected.detach(), input.outputs()).local, "outputs");
      loss = (y * spatial::tile_of(weight, input.outputs()).local).sum();
    }
    backward(loss);
    expect_close(collective::grad_of(tile), spatial::tile_of(whole.grad(), layout).local, "gradient");
  }
}

// <F x, e> = <x, B e>, summed over the ranks.
TEST(GlobalArrayTest, ViewsAreAdjoint) {
  const at::NoGradGuard no_grad;
  for (const Case& c : cases()) {
    const auto layout = field(c.shape);
    const auto input = GlobalArray::adjust_for_dist(layout, c.kernel, c.stride, c.padding);
    const Tensor x = spatial::tile_of(values({2, c.shape[0], c.shape[1]}, 3), layout).local;
    const Tensor view = input.get_fprop_view(x);
    const Tensor error = values(view.sizes(), 4 + world()->rank());
    const Tensor forward = collective::all_reduce((view * error).sum(), world());
    const Tensor back = collective::all_reduce((x * input.get_bprop_view(error)).sum(), world());
    expect_close(forward, back, "adjoint");
  }
}

TEST(GlobalArrayTest, RejectsWindowsThatDoNotFit) {
  EXPECT_THROW(static_cast<void>(GlobalArray::adjust_for_dist(field({4, 4}), {5, 5}, {1, 1})), c10::Error);
  const auto input = GlobalArray::adjust_for_dist(field({4, 4}), {3, 3}, {1, 1});
  EXPECT_THROW(static_cast<void>(input.get_fprop_view(at::zeros({1, 9, 9}, at::kDouble))), c10::Error);
  collective::expect_works(world());
}

}  // namespace
}  // namespace weft::spatial
