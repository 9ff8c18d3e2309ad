// SwitchML's Session service, and weft's Membership service.
#pragma once

#include "switchml.grpc.pb.h"
#include "weft/control/log_limit.h"
#include "weft/control/rpc/authenticator.h"
#include "weft/control/sessions.h"
#include "weft_switch.grpc.pb.h"

namespace weft::control::rpc {

struct Places {
  std::uint32_t data = 0;  // destination of packets; 0.0.0.0: the address at which the worker reached the control plane
  bool multihomed = false;  // workers without a key may use another address for packets
};

class SessionService final : public switchml_proto::Session::CallbackService {
 public:
  SessionService(Authenticator& authenticator, Sessions& sessions, EventCounters& counters, const Places& places)
      : authenticator_(authenticator), sessions_(sessions), counters_(counters), places_(places) {}

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
  // Returns the reason why a valid request is refused, or an empty text.
  [[nodiscard]] std::string objection(const SessionRequest& request, const AuthenticatedCall& call) const;
  [[nodiscard]] grpc::Status refuse(const SessionRequest& request, const Refused& refused);
  // Logs a call that failed authentication.
  [[nodiscard]] grpc::Status log_rejection(std::uint32_t rank, const AuthenticatedCall& call);

  Authenticator& authenticator_;
  Sessions& sessions_;
  EventCounters& counters_;
  Places places_;
  LogLimit refusals_;
  LogLimit changes_;  // admissions and evictions
};

// weft's extension of SwitchML's services.
class MembershipService final : public weft_switch::Membership::CallbackService {
 public:
  MembershipService(Authenticator& authenticator, Sessions& sessions)
      : authenticator_(authenticator), sessions_(sessions) {}
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const weft_switch::LeaveRequest* request,
                                  weft_switch::LeaveResponse* response) override;

 private:
  Authenticator& authenticator_;
  Sessions& sessions_;
  LogLimit changes_;
};

}  // namespace weft::control::rpc
