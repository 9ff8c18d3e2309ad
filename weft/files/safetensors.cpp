#include "weft/files/safetensors.h"

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "weft/files/atomic_file.h"

namespace weft::files {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian; big-endian hosts are not supported");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // limit of the format
constexpr const char* kMetadata = "__metadata__";

// Returns the number of elements, or -1 if a size is negative or the product overflows.
std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return -1;
  }
  return count;
}

// Returns the size in bytes, or -1 if it overflows.
std::int64_t bytes_of(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bytes = 0;
  const std::int64_t count = element_count(shape);
  if (count < 0 || __builtin_mul_overflow(count, safetensors_size(dtype), &bytes)) return -1;
  return bytes;
}

std::string header_of(const std::vector<TensorBytes>& tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::int64_t offset = 0;
  for (const TensorBytes& tensor : tensors) {
    if (header.contains(tensor.name)) throw SafetensorsError("weft: duplicate tensor name '" + tensor.name + "'");
    const std::int64_t bytes = bytes_of(tensor.dtype, tensor.shape);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
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
  AtomicFile file(path);
  file.write(&length, kLengthBytes);
  file.write(header);
  for (const TensorBytes& tensor : tensors) file.write(tensor.data, bytes_of(tensor.dtype, tensor.shape));
  file.commit();
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failed;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path_, failed));
  if (failed) fail(failed.message());
  std::ifstream stream(path_, std::ios::binary);
  std::uint64_t length = 0;
  stream.read(reinterpret_cast<char*>(&length), kLengthBytes);
  if (!stream || length > kMaxHeaderBytes || static_cast<std::int64_t>(length) > size - kLengthBytes) {
    fail("invalid header length (the file has " + std::to_string(size) + " bytes)");
  }
  std::string text(length, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(length));
  if (!stream) fail("truncated header");
  data_begin_ = kLengthBytes + static_cast<std::int64_t>(length);
  parse_header(text, size - data_begin_);
}

void SafetensorsFile::fail(const std::string& problem) const {
  throw SafetensorsError("weft: cannot read safetensors file '" + path_.string() + "': " + problem);
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
      if (info.end > data_bytes) fail("the file ends before the data of tensor '" + name + "'");
      const bool ordered = info.begin >= 0 && info.begin <= info.end;
      if (!ordered || safetensors_size(info.dtype) == 0 || bytes_of(info.dtype, info.shape) != info.end - info.begin) {
        fail("tensor '" + name + "' has inconsistent type, shape and offsets");
      }
      tensors_[name] = std::move(info);
    }
  } catch (const nlohmann::json::exception& error) {
    fail(std::string("invalid header: ") + error.what());
  }
}

void SafetensorsFile::read(const std::string& name, void* into, std::int64_t bytes) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail("no tensor '" + name + "'");
  if (found->second.end - found->second.begin != bytes) {
    fail("tensor '" + name + "' has " + std::to_string(found->second.end - found->second.begin) + " bytes, expected " +
         std::to_string(bytes));
  }
  std::ifstream stream(path_, std::ios::binary);
  stream.seekg(data_begin_ + found->second.begin);
  stream.read(static_cast<char*>(into), bytes);
  if (!stream) fail("truncated data of tensor '" + name + "'");
}

}  // namespace weft::files
