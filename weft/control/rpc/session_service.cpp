#include "weft/control/rpc/session_service.h"

#include <spdlog/spdlog.h>

#include "weft/control/rpc/metadata.h"
#include "weft/control/socket.h"

namespace weft::control::rpc {
namespace {

using switchml_proto::UdpSessionRequest;

// What the worker asks for, or why that cannot be.
std::variant<SetUp, std::string> set_up_of(const UdpSessionRequest& request, const Passage& passage) {
  Terms terms;
  if (!passage.terms.empty() && !terms.read(passage.terms)) return "the terms of the set-up are not understood";
  if (terms.packet_elements == 0) {
    if (request.packet_size() != switchml_proto::MTU_256 && request.packet_size() != switchml_proto::MTU_1024) {
      return "packets carry 64 or 256 elements (packet_size MTU_256 or MTU_1024)";
    }
    terms.packet_elements = request.packet_size() == switchml_proto::MTU_256 ? 64 : 256;
  }
  SetUp set_up;
  set_up.job = passage.job;
  set_up.session = request.session_id();
  set_up.rank = request.rank();
  set_up.workers = request.num_workers();
  set_up.address = {request.ipv4() != 0 ? request.ipv4() : passage.visitor->remote.ipv4,
                    static_cast<std::uint16_t>(terms.port)};
  set_up.packet_elements = terms.packet_elements;
  set_up.mode = terms.mode;
  set_up.slots = terms.slots;
  if (terms.first_operation >= 0) set_up.first_operation = static_cast<std::uint8_t>(terms.first_operation);
  set_up.own_client = passage.terms.empty();
  set_up.key = passage.key;
  return set_up;
}

grpc::ServerUnaryReactor* answered(grpc::CallbackServerContext* context, const grpc::Status& status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* SessionService::UdpSession(grpc::CallbackServerContext* context,
                                                     const UdpSessionRequest* request,
                                                     switchml_proto::UdpSessionResponse* response) {
  return answered(context, open(*context, *request, *response));
}

grpc::Status SessionService::open(grpc::CallbackServerContext& context, const UdpSessionRequest& request,
                                  switchml_proto::UdpSessionResponse& response) {
  const Passage passage = gate_.pass(context, "UdpSession", request);
  if (!passage.status.ok()) return turn_away(request.rank(), passage);
  const auto understood = set_up_of(request, passage);
  if (const auto* reason = std::get_if<std::string>(&understood)) return gate_.bad_request(*reason);
  const SetUp& set_up = std::get<SetUp>(understood);
  if (const std::string reason = objection(set_up, passage); !reason.empty()) return refuse(set_up, {reason});
  const auto answer = sessions_.join(set_up);
  if (const auto* refused = std::get_if<Refused>(&answer)) return refuse(set_up, *refused);
  const auto& [admission, news, evicted] = std::get<Placed>(answer);
  if (news) counters_.add(Event::kAdmitted);
  if (evicted > 0) spdlog::info("ended {} session(s) that were idle, to make room for job '{}'", evicted, passage.job);
  context.AddTrailingMetadata(kAdmission, write_admission(admission));
  response.set_session_id(request.session_id());
  response.set_ipv4(places_.data != 0 ? places_.data : passage.visitor->local.ipv4);
  response.set_mac(hardware_address(response.ipv4()));  // where SwitchML's DPDK clients send frames
  spdlog::log(news ? spdlog::level::info : spdlog::level::debug,
              "admitted job '{}' session {:016x} rank {} of {} at {}: {} slots, operations from {}", passage.job,
              request.session_id(), request.rank(), request.num_workers(), set_up.address.describe(), admission.slots,
              unsigned{admission.first_operation});
  return grpc::Status::OK;
}

// Results go where a worker says that it is. Who has no key could otherwise let the switch send them to anybody.
std::string SessionService::objection(const SetUp& set_up, const Passage& passage) const {
  const std::uint32_t from = passage.visitor->remote.ipv4;
  const std::uint32_t to = set_up.address.ipv4;
  if (set_up.key != nullptr || places_.multihomed || to == from) return "";
  if (is_own_address(from) && is_own_address(to)) return "";
  return "a worker that sets itself up from " + aggregation::Address{from, 0}.describe() + " wants its packets at " +
         set_up.address.describe() +
         ", which only a job with a key may (--jobs), or everybody where the switch is started with --multihomed";
}

grpc::Status SessionService::refuse(const SetUp& set_up, const Refused& refused) {
  warn("refused set-up: job '" + set_up.job + "' rank " + std::to_string(set_up.rank) + ": " + refused.reason);
  return refused.no_room ? gate_.no_room(refused.reason) : gate_.bad_request(refused.reason);
}

grpc::Status SessionService::turn_away(std::uint32_t rank, const Passage& passage) {
  const std::string line = "refused set-up: job '" + passage.job + "' rank " + std::to_string(rank) + " from " +
                           (passage.visitor ? passage.visitor->remote.describe() : "?") + ": " +
                           passage.status.error_message();
  if (passage.status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    spdlog::debug("{}", line);  // challenged, as everybody is who has a key
  } else {
    warn(line);
  }
  return passage.status;
}

// Who is refused can come again at once, and often.
void SessionService::warn(const std::string& line) {
  if (const auto passed = refusals_.pass(line, LogLimit::Clock::now())) spdlog::warn("{}", *passed);
}

grpc::ServerUnaryReactor* SessionService::RdmaSession(grpc::CallbackServerContext* context,
                                                      const switchml_proto::RdmaSessionRequest* request,
                                                      switchml_proto::RdmaSessionResponse* /*response*/) {
  const Passage passage = gate_.pass(*context, "RdmaSession", *request);
  if (!passage.status.ok()) return answered(context, passage.status);
  return answered(context, {grpc::StatusCode::UNIMPLEMENTED,
                            "weft-switch: it sums UDP packets, not RDMA messages; use backend = udp or dpdk"});
}

grpc::ServerUnaryReactor* MembershipService::Leave(grpc::CallbackServerContext* context,
                                                   const weft_switch::LeaveRequest* request,
                                                   weft_switch::LeaveResponse* /*response*/) {
  const Passage passage = gate_.pass(*context, "Leave", *request);
  if (passage.status.ok() && sessions_.leave(request->session_id(), request->rank(), passage.job)) {
    spdlog::info("ended job '{}' session {:016x}: all workers have left", passage.job, request->session_id());
  }
  return answered(context, passage.status);
}

}  // namespace weft::control::rpc
