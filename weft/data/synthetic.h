// Images made up from a seed: something to train on where there is no data, in any number and size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/image_source.h"

namespace weft::data {

enum class Picture : std::int8_t {
  kToyImages,  // neon's: a circle (class 0) or an ellipse (class 1) around the middle, from an eighth to half as wide
  kBlobs,      // a soft spot whose place around the middle is the class, with noise
  kShapes,  // a disc, square, triangle, cross, ring or diamond: the class; any place, size and brightness, with noise
};

struct SyntheticOptions {
  Picture picture = Picture::kToyImages;
  std::int64_t count = 128;
  std::int64_t channels = 3;
  std::int64_t height = 32;
  std::int64_t width = 32;
  std::int64_t classes = 2;  // at most 6 shapes, 2 of ToyImages
  std::uint64_t seed = 0;
  std::int64_t first = 0;  // number of the first image: a test set begins where the training set ends
};

// "toy_images", "blobs", "shapes"; throws std::invalid_argument naming those that exist.
[[nodiscard]] Picture parse_picture(std::string_view name);

// Image i depends on the seed and `first` + i only. Throws std::invalid_argument for sizes that make no sense.
class SyntheticImages : public ImageSource {
 public:
  explicit SyntheticImages(const SyntheticOptions& options);

  [[nodiscard]] const ImageSet& set() const override { return set_; }
  std::int64_t read(std::span<std::uint8_t> pixels) override;

 private:
  SyntheticOptions options_;
  ImageSet set_;
  std::int64_t next_;
};

// `portion`: "train" or "test", for the name of a cache.
[[nodiscard]] ImageOrigin synthetic_origin(const SyntheticOptions& options, const std::string& portion);

}  // namespace weft::data
