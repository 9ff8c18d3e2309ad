// Writes scalars to TensorBoard event files, without TensorFlow or protobuf.
//
// A file is a sequence of TFRecords (length, checksum of the length, data, checksum of the data). Each record contains
// one Event message.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace weft::trace {

class TensorBoardFile {
 public:
  // Creates `folder` and the file events.out.tfevents.<seconds>.<host>.<pid> in it. Throws files::FileError.
  explicit TensorBoardFile(const std::filesystem::path& folder);
  // Creates the file `path`; `wall_time` is the time of its first record. Throws files::FileError.
  TensorBoardFile(std::filesystem::path path, double wall_time);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // `wall_time` is in seconds since 1970. Flushes the file, so that TensorBoard shows the value during the run. Throws
  // files::FileError.
  void add_scalar(std::string_view tag, std::int64_t step, float value, double wall_time);
  // Marks a resumed run: TensorBoard discards values of `step` and later from earlier files of the folder. Throws
  // files::FileError.
  void restart_at(std::int64_t step, double wall_time);

 private:
  void write_record(const std::string& data);

  std::filesystem::path path_;
  std::ofstream stream_;
};

// CRC-32C (Castagnoli), the checksum of TFRecords.
[[nodiscard]] std::uint32_t crc32c(std::string_view data) noexcept;

}  // namespace weft::trace
