#include "weft/trace/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <concepts>
#include <system_error>
#include <utility>

#include "weft/files/error.h"
#include "weft/trace/wall_time.h"

namespace weft::trace {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82F63B78U : crc >> 1;
    table[byte] = crc;
  }
  return table;
}

// TFRecord masks its checksums, because the checksum of data that contains its own checksum is weak.
std::uint32_t masked_crc(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xA282EAD8U; }

template <std::unsigned_integral Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Number); ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
  return bytes;
}

// Protocol buffer encoding: a field consists of its number and wire type, followed by its content.
enum class Wire : std::uint8_t { kVarint = 0, k64Bit = 1, kLength = 2, k32Bit = 5 };

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<char>((number & 0x7F) | 0x80));
  bytes.push_back(static_cast<char>(number));
  return bytes;
}

std::string field(unsigned number, Wire wire, std::string_view content) {
  return varint(number << 3 | static_cast<unsigned>(wire)).append(content);
}

std::string message(unsigned number, std::string_view content) {
  return field(number, Wire::kLength, varint(content.size()).append(content));
}

// Field numbers from tensorflow/core/util/event.proto and framework/summary.proto.
constexpr unsigned kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5, kEventSession = 7;
constexpr unsigned kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;
constexpr unsigned kSessionStatus = 1, kSessionStart = 1;

std::string event(double wall_time, std::int64_t step, const std::string& content) {
  return field(kEventWallTime, Wire::k64Bit, little_endian(std::bit_cast<std::uint64_t>(wall_time))) +
         field(kEventStep, Wire::kVarint, varint(static_cast<std::uint64_t>(step))) + content;
}

std::string file_name(double seconds) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return "events.out.tfevents." + std::to_string(static_cast<std::int64_t>(seconds)) + "." + host.data() + "." +
         std::to_string(getpid());
}

}  // namespace

std::uint32_t crc32c(std::string_view data) noexcept {
  static constexpr auto kTable = crc_table();
  std::uint32_t crc = ~0U;
  for (const char c : data) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

TensorBoardFile::TensorBoardFile(const std::filesystem::path& folder)
    : TensorBoardFile(folder / file_name(seconds_since_1970()), seconds_since_1970()) {}

TensorBoardFile::TensorBoardFile(std::filesystem::path path, double wall_time) : path_(std::move(path)) {
  std::error_code ignored;  // opening the file reports the error
  std::filesystem::create_directories(path_.parent_path(), ignored);
  stream_.open(path_, std::ios::binary);
  if (!stream_) files::throw_errno("create", path_);
  write_record(event(wall_time, 0, message(kEventFileVersion, "brain.Event:2")));
}

void TensorBoardFile::add_scalar(std::string_view tag, std::int64_t step, float value, double wall_time) {
  const std::string scalar =
      message(kValueTag, tag) + field(kValueSimple, Wire::k32Bit, little_endian(std::bit_cast<std::uint32_t>(value)));
  write_record(event(wall_time, step, message(kEventSummary, message(kSummaryValue, scalar))));
}

void TensorBoardFile::restart_at(std::int64_t step, double wall_time) {
  const std::string start = field(kSessionStatus, Wire::kVarint, varint(kSessionStart));
  write_record(event(wall_time, step, message(kEventSession, start)));
}

void TensorBoardFile::write_record(const std::string& data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  stream_ << length << little_endian(masked_crc(length)) << data << little_endian(masked_crc(data)) << std::flush;
  if (!stream_) throw files::FileError("weft: could not write '" + path_.string() + "'");
}

}  // namespace weft::trace
