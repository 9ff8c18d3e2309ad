#include "weft/control/rpc/authenticator.h"

#include "weft/aggregation/config/job_name.h"
#include "weft/control/rpc/metadata.h"

namespace weft::control::rpc {
namespace {

constexpr std::size_t kLargestRequest = 4096;  // SwitchML's requests are below 100 bytes
constexpr std::size_t kLongestWord = 256;

// Returns an empty text if the key is missing.
std::string metadata(const grpc::CallbackServerContext& context, const char* name) {
  const auto& all = context.client_metadata();
  const auto found = all.find(name);
  if (found == all.end()) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace

grpc::Status Authenticator::bad_request(const std::string& reason) {
  counters_.add(Event::kRefusedBadRequest);
  return {grpc::StatusCode::INVALID_ARGUMENT, "weft-switch: " + reason};
}

grpc::Status Authenticator::no_room(const std::string& reason) {
  counters_.add(Event::kRefusedNoRoom);
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, "weft-switch: " + reason};
}

AuthenticatedCall Authenticator::authenticate(grpc::CallbackServerContext& context, const char* method,
                                              const google::protobuf::MessageLite& request) {
  AuthenticatedCall call;
  call.peer = limiter_.request_from(context.peer());
  if (!call.peer) {
    call.status = {grpc::StatusCode::UNAVAILABLE, "weft-switch: the connection was closed"};
    return call;
  }
  const std::string job = metadata(context, kJob);
  if (!job.empty() && !aggregation::is_job_name(job)) {  // log lines and metrics contain the name
    call.status = bad_request(std::string("invalid job name; a job name has ") + aggregation::kJobNameRule);
    return call;
  }
  call.job = job;
  call.terms = metadata(context, kTerms);
  if (request.ByteSizeLong() > kLargestRequest || call.terms.size() > kLongestWord) {
    call.status = bad_request("the request is too large");
    return call;
  }
  const Caller caller{call.peer->on_this_machine, metadata(context, kNonce), metadata(context, kRequestMac)};
  const Claim claim{method, call.job, call.terms, request.SerializeAsString()};
  const Decision decision = access_.decide(caller, claim, Nonces::Clock::now());
  call.key = decision.key;
  if (decision.kind == Decision::Kind::kChallenge) {
    context.AddTrailingMetadata(kNonce, decision.nonce);
    call.status = {grpc::StatusCode::UNAUTHENTICATED, "weft-switch: " + decision.reason};
  } else if (decision.kind == Decision::Kind::kRefuse) {
    call.status = {grpc::StatusCode::PERMISSION_DENIED, "weft-switch: " + decision.reason};
  } else {
    limiter_.admit(context.peer());
  }
  return call;
}

}  // namespace weft::control::rpc
