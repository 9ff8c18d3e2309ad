#include "weft/experiment/safetensors.h"

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "weft/files/atomic_file.h"

namespace weft::experiment {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian, and so is what writes them");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr const char* kMetadata = "__metadata__";

// -1 where the product does not fit.
std::int64_t volume(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return -1;
  }
  return count;
}

std::int64_t bytes_of(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bytes = 0;
  const std::int64_t count = volume(shape);
  if (count < 0 || __builtin_mul_overflow(count, safetensors_size(dtype), &bytes)) return -1;
  return bytes;
}

std::string header_of(const std::vector<TensorBytes>& tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::int64_t offset = 0;
  for (const TensorBytes& tensor : tensors) {
    if (header.contains(tensor.name)) throw CheckpointError("weft: expected one tensor '" + tensor.name + "', got two");
    const std::int64_t bytes = bytes_of(tensor.dtype, tensor.shape);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  return text;
}

}  // namespace

std::int64_t safetensors_size(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16") return 2;
  return dtype == "I8" || dtype == "U8" || dtype == "BOOL" ? 1 : 0;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                       const Metadata& metadata) {
  const std::string header = header_of(tensors, metadata);
  const auto length = static_cast<std::uint64_t>(header.size());
  files::AtomicFile file(path);
  file.write(&length, kLengthBytes);
  file.write(header);
  for (const TensorBytes& tensor : tensors) file.write(tensor.data, bytes_of(tensor.dtype, tensor.shape));
  file.commit();
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failed;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path_, failed));
  if (failed) refuse("none");
  std::ifstream stream(path_, std::ios::binary);
  std::uint64_t length = 0;
  stream.read(reinterpret_cast<char*>(&length), kLengthBytes);
  if (!stream || length > kLongestHeader || static_cast<std::int64_t>(length) > size - kLengthBytes) {
    refuse("one of " + std::to_string(size) + " bytes, whose header is too short or too long");
  }
  std::string text(length, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(length));
  if (!stream) refuse("one that ends within its header");
  data_begin_ = kLengthBytes + static_cast<std::int64_t>(length);
  parse_header(text, size - data_begin_);
}

void SafetensorsFile::refuse(const std::string& why) const {
  throw CheckpointError("weft: expected a safetensors file " + path_.string() + ", got " + why);
}

void SafetensorsFile::parse_header(const std::string& text, std::int64_t data_bytes) {
  try {
    const auto header = nlohmann::json::parse(text);
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) {
        metadata_ = entry.get<Metadata>();
        continue;
      }
      TensorInfo info{entry.at("dtype"), entry.at("shape"), entry.at("data_offsets").at(0),
                      entry.at("data_offsets").at(1)};
      const bool inside = info.begin >= 0 && info.begin <= info.end && info.end <= data_bytes;
      if (!inside || safetensors_size(info.dtype) == 0 || bytes_of(info.dtype, info.shape) != info.end - info.begin) {
        refuse("one whose tensor '" + name + "' does not fit into it");
      }
      tensors_[name] = std::move(info);
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(std::string("one whose header is no JSON of tensors: ") + error.what());
  }
}

void SafetensorsFile::read(const std::string& name, void* into, std::int64_t bytes) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse("one without a tensor '" + name + "'");
  if (found->second.end - found->second.begin != bytes) refuse("one whose tensor '" + name + "' has another size");
  std::ifstream stream(path_, std::ios::binary);
  stream.seekg(data_begin_ + found->second.begin);
  stream.read(static_cast<char*>(into), bytes);
  if (!stream) refuse("one that ends within tensor '" + name + "'");
}

}  // namespace weft::experiment
