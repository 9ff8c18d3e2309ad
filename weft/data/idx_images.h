// Image source for two IDX files, images and labels, as in MNIST.
#pragma once

#include <filesystem>
#include <vector>

#include "weft/data/file.h"
#include "weft/data/image_source.h"

namespace weft::data {

class IdxImages : public ImageSource {
 public:
  // Expects an array of bytes with 3 dimensions, or 4 with channels, and one label below `classes` per image. Throws
  // DataError otherwise.
  IdxImages(const std::filesystem::path& images, const std::filesystem::path& labels, std::int64_t classes);

  [[nodiscard]] const ImageSet& set() const override { return set_; }
  std::int64_t read(std::span<std::uint8_t> pixels) override;

 private:
  InputFile images_;
  InputFile labels_;
  ImageSet set_;
};

}  // namespace weft::data
