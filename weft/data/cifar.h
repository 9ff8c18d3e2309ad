// CIFAR-10's binary form: records of a label and the red, green and blue planes of a 32 x 32 image.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "weft/data/file.h"
#include "weft/data/image_source.h"
#include "weft/data/images.h"

namespace weft::data {

// Several files one after the other, plain or gzipped.
class CifarImages : public ImageSource {
 public:
  // Throws DataError for a file that is absent or does not consist of such records.
  explicit CifarImages(const std::vector<std::filesystem::path>& files);

  [[nodiscard]] const ImageSet& set() const override { return set_; }
  std::int64_t read(std::span<std::uint8_t> pixels) override;

 private:
  struct Part {
    InputFile file;
    std::int64_t left;  // records
  };
  std::vector<Part> parts_;
  std::size_t current_ = 0;
  ImageSet set_;
};

// One file, data_batch_1.bin for example, as a whole.
[[nodiscard]] LabelledImages read_cifar10(const std::filesystem::path& path);

}  // namespace weft::data
