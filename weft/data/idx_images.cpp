#include "weft/data/idx_images.h"

#include <sstream>
#include <string>

#include "weft/data/idx.h"

namespace weft::data {
namespace {

std::string described(const IdxHeader& header) {
  std::ostringstream text;
  text << header.type << " of shape " << c10::IntArrayRef(header.shape);
  return text.str();
}

}  // namespace

IdxImages::IdxImages(const std::filesystem::path& images, const std::filesystem::path& labels, std::int64_t classes)
    : images_(images), labels_(labels) {
  const IdxHeader image = read_idx_header(images_);
  const auto& shape = image.shape;
  if (image.type != at::kByte || (shape.size() != 3 && shape.size() != 4)) {
    images_.fail("expected an array of bytes with 3 or 4 dimensions, got " + described(image));
  }
  const IdxHeader label = read_idx_header(labels_);
  if (label.type != at::kByte || label.shape.size() != 1) {
    labels_.fail("expected an array of bytes with 1 dimension, got " + described(label));
  }
  if (label.shape[0] != shape[0]) {
    labels_.fail("expected one label per image, got " + std::to_string(shape[0]) + " images and " +
                 std::to_string(label.shape[0]) + " labels");
  }
  set_ = {shape[0], shape.size() == 4 ? shape[1] : 1, shape[shape.size() - 2], shape.back(), classes};
}

std::int64_t IdxImages::read(std::span<std::uint8_t> pixels) {
  std::uint8_t label = 0;
  labels_.read(&label, 1);
  if (label >= set_.classes) {
    labels_.fail("expected labels from 0 to " + std::to_string(set_.classes - 1) + ", got " + std::to_string(label));
  }
  images_.read(pixels.data(), set_.pixels());
  return label;
}

}  // namespace weft::data
