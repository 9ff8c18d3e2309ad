#include "weft/data/cifar.h"

#include <string>
#include <utility>

#include "weft/data/part.h"

namespace weft::data {
namespace {

constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kRecord = 1 + kChannels * kSide * kSide;

std::int64_t count_records(InputFile& file) {
  const std::int64_t count = file.size() / kRecord;
  if (count == 0 || file.size() % kRecord != 0) {
    file.fail("expected at least one CIFAR-10 record of " + std::to_string(kRecord) + " bytes, got " +
              std::to_string(file.size()) + " bytes: " + std::to_string(count) + " records and " +
              std::to_string(file.size() % kRecord) + " extra bytes");
  }
  return count;
}

}  // namespace

CifarImages::CifarImages(const std::vector<std::filesystem::path>& files) : set_{0, kChannels, kSide, kSide, kClasses} {
  for (const auto& path : files) {
    InputFile file(path);
    const std::int64_t count = count_records(file);
    parts_.push_back({std::move(file), count});
    set_.count += count;
  }
}

std::int64_t CifarImages::read(std::span<std::uint8_t> pixels) {
  while (current_ + 1 < parts_.size() && parts_[current_].left == 0) ++current_;
  Part& part = parts_.at(current_);
  std::uint8_t label = 0;
  part.file.read(&label, 1);
  if (label >= kClasses) {
    part.file.fail("expected labels from 0 to " + std::to_string(kClasses - 1) + ", got " + std::to_string(label));
  }
  part.file.read(pixels.data(), kRecord - 1);
  --part.left;
  return label;
}

LabelledImages read_cifar10(const std::filesystem::path& path) {
  CifarImages source({path});
  return read_all(source);
}

}  // namespace weft::data
