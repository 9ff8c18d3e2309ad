#include "weft/data/cifar.h"

#include <ATen/ops/empty.h>

#include <string>

#include "weft/data/file.h"

namespace weft::data {
namespace {

constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kRecord = 1 + kChannels * kSide * kSide;

}  // namespace

LabelledImages read_cifar10(const std::filesystem::path& path) {
  InputFile file(path);
  const std::int64_t count = file.size() / kRecord;
  if (count == 0 || file.size() % kRecord != 0) {
    file.reject("CIFAR-10 records of " + std::to_string(kRecord) + " bytes, and at least one",
                std::to_string(file.size()) + " bytes: " + std::to_string(count) + " records and " +
                    std::to_string(file.size() % kRecord) + " bytes more");
  }
  const at::Tensor records = at::empty({count, kRecord}, at::kByte);
  file.read(records.mutable_data_ptr(), records.numel());
  const at::Tensor images = records.narrow(1, 1, kRecord - 1).reshape({count, kChannels, kSide, kSide});
  return pair_up(images, records.select(1, 0), kClasses, quoted(path));
}

}  // namespace weft::data
