#include "weft/data/cache_file.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <fstream>
#include <type_traits>

#include "weft/files/atomic_file.h"
#include "weft/files/checksum.h"

namespace weft::data {
namespace {

// The last character is the format version. Increment it with every format change: old caches are then rebuilt.
// Version 2 replaced the checksum by XXH3.
constexpr std::array<char, 8> kFormat{'w', 'e', 'f', 't', 'p', 'r', 't', '2'};

class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) : file_(path) {}

  void bytes(const void* data, std::int64_t count) {
    checksum_.add(data, static_cast<std::size_t>(count));
    file_.write(data, count);
  }
  template <typename Value>
  void value(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value> && std::has_unique_object_representations_v<Value>);
    bytes(&value, sizeof(value));
  }
  void text(const std::string& text) {
    value(static_cast<std::int64_t>(text.size()));
    bytes(text.data(), std::ssize(text));
  }
  void tensor(const at::Tensor& tensor) { bytes(tensor.const_data_ptr(), static_cast<std::int64_t>(tensor.nbytes())); }
  void finish() {
    const std::uint64_t sum = checksum_.value();
    file_.write(&sum, sizeof(sum));
    file_.commit();
  }

 private:
  files::AtomicFile file_;
  files::Checksum checksum_;
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : stream_(path, std::ios::binary) {
    std::error_code ignored;
    left_ = static_cast<std::int64_t>(std::filesystem::file_size(path, ignored));
    if (!stream_ || ignored) throw StaleCache("it cannot be opened");
  }

  // Checks a size before memory is allocated for it.
  void require_remaining(std::int64_t count) const {
    if (count < 0 || count > left_) throw StaleCache("it is truncated or damaged");
  }
  void bytes(void* into, std::int64_t count) {
    require_remaining(count);
    stream_.read(static_cast<char*>(into), count);
    if (stream_.gcount() != count) throw StaleCache("it is truncated");
    left_ -= count;
    checksum_.add(into, static_cast<std::size_t>(count));
  }
  template <typename Value>
  Value value() {
    Value result{};
    bytes(&result, sizeof(result));
    return result;
  }
  std::string text() {
    const auto size = value<std::int64_t>();
    require_remaining(size);
    std::string result(static_cast<std::size_t>(size), '\0');
    bytes(result.data(), size);
    return result;
  }
  at::Tensor tensor(const std::vector<std::int64_t>& shape, at::ScalarType type) {
    auto size = static_cast<std::int64_t>(c10::elementSize(type));
    for (const std::int64_t extent : shape) {
      if (extent < 0 || (extent > 0 && size > left_ / extent)) throw StaleCache("it is truncated or damaged");
      size *= extent;
    }
    at::Tensor result = at::empty(shape, type);
    bytes(result.mutable_data_ptr(), size);
    return result;
  }
  void finish() {
    const std::uint64_t expected = checksum_.value();
    if (value<std::uint64_t>() != expected || left_ != 0) throw StaleCache("it is damaged");
  }

 private:
  std::ifstream stream_;
  std::int64_t left_ = 0;
  files::Checksum checksum_;
};

CacheSource read_source(Reader& reader) {
  CacheSource source;
  source.description = reader.text();
  const auto count = reader.value<std::int64_t>();
  reader.require_remaining(count);
  for (std::int64_t i = 0; i < count; ++i) {
    std::string path = reader.text();
    source.files.push_back({std::move(path), reader.value<files::Fingerprint>()});
  }
  return source;
}

}  // namespace

void write_cache(const std::filesystem::path& path, const CacheSource& source, const ImagePart& part) {
  Writer writer(path);
  writer.value(kFormat);
  writer.text(source.description);
  writer.value(std::ssize(source.files));
  for (const CachedFile& file : source.files) {
    writer.text(file.path);
    writer.value(file.fingerprint);
  }
  writer.value(part.whole);
  writer.value(part.tile.ranges.at(0));
  writer.value(part.tile.ranges.at(1));
  writer.value(part.kept.size());
  writer.tensor(part.numbers);
  writer.tensor(part.kept.labels);
  writer.tensor(part.kept.images);
  writer.finish();
}

ImagePart read_cache(const std::filesystem::path& path, const std::function<void(const CacheSource&)>& accept) {
  Reader reader(path);
  if (reader.value<std::array<char, 8>>() != kFormat)
    throw StaleCache("it is not a cache, or has another format version");
  accept(read_source(reader));
  ImagePart part;
  part.whole = reader.value<ImageSet>();
  const auto rows = reader.value<partition::Range>();
  const auto columns = reader.value<partition::Range>();
  part.tile.ranges = {rows, columns};
  const auto count = reader.value<std::int64_t>();
  part.numbers = reader.tensor({count}, at::kLong);
  part.kept.labels = reader.tensor({count}, at::kLong);
  part.kept.images = reader.tensor({count, part.whole.channels, rows.size(), columns.size()}, at::kByte);
  reader.finish();
  return part;
}

}  // namespace weft::data
