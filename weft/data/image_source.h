// A stream of labelled images. Readers keep only the part of each image that their rank owns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft::data {

// The dimensions of a set.
struct ImageSet {
  std::int64_t count = 0;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;

  // The number of values in one image.
  [[nodiscard]] std::int64_t pixels() const { return channels * height * width; }

  friend bool operator==(const ImageSet&, const ImageSet&) = default;
};

class ImageSource {
 public:
  ImageSource() = default;
  virtual ~ImageSource() = default;
  ImageSource(const ImageSource&) = delete;
  ImageSource& operator=(const ImageSource&) = delete;

  [[nodiscard]] virtual const ImageSet& set() const = 0;
  // Reads the next image, channel by channel and row by row, into set().pixels() bytes and returns its label. Call it
  // at most set().count times. Throws DataError for invalid data.
  virtual std::int64_t read(std::span<std::uint8_t> pixels) = 0;
};

// The source of a set, before any file is opened. Caches are validated against it.
struct ImageOrigin {
  std::string name;                          // "MNIST"; unique per set
  std::string portion;                       // "train" or "test"
  std::vector<std::filesystem::path> files;  // all files that determine the content
  std::function<std::unique_ptr<ImageSource>()> open;
};

}  // namespace weft::data
