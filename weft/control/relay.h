// Copies bytes between a client and gRPC. It reads only as fast as its owner permits, and nothing while the client does
// not read its replies, because gRPC would buffer them without limit.
#pragma once

#include <poll.h>

#include <array>
#include <string>

#include "weft/control/frame_meter.h"
#include "weft/files/file_descriptor.h"

namespace weft::control {

class Relay {
 public:
  // Non-blocking sockets: one to the client, the other is the end of a socket pair that gRPC does not own.
  Relay(files::FileDescriptor client, files::FileDescriptor server)
      : client_(std::move(client)), server_(std::move(server)) {}

  // Descriptors of client and server with the events to wait for. `may_read`: the client may send now.
  [[nodiscard]] std::array<pollfd, 2> watched(bool may_read) const;
  // Copies what is possible without blocking: from the client at most one step of kStepBytes. Adds the cost of its
  // frames to `cost`. Returns false if one side has closed its connection or failed.
  [[nodiscard]] bool advance(bool may_read, double& cost);

 private:
  static constexpr std::size_t kStepBytes = 1024;
  static constexpr std::size_t kReplyBytes = 4096;

  files::FileDescriptor client_;
  files::FileDescriptor server_;
  std::string requests_;  // read from the client, not yet accepted by gRPC
  std::string replies_;   // the other direction
  FrameMeter meter_;
};

}  // namespace weft::control
