#include "weft/control/rpc/session_service.h"

#include <spdlog/spdlog.h>

#include "weft/aggregation/transport/shared_memory.h"
#include "weft/control/rpc/metadata.h"
#include "weft/control/socket.h"

namespace weft::control::rpc {
namespace {

using Level = spdlog::level::level_enum;
using switchml_proto::UdpSessionRequest;

// Clients cause these lines and may repeat their requests often.
void write(LogLimit& limit, Level level, const std::string& line) {
  if (const auto passed = limit.pass(line, LogLimit::Clock::now())) spdlog::log(level, "{}", *passed);
}

// Maps the memory that a worker on this machine offers; null if there is none or this process cannot map it.
std::shared_ptr<const aggregation::SharedSlots> shared_with(const Terms& terms) {
  if (terms.memory.process == 0 || terms.slots == 0) return nullptr;
  const auto memory = aggregation::SharedMemory::open(terms.memory, terms.slots, terms.packet_elements);
  return memory ? std::shared_ptr<const aggregation::SharedSlots>(memory, &memory->slots()) : nullptr;
}

// Parses a request; returns an error message if it is invalid.
std::variant<SessionRequest, std::string> parse_request(const UdpSessionRequest& request,
                                                        const AuthenticatedCall& call) {
  Terms terms;
  if (!call.terms.empty() && !terms.read(call.terms))
    return "invalid terms in the metadata; do switch and worker have the same version?";
  if (terms.packet_elements == 0) {
    if (request.packet_size() != switchml_proto::MTU_256 && request.packet_size() != switchml_proto::MTU_1024) {
      return "packet_size must be MTU_256 or MTU_1024 (64 or 256 elements)";
    }
    terms.packet_elements = request.packet_size() == switchml_proto::MTU_256 ? 64 : 256;
  }
  SessionRequest join;
  join.job = call.job;
  join.session = request.session_id();
  join.rank = request.rank();
  join.workers = request.num_workers();
  join.address = {request.ipv4() != 0 ? request.ipv4() : call.peer->remote.ipv4,
                  static_cast<std::uint16_t>(terms.port)};
  join.packet_elements = terms.packet_elements;
  join.mode = terms.mode;
  join.slots = terms.slots;
  if (terms.first_operation >= 0) join.first_operation = static_cast<std::uint8_t>(terms.first_operation);
  join.is_switchml_client = call.terms.empty();
  join.key = call.key.get();
  if (!call.peer->on_this_machine) join.host = call.peer->remote.ipv4;
  join.salt = terms.salt;
  if (call.peer->on_this_machine) join.memory = shared_with(terms);
  return join;
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
  const AuthenticatedCall call = authenticator_.authenticate(context, "UdpSession", request);
  if (!call.status.ok()) return log_rejection(request.rank(), call);
  const auto understood = parse_request(request, call);
  if (const auto* reason = std::get_if<std::string>(&understood)) return authenticator_.bad_request(*reason);
  const SessionRequest& join = std::get<SessionRequest>(understood);
  if (const std::string reason = objection(join, call); !reason.empty()) return refuse(join, {reason});
  const auto answer = sessions_.join(join);
  if (const auto* refused = std::get_if<Refused>(&answer)) return refuse(join, *refused);
  const auto& [admission, changed, evicted] = std::get<Placed>(answer);
  if (changed) counters_.add(Event::kAdmitted);
  if (evicted > 0)
    write(changes_, Level::info, fmt::format("evicted {} idle session(s) for job '{}'", evicted, call.job));
  context.AddTrailingMetadata(kAdmission, write_admission(admission));
  response.set_session_id(request.session_id());
  response.set_ipv4(places_.data != 0 ? places_.data : call.peer->local.ipv4);
  response.set_mac(hardware_address(response.ipv4()));  // SwitchML's DPDK clients send frames there
  const std::string line =
      fmt::format("admitted job '{}' session {:016x} rank {} of {} at {}: {} slots, operations from {}", call.job,
                  request.session_id(), request.rank(), request.num_workers(), join.address.describe(), admission.slots,
                  unsigned{admission.first_operation});
  changed ? write(changes_, Level::info, line) : spdlog::debug("{}", line);
  return grpc::Status::OK;
}

// Results go to the address that the worker names. Without this check, a caller without a key could direct them to any
// host.
std::string SessionService::objection(const SessionRequest& request, const AuthenticatedCall& call) const {
  const std::uint32_t from = call.peer->remote.ipv4;
  const std::uint32_t to = request.address.ipv4;
  if (request.key != nullptr || places_.multihomed || to == from) return "";
  if (call.peer->on_this_machine && is_own_address(to)) return "";
  return "a worker that joins from " + aggregation::Address{from, 0}.describe() + " requests results at " +
         request.address.describe() + "; this requires a job key (--jobs) or a switch with --multihomed";
}

grpc::Status SessionService::refuse(const SessionRequest& request, const Refused& refused) {
  write(refusals_, Level::warn,
        "refused request: job '" + request.job + "' rank " + std::to_string(request.rank) + ": " + refused.reason);
  return refused.no_room ? authenticator_.no_room(refused.reason) : authenticator_.bad_request(refused.reason);
}

grpc::Status SessionService::log_rejection(std::uint32_t rank, const AuthenticatedCall& call) {
  const std::string line = "refused request: job '" + call.job + "' rank " + std::to_string(rank) + " from " +
                           (call.peer ? call.peer->remote.describe() : "?") + ": " + call.status.error_message();
  if (call.status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    spdlog::debug("{}", line);  // a challenge, which is normal
  } else {
    write(refusals_, Level::warn, line);
  }
  return call.status;
}

grpc::ServerUnaryReactor* SessionService::RdmaSession(grpc::CallbackServerContext* context,
                                                      const switchml_proto::RdmaSessionRequest* request,
                                                      switchml_proto::RdmaSessionResponse* /*response*/) {
  const AuthenticatedCall call = authenticator_.authenticate(*context, "RdmaSession", *request);
  if (!call.status.ok()) return answered(context, call.status);
  return answered(context,
                  {grpc::StatusCode::UNIMPLEMENTED, "weft-switch: RDMA is not supported; use backend = udp or dpdk"});
}

grpc::ServerUnaryReactor* MembershipService::Leave(grpc::CallbackServerContext* context,
                                                   const weft_switch::LeaveRequest* request,
                                                   weft_switch::LeaveResponse* /*response*/) {
  const AuthenticatedCall call = authenticator_.authenticate(*context, "Leave", *request);
  if (call.status.ok() && sessions_.leave(request->session_id(), request->rank(), call.job)) {
    write(changes_, Level::info,
          fmt::format("ended job '{}' session {:016x}: all workers have left", call.job, request->session_id()));
  }
  return answered(context, call.status);
}

}  // namespace weft::control::rpc
