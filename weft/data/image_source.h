// A set of labelled images that comes as a stream, one image at a time: readers keep of each what they own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft::data {

// What a set holds.
struct ImageSet {
  std::int64_t count = 0;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;

  // Of one image.
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
  // The next image, channel by channel and row by row, into set().pixels() bytes; returns its label. At most
  // set().count times. Throws DataError for data that is not what it should be.
  virtual std::int64_t read(std::span<std::uint8_t> pixels) = 0;
};

// Where a set comes from, before anything is opened: what a cache is checked against.
struct ImageOrigin {
  std::string name;                          // "MNIST": different sets have different names
  std::string portion;                       // "train" or "test"
  std::vector<std::filesystem::path> files;  // what the content depends on besides the name
  std::function<std::unique_ptr<ImageSource>()> open;
};

}  // namespace weft::data
