#include "weft/control/rpc/gate.h"

#include "weft/control/rpc/metadata.h"

namespace weft::control::rpc {
namespace {

constexpr std::size_t kLargestRequest = 4096;  // SwitchML's are below 100 bytes
constexpr std::size_t kLongestWord = 256;

// Empty if there is none.
std::string metadata(const grpc::CallbackServerContext& context, const char* name) {
  const auto& all = context.client_metadata();
  const auto found = all.find(name);
  if (found == all.end()) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace

grpc::Status Gate::bad_request(const std::string& reason) {
  counters_.add(Event::kRefusedBadRequest);
  return {grpc::StatusCode::INVALID_ARGUMENT, "weft-switch: " + reason};
}

grpc::Status Gate::no_room(const std::string& reason) {
  counters_.add(Event::kRefusedNoRoom);
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, "weft-switch: " + reason};
}

Passage Gate::pass(grpc::CallbackServerContext& context, const char* method,
                   const google::protobuf::MessageLite& request) {
  Passage passage;
  passage.visitor = door_.request_from(context.peer());
  if (!passage.visitor) {
    passage.status = {grpc::StatusCode::UNAVAILABLE, "weft-switch: this connection was closed"};
    return passage;
  }
  passage.job = metadata(context, kJob);
  passage.terms = metadata(context, kTerms);
  if (request.ByteSizeLong() > kLargestRequest || passage.job.size() > kLongestWord ||
      passage.terms.size() > kLongestWord) {
    passage.status = bad_request("the request is larger than any that makes sense");
    return passage;
  }
  const Caller caller{is_own_address(passage.visitor->remote.ipv4), metadata(context, kNonce),
                      metadata(context, kProof)};
  const Claim claim{method, passage.job, passage.terms, request.SerializeAsString()};
  const Decision decision = admission_.decide(caller, claim, Nonces::Clock::now());
  passage.key = decision.key;
  if (decision.kind == Decision::Kind::kChallenge) {
    context.AddTrailingMetadata(kNonce, decision.nonce);
    passage.status = {grpc::StatusCode::UNAUTHENTICATED, "weft-switch: " + decision.reason};
  } else if (decision.kind == Decision::Kind::kRefuse) {
    passage.status = {grpc::StatusCode::PERMISSION_DENIED, "weft-switch: " + decision.reason};
  } else {
    door_.admit(context.peer());
  }
  return passage;
}

}  // namespace weft::control::rpc
