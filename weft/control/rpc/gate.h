// What every call to the switch passes first: its connection is known, its size is sane, and it may be made.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "weft/control/admission.h"
#include "weft/control/front_door.h"

namespace weft::control::rpc {

// A call that passed, or the status it ends with.
struct Passage {
  grpc::Status status;
  std::string job;
  std::string terms;
  const JobKey* key = nullptr;
  std::shared_ptr<const Visitor> visitor;  // held while the call is being answered
};

class Gate {
 public:
  Gate(Admission& admission, FrontDoor& door, Counters& counters)
      : admission_(admission), door_(door), counters_(counters) {}

  [[nodiscard]] Passage pass(grpc::CallbackServerContext& context, const char* method,
                             const google::protobuf::MessageLite& request);
  [[nodiscard]] grpc::Status bad_request(const std::string& reason);
  [[nodiscard]] grpc::Status no_room(const std::string& reason);

 private:
  Admission& admission_;
  FrontDoor& door_;
  Counters& counters_;
};

}  // namespace weft::control::rpc
