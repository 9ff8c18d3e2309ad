// Generated images of any number and size, for training without data files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/image_source.h"

namespace weft::data {

enum class Picture : std::int8_t {
  kToyImages,  // as in neon: a centered circle (class 0) or ellipse (class 1), an eighth to half as wide as the image
  kBlobs,      // a soft spot whose angle around the center is the class, with noise
  kShapes,     // a disc, square, triangle, cross, ring or diamond, by class, with random position, size and brightness
};

struct SyntheticOptions {
  Picture picture = Picture::kToyImages;
  std::int64_t count = 128;
  std::int64_t channels = 3;
  std::int64_t height = 32;
  std::int64_t width = 32;
  std::int64_t classes = 2;  // at most 6 for shapes, 2 for toy images
  std::uint64_t seed = 0;
  std::int64_t first = 0;  // index of the first image; a test set starts where the training set ends
};

// Parses "toy_images", "blobs" or "shapes". Throws std::invalid_argument, listing the valid names.
[[nodiscard]] Picture parse_picture(std::string_view name);

// Image i depends only on the seed and on `first` + i.
class SyntheticImages : public ImageSource {
 public:
  // Throws std::invalid_argument if an option is out of range.
  explicit SyntheticImages(const SyntheticOptions& options);

  [[nodiscard]] const ImageSet& set() const override { return set_; }
  std::int64_t read(std::span<std::uint8_t> pixels) override;

 private:
  SyntheticOptions options_;
  ImageSet set_;
  std::int64_t next_;
};

// `portion` is "train" or "test" and becomes part of cache names.
[[nodiscard]] ImageOrigin synthetic_origin(const SyntheticOptions& options, const std::string& portion);

}  // namespace weft::data
