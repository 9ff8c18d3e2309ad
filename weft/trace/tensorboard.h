// TensorBoard's event files: scalars over steps, written without TensorFlow or protobuf.
//
// A file is a sequence of TFRecords (length, its checksum, data, its checksum); each holds one Event message.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace weft::trace {

class TensorBoardFile {
 public:
  // Makes events.out.tfevents.<seconds>.<host>.<pid> in `folder`, which is made too. Throws files::FileError.
  explicit TensorBoardFile(const std::filesystem::path& folder);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // `wall_time` in seconds since 1970. Reaches the file at once, so that TensorBoard shows it while the run goes on.
  void add_scalar(std::string_view tag, std::int64_t step, float value, double wall_time);
  // For a run that goes on: TensorBoard forgets what earlier files of the folder have of this step and later ones.
  void forget_from(std::int64_t step, double wall_time);

 private:
  void write_record(const std::string& data);

  std::filesystem::path path_;
  std::ofstream stream_;
};

// Castagnoli's CRC-32, as TFRecords, iSCSI and ext4 use it.
[[nodiscard]] std::uint32_t crc32c(std::string_view data) noexcept;

}  // namespace weft::trace
