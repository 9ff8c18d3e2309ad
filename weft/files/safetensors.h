// Reader and writer of the safetensors format: a JSON header with names, types, shapes and offsets, then the data.
//
// The reader does not trust the file: it checks sizes, offsets and shapes against each other and against the file size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::files {

// Thrown if a safetensors file is missing or damaged, or lacks a requested tensor.
class SafetensorsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TensorInfo {
  std::string dtype;  // "F32", "F64", "I64", ...
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // byte offset after the header
  std::int64_t end = 0;
};

struct TensorBytes {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  // its size follows from dtype and shape
};

using Metadata = std::map<std::string, std::string>;

// Replaces `path` atomically. Throws FileError if it cannot be written, SafetensorsError for duplicate names.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                       const Metadata& metadata);

class SafetensorsFile {
 public:
  // Reads and validates the header. Throws SafetensorsError.
  explicit SafetensorsFile(std::filesystem::path path);

  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const Metadata& metadata() const noexcept { return metadata_; }
  // Copies the data of tensor `name` to `into`. Throws SafetensorsError unless the tensor exists and has `bytes` bytes.
  void read(const std::string& name, void* into, std::int64_t bytes) const;

 private:
  [[noreturn]] void fail(const std::string& problem) const;
  void parse_header(const std::string& text, std::int64_t data_bytes);

  std::filesystem::path path_;
  std::int64_t data_begin_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  Metadata metadata_;
};

// Returns the bytes per element of `dtype`, or 0 if the type is unknown.
[[nodiscard]] std::int64_t safetensors_size(const std::string& dtype);

}  // namespace weft::files
