// Cost of the HTTP/2 frames that a client sends, for rate limits.
//
// A request of 20 bytes makes gRPC allocate kilobytes, so bytes alone do not measure the load. A client can also cancel
// its requests, which HTTP/2's limit of concurrent streams then does not count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::control {

class FrameMeter {
 public:
  static constexpr double kRequest = 4;  // a frame that starts, extends or cancels a request
  static constexpr double kOther = 1;
  static constexpr double kPerKibibyte = 1;  // in addition

  // Returns the cost of the connection's next bytes. Frames may be split between calls; a frame is charged when its
  // header is complete.
  [[nodiscard]] double cost(std::string_view bytes);

 private:
  [[nodiscard]] double begin_frame();

  static constexpr std::size_t kPrefaceBytes = 24;
  static constexpr std::size_t kHeaderBytes = 9;
  std::size_t skip_ = kPrefaceBytes;  // bytes until the next header
  std::array<std::uint8_t, kHeaderBytes> header_{};
  std::size_t read_ = 0;  // bytes of header_
};

}  // namespace weft::control
