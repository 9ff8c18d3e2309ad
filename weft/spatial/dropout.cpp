#include "weft/spatial/dropout.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "weft/collective/broadcast.h"
#include "weft/partition/scramble.h"
#include "weft/spatial/dispatch.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Box;
using partition::scramble;

// A pseudorandom coin. It scrambles twice, so that adjacent counters and seeds are independent.
class Coin {
 public:
  Coin(double p, std::int64_t seed)
      : key_(scramble(static_cast<std::uint64_t>(seed) + 0x9e3779b97f4a7c15)),
        threshold_(static_cast<std::uint64_t>(std::ldexp(p, 53))) {}
  [[nodiscard]] bool drops(std::int64_t counter) const {
    return (scramble(scramble(static_cast<std::uint64_t>(counter) + key_) ^ key_) >> 11) < threshold_;
  }

 private:
  std::uint64_t key_;
  std::uint64_t threshold_;
};

// Fills the mask. Counters are the linear indices in the whole tensor [leading, shape...], starting with `first`.
void toss(double* mask, std::int64_t leading, const Box& tile, const Sizes& shape, const Coin& coin, double kept,
          std::int64_t first) {
  const std::int64_t cells = c10::multiply_integers(shape);
  const std::size_t dims = shape.size();
  Sizes at(dims);
  for (std::int64_t lead = 0; lead < leading; ++lead) {
    for (std::size_t i = 0; i < dims; ++i) at[i] = tile.ranges[i].begin;
    for (std::int64_t cell = 0; cell < tile.volume(); ++cell) {
      std::int64_t index = 0;
      for (std::size_t i = 0; i < dims; ++i) index = index * shape[i] + at[i];
      *mask++ = coin.drops(first + lead * cells + index) ? 0 : kept;
      for (std::size_t i = dims; i-- > 0;) {  // go to the next cell
        if (++at[i] < tile.ranges[i].end) break;
        at[i] = tile.ranges[i].begin;
      }
    }
  }
}

Tensor masked(const Tensor& x, const Box& tile, const Sizes& shape, double p, std::int64_t seed, std::int64_t first,
              std::size_t whole) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, "weft: expected a dropout probability in [0, 1], got ", p);
  if (p == 0 || x.is_meta() || x.numel() == 0) return x;
  Sizes sizes = x.sizes().vec();
  for (std::size_t i = sizes.size() - whole; i < sizes.size(); ++i) sizes[i] = 1;
  Tensor mask = at::empty(sizes, at::kDouble);
  const Box part = whole > 0 ? Box::whole(Sizes(whole, 1)) : tile;
  const Sizes field = whole > 0 ? Sizes(whole, 1) : shape;
  const std::int64_t leading = c10::multiply_integers(at::IntArrayRef(sizes).slice(0, sizes.size() - part.dims()));
  const std::int64_t all = leading * c10::multiply_integers(field);  // cells of this rank's whole images
  toss(mask.mutable_data_ptr<double>(), leading, part, field, Coin(p, seed), p < 1 ? 1 / (1 - p) : 0,
       first == 0 ? 0 : first * (all / x.size(0)));
  return x.mul(mask.to(x.options()));
}

}  // namespace

DistTensor dropout(const DistTensor& x, double p, std::int64_t seed, bool whole_channels, std::int64_t first) {
  x.validate();
  const std::size_t whole = whole_channels ? x.dims() : 0;
  return {masked(x.local, x.layout->tile(), x.layout->shape(), p, seed, first, whole), x.layout};
}

Tensor dropout(const Tensor& x, double p, std::int64_t seed, std::int64_t first) {
  return masked(x, Box::whole(x.sizes().vec()), x.sizes().vec(), p, seed, first, 0);
}

std::int64_t draw_seed(const CommunicatorPtr& comm) {
  const Tensor mine = at::randint(std::int64_t{1} << 40, {1}, at::kLong);
  return (comm ? collective::broadcast(mine, comm) : mine).item<std::int64_t>();
}

std::int64_t mask_seed(std::uint64_t layer_seed, std::uint64_t step) {
  return static_cast<std::int64_t>(scramble(scramble(layer_seed) + step) >> 1);
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("tile_dropout", [](const Tensor& x, const LayoutPtr& layout, double p, std::int64_t seed, bool channels) {
    return unpacked(dropout(DistTensor{x, layout}, p, seed, channels));
  });
  m.def("seeded_dropout(Tensor x, float p, int seed, int first=0) -> Tensor",
        [](const Tensor& x, double p, std::int64_t seed, std::int64_t first) { return dropout(x, p, seed, first); });
  m.def("draw_dropout_seed",
        [](std::optional<std::int64_t> comm) { return draw_seed(comm ? Communicator::find(*comm) : nullptr); });
  m.def("dropout_mask_seed", [](std::int64_t seed, std::int64_t step) {
    return mask_seed(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(step));
  });
}

}  // namespace weft::spatial
