// The safetensors format: a JSON header with names, types, shapes and offsets, then the bytes. No torch.
//
// Readers trust nothing: sizes, offsets and shapes of a file have to fit each other and the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::experiment {

// A file of a checkpoint that is damaged, absent or of another experiment.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TensorInfo {
  std::string dtype;  // "F32", "F64", "I64", ...
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // in the bytes behind the header
  std::int64_t end = 0;
};

struct TensorBytes {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  // as many bytes as type and shape say
};

using Metadata = std::map<std::string, std::string>;

// Whole or not at all. Throws files::FileError.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                       const Metadata& metadata);

class SafetensorsFile {
 public:
  // Reads and checks the header. Throws CheckpointError.
  explicit SafetensorsFile(std::filesystem::path path);

  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const Metadata& metadata() const noexcept { return metadata_; }
  // The bytes of a tensor into memory of that size. Throws CheckpointError.
  void read(const std::string& name, void* into, std::int64_t bytes) const;

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  void parse_header(const std::string& text, std::int64_t data_bytes);

  std::filesystem::path path_;
  std::int64_t data_begin_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  Metadata metadata_;
};

// Bytes of one value; 0 for a type that is not known.
[[nodiscard]] std::int64_t safetensors_size(const std::string& dtype);

}  // namespace weft::experiment
