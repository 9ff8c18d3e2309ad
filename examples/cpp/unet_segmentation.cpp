// A U-Net that finds shapes in noisy images. Each image is split into strips over the ranks, and the network is
// written with functions for tiled tensors.
//
//   mpirun -n 2 unet_segmentation [size] [steps] [folder for pictures]
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "examples/cpp/png.h"
#include "weft/spatial/convolution/convolution.h"
#include "weft/spatial/loss.h"
#include "weft/spatial/normalization.h"
#include "weft/spatial/pooling.h"
#include "weft/weft.h"

namespace {

using at::Tensor;
using weft::spatial::DistTensor;

constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kClasses = 3;  // background, disc, rectangle
constexpr double kRate = 0.2;

// Weights by name. Every rank draws them in the same order from the same seed.
class Weights {
 public:
  Tensor make(at::IntArrayRef sizes, double scale) {
    all_.push_back(at::randn(sizes).mul_(scale).set_requires_grad(true));
    return all_.back();
  }
  Tensor ones(std::int64_t count) {
    all_.push_back(at::ones({count}).set_requires_grad(true));
    return all_.back();
  }
  void step() {
    const at::NoGradGuard no_grad;
    for (Tensor& weight : all_) {
      weight.sub_(weight.grad(), kRate);
      weight.mutable_grad().reset();
    }
  }

 private:
  std::vector<Tensor> all_;
};

// Convolution, group normalization and ReLU.
struct Block {
  Block(Weights& weights, std::int64_t in, std::int64_t out)
      : kernel(weights.make({out, in, 3, 3}, std::sqrt(2.0 / static_cast<double>(9 * in)))), gain(weights.ones(out)) {}
  DistTensor operator()(const DistTensor& x) const {
    const DistTensor y = weft::spatial::convolution(x, kernel, std::nullopt, {.padding = {1}});
    return {weft::spatial::group_norm(y, 2, gain, std::nullopt, 1e-5).local.relu(), y.layout};
  }
  Tensor kernel;
  Tensor gain;
};

struct UNet {
  explicit UNet(Weights& w)
      : down1(w, 1, kWidth),
        down2(w, kWidth, 2 * kWidth),
        bottom(w, 2 * kWidth, 4 * kWidth),
        merge2(w, 4 * kWidth, 2 * kWidth),
        merge1(w, 2 * kWidth, kWidth),
        up2(w.make({4 * kWidth, 2 * kWidth, 2, 2}, 0.2)),
        up1(w.make({2 * kWidth, kWidth, 2, 2}, 0.2)),
        head(w.make({kClasses, kWidth, 1, 1}, 0.3)) {}

  [[nodiscard]] DistTensor operator()(const DistTensor& x) const {
    const DistTensor a = down1(x);
    const DistTensor b = down2(weft::spatial::max_pool(a, {}));
    const DistTensor c = bottom(weft::spatial::max_pool(b, {}));
    const DistTensor d = merge2(joined(c, up2, b));
    return weft::spatial::convolution(merge1(joined(d, up1, a)), head, std::nullopt);
  }

  // Upsamples by 2 and concatenates the encoder's tensor of the same size. Balanced tiles of equal fields match.
  static DistTensor joined(const DistTensor& small, const Tensor& kernel, const DistTensor& skip) {
    const DistTensor large = weft::spatial::transposed_convolution(small, kernel, std::nullopt, {.stride = {2}});
    return {at::cat({large.local, skip.local}, 1), skip.layout};
  }

