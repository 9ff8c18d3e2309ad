// Reader of CIFAR-10's binary format: records of a label and the red, green and blue planes of a 32 x 32 image.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "weft/data/file.h"
#include "weft/data/image_source.h"
#include "weft/data/images.h"

namespace weft::data {

// Reads several files, plain or gzipped, one after the other.
class CifarImages : public ImageSource {
 public:
  // Throws MissingDataError if a file does not exist, DataError if it does not consist of records.
  explicit CifarImages(const std::vector<std::filesystem::path>& files);

  [[nodiscard]] const ImageSet& set() const override { return set_; }
  std::int64_t read(std::span<std::uint8_t> pixels) override;

 private:
  struct Part {
    InputFile file;
    std::int64_t left;  // number of remaining records
  };
  std::vector<Part> parts_;
  std::size_t current_ = 0;
  ImageSet set_;
};

// Reads a whole file, for example data_batch_1.bin. Throws like CifarImages.
[[nodiscard]] LabelledImages read_cifar10(const std::filesystem::path& path);

}  // namespace weft::data
