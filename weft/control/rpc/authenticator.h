// Authenticates every call to the switch and checks its connection and size.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "weft/control/access_control.h"
#include "weft/control/connection_limiter.h"

namespace weft::control::rpc {

// An authenticated call, or the status that rejects it.
struct AuthenticatedCall {
  grpc::Status status;
  std::string job;
  std::string terms;
  std::shared_ptr<const JobKey> key;
  std::shared_ptr<const Peer> peer;  // held while the call is answered
};

class Authenticator {
 public:
  Authenticator(AccessControl& access, ConnectionLimiter& limiter, EventCounters& counters)
      : access_(access), limiter_(limiter), counters_(counters) {}

  [[nodiscard]] AuthenticatedCall authenticate(grpc::CallbackServerContext& context, const char* method,
                                               const google::protobuf::MessageLite& request);
  [[nodiscard]] grpc::Status bad_request(const std::string& reason);
  [[nodiscard]] grpc::Status no_room(const std::string& reason);

 private:
  AccessControl& access_;
  ConnectionLimiter& limiter_;
  EventCounters& counters_;
};

}  // namespace weft::control::rpc