  Block down1, down2, bottom, merge2, merge1;
  Tensor up2, up1, head;
};

struct Picture {
  Tensor image;  // [1, 1, size, size]
  Tensor truth;  // [1, size, size]
};

// Draws noisy shapes at positions that depend on the number of the picture; the same on every rank.
Picture picture(std::int64_t number, std::int64_t size) {
  const Tensor line = at::arange(size, at::kFloat).div(size);
  const Tensor y = line.view({size, 1});
  const Tensor x = line.view({1, size});
  Tensor truth = at::zeros({size, size}, at::kLong);
  for (int shape = 0; shape < 6; ++shape) {
    const auto wave = [&](double k) {
      return 0.5 + 0.5 * std::sin(static_cast<double>(number) * 1.7 + shape * 2.3 + k * 4.1);
    };
    const double cy = wave(1), cx = wave(2), h = 0.05 + 0.1 * wave(3), w = 0.05 + 0.1 * wave(4);
    const Tensor inside = shape % 2 == 0 ? (y - cy).square().add((x - cx).square()).lt(h * h)
                                         : (y - cy).abs().lt(h).logical_and((x - cx).abs().lt(w));
    truth = truth.masked_fill(inside, shape % 2 + 1);
  }
  const Tensor brightness = truth.eq(1).to(at::kFloat).sub(truth.eq(2).to(at::kFloat)).mul(0.7);
  const Tensor noise =
      at::arange(size * size, at::kDouble).mul(12.9898).add(static_cast<double>(number)).sin().mul(43758.5453);
  const Tensor image = brightness.add(noise.sub(noise.floor()).sub(0.5).mul(2).to(at::kFloat).view({size, size}));
  return {image.view({1, 1, size, size}), truth.unsqueeze(0)};
}

// Shows class numbers as colors.
void write_classes(const std::string& path, const Tensor& classes) {
  constexpr unsigned char kColours[3][3] = {{20, 20, 40}, {230, 120, 40}, {60, 160, 220}};
  const Tensor plain = classes.contiguous();
  std::vector<unsigned char> rgb;
  for (std::int64_t i = 0; i < plain.numel(); ++i) {
    const auto& colour = kColours[plain.const_data_ptr<std::int64_t>()[i]];
    rgb.insert(rgb.end(), colour, colour + 3);
  }
  if (!png::write(path, rgb, static_cast<std::uint32_t>(plain.size(1)))) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
  }
}

void write_grey(const std::string& path, const Tensor& image) {
  const Tensor bytes = image.clamp(-2, 2).add(2).mul(255.0 / 4).to(at::kByte).contiguous();
  std::vector<unsigned char> rgb;
  for (std::int64_t i = 0; i < bytes.numel(); ++i) rgb.insert(rgb.end(), 3, bytes.const_data_ptr<std::uint8_t>()[i]);
  if (!png::write(path, rgb, static_cast<std::uint32_t>(bytes.size(1)))) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const weft::CommunicatorPtr comm = weft::world();
  const std::int64_t size = argc > 1 ? std::atoll(argv[1]) : 64;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 30;
  const auto grid = c10::make_intrusive<weft::spatial::RankGrid>(comm, std::vector<std::int64_t>{comm->size(), 1});
  const auto layout = weft::spatial::Layout::balanced(grid, {size, size});
  at::manual_seed(0);
  Weights weights;
  const UNet net(weights);
  double last = 0;
  for (int step = 0; step < steps; ++step) {
    const Picture now = picture(step, size);
    const DistTensor y = net(weft::spatial::tile_of(now.image, layout));
    const Tensor loss = weft::spatial::cross_entropy(y, weft::spatial::tile_of(now.truth, y.layout).local);
    weft::backward(loss);
    weights.step();
    last = loss.item<double>();
  }
  const at::NoGradGuard no_grad;
  const Picture unseen = picture(10'000, size);
  const Tensor logits = weft::spatial::gather(net(weft::spatial::tile_of(unseen.image, layout)));
  if (comm->rank() == 0) {
    const Tensor guess = logits[0].argmax(0);
    const double right = guess.eq(unseen.truth[0]).to(at::kDouble).mean().item<double>();
    std::printf("C++     %d ranks: final loss %.6f, %.4f of the pixels correct\n", comm->size(), last, right);
    if (argc > 3) {
      const std::string folder = argv[3];
      write_grey(folder + "/input.png", unseen.image[0][0]);
      write_classes(folder + "/truth.png", unseen.truth[0]);
      write_classes(folder + "/prediction.png", guess);
    }
  }
  return 0;
}
