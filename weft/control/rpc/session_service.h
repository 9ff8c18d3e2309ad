// SwitchML's Session service: a worker's set-up, answered from the switch's sessions.
#pragma once

#include "switchml.grpc.pb.h"
#include "weft/control/log_limit.h"
#include "weft/control/rpc/gate.h"
#include "weft/control/sessions.h"
#include "weft_switch.grpc.pb.h"

namespace weft::control::rpc {

struct Places {
  std::uint32_t data = 0;   // where packets go; 0.0.0.0: the address at which the worker reached the control plane
  bool multihomed = false;  // whether workers without a key may have packets from elsewhere than their set-up
};

class SessionService final : public switchml_proto::Session::CallbackService {
 public:
  SessionService(Gate& gate, Sessions& sessions, Counters& counters, const Places& places)
      : gate_(gate), sessions_(sessions), counters_(counters), places_(places) {}

  grpc::ServerUnaryReactor* UdpSession(grpc::CallbackServerContext* context,
                                       const switchml_proto::UdpSessionRequest* request,
                                       switchml_proto::UdpSessionResponse* response) override;
  grpc::ServerUnaryReactor* RdmaSession(grpc::CallbackServerContext* context,
                                        const switchml_proto::RdmaSessionRequest* request,
                                        switchml_proto::RdmaSessionResponse* response) override;

 private:
  [[nodiscard]] grpc::Status open(grpc::CallbackServerContext& context,
                                  const switchml_proto::UdpSessionRequest& request,
                                  switchml_proto::UdpSessionResponse& response);
  // Of what was understood: why it is not admitted; empty if it is.
  [[nodiscard]] std::string objection(const SetUp& set_up, const Passage& passage) const;
  [[nodiscard]] grpc::Status refuse(const SetUp& set_up, const Refused& refused);
  // The same for who did not pass the gate.
  [[nodiscard]] grpc::Status turn_away(std::uint32_t rank, const Passage& passage);
  void warn(const std::string& line);

  Gate& gate_;
  Sessions& sessions_;
  Counters& counters_;
  Places places_;
  LogLimit refusals_;
};

// weft's own addition.
class MembershipService final : public weft_switch::Membership::CallbackService {
 public:
  MembershipService(Gate& gate, Sessions& sessions) : gate_(gate), sessions_(sessions) {}
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const weft_switch::LeaveRequest* request,
                                  weft_switch::LeaveResponse* response) override;

 private:
  Gate& gate_;
  Sessions& sessions_;
};

}  // namespace weft::control::rpc
