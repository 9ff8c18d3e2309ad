// Synthetic sets: reproducible images, distinguishable classes, invalid options.
#include "weft/data/synthetic.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "weft/data/images.h"
#include "weft/data/part.h"

namespace weft::data {
namespace {

LabelledImages make(const SyntheticOptions& options) {
  SyntheticImages source(options);
  return read_all(source);
}

SyntheticOptions options_for(Picture picture, std::int64_t classes) {
  return {.picture = picture, .count = 600, .channels = 1, .height = 16, .width = 16, .classes = classes, .seed = 2};
}

// Whether the figure is as wide as high.
bool is_round(const at::Tensor& image) {
  const at::Tensor lit = image.gt(0);
  return lit.any(0).sum().item<int>() == lit.any(1).sum().item<int>();
}

TEST(Synthetic, ToyImagesAreCirclesAndEllipses) {
  const LabelledImages toys = make({});
  EXPECT_EQ(toys.images.sizes(), (std::vector<std::int64_t>{128, 3, 32, 32}));
  EXPECT_GT(toys.labels.sum().item<int>(), 40);
  EXPECT_LT(toys.labels.sum().item<int>(), 88);
  for (std::int64_t i = 0; i < toys.size(); ++i) {
    EXPECT_EQ(is_round(toys.images[i][0]), toys.labels[i].item<int>() == 0) << i;
    EXPECT_GT(toys.images[i][0][16][16].item<int>(), 0) << i;  // centered
  }
}

// Accuracy of a nearest-mean classifier, trained on one half and tested on the other; chance level is 1 / classes.
double nearest_mean_accuracy(const LabelledImages& set, std::int64_t classes) {
  const at::Tensor flat = unit_floats(set.images).flatten(1);
  const std::int64_t half = set.size() / 2;
  std::vector<at::Tensor> means;
  for (std::int64_t label = 0; label < classes; ++label) {
    means.push_back(flat.index_select(0, set.labels.narrow(0, 0, half).eq(label).nonzero().flatten()).mean(0));
  }
  const at::Tensor distance =
      flat.narrow(0, half, half).unsqueeze(1).sub(at::stack(means).unsqueeze(0)).square().sum(2);
  return distance.argmin(1).eq(set.labels.narrow(0, half, half)).to(at::kDouble).mean().item<double>();
}

TEST(Synthetic, ClassesAreDistinguishable) {
  EXPECT_GT(nearest_mean_accuracy(make(options_for(Picture::kBlobs, 10)), 10), 0.9);
  EXPECT_GT(nearest_mean_accuracy(make(options_for(Picture::kShapes, 6)), 6), 1.5 / 6);
}

TEST(Synthetic, ImagesDependOnlyOnSeedAndIndex) {
  for (const Picture picture : {Picture::kToyImages, Picture::kBlobs, Picture::kShapes}) {
    SyntheticOptions options = options_for(picture, 2);
    options.count = 20;
    const LabelledImages all = make(options);
    EXPECT_TRUE(at::equal(make(options).images, all.images));
    options.first = 12;  // a test set that starts where the training set ends
    options.count = 8;
    EXPECT_TRUE(at::equal(make(options).images, all.images.narrow(0, 12, 8)));
    EXPECT_TRUE(at::equal(make(options).labels, all.labels.narrow(0, 12, 8)));
    options.seed = 3;
    EXPECT_FALSE(at::equal(make(options).images, all.images.narrow(0, 12, 8)));
  }
}

TEST(Synthetic, SupportsAnySize) {
  for (const Picture picture : {Picture::kToyImages, Picture::kBlobs, Picture::kShapes}) {
    const SyntheticOptions tiny{.picture = picture, .count = 3, .channels = 5, .height = 1, .width = 9, .classes = 1};
    EXPECT_EQ(make(tiny).images.sizes(), (std::vector<std::int64_t>{3, 5, 1, 9}));
  }
  EXPECT_EQ(make({.count = 0}).size(), 0);
}

TEST(Synthetic, NamesAreUniquePerSet) {
  const auto name = [](const SyntheticOptions& options) { return synthetic_origin(options, "train").name; };
  EXPECT_EQ(name({}), name({}));
  EXPECT_NE(name({}), name({.seed = 1}));
  EXPECT_NE(name({}), name({.first = 1}));
  EXPECT_NE(name({.picture = Picture::kBlobs}), name({.picture = Picture::kShapes}));
}

TEST(Synthetic, RejectsInvalidOptions) {
  EXPECT_EQ(parse_picture("blobs"), Picture::kBlobs);
  EXPECT_THAT([] { (void)parse_picture("bolbs"); },
              testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("toy_images, blobs, shapes")));
  for (const SyntheticOptions& options :
       {SyntheticOptions{.count = -1}, SyntheticOptions{.channels = 0}, SyntheticOptions{.height = 0},
        SyntheticOptions{.width = -3}, SyntheticOptions{.classes = 3}, SyntheticOptions{.classes = 0},
        SyntheticOptions{.picture = Picture::kShapes, .classes = 7}, SyntheticOptions{.first = -1}}) {
    EXPECT_THROW(SyntheticImages{options}, std::invalid_argument);
  }
}

}  // namespace
}  // namespace weft::data
