#include "weft/control/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "switchml.grpc.pb.h"
#include "weft/control/keys.h"
#include "weft/control/proof.h"
#include "weft/control/rpc/metadata.h"
#include "weft_switch.grpc.pb.h"

namespace weft::control::rpc {
namespace {

using Clock = std::chrono::system_clock;  // gRPC's deadlines
constexpr auto kOneTry = std::chrono::seconds(3);
constexpr int kSwitchMlSlots = 8192;
constexpr std::uint16_t kSwitchMlPort = 48864;
constexpr auto kBetweenTries = std::chrono::milliseconds(100);
constexpr int kMostChallenges = 8;  // one is usual; a restarted switch, or one with many set-ups, forgets its nonces

std::string trailing(const grpc::ClientContext& context, const char* name) {
  const auto& all = context.GetServerTrailingMetadata();
  const auto found = all.find(name);
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

class GrpcClient final : public Client {
 public:
  explicit GrpcClient(const ClientOptions& options)
      : options_(options), target_(options.host + ":" + std::to_string(options.port)) {
    if (!options.keys.empty()) secret_ = JobKeys::load(options.keys).at(options.job).secret;
    grpc::ChannelArguments arguments;
    // Reconnects soon: a switch that was restarted is back within a second.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a switch is a neighbour
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(target_, grpc::InsecureChannelCredentials(), arguments);
    session_ = switchml_proto::Session::NewStub(channel_);
    sync_ = switchml_proto::Sync::NewStub(channel_);
    membership_ = weft_switch::Membership::NewStub(channel_);
  }

  Joined join(const JoinRequest& request, Patience patience) override;
  void leave(std::uint64_t session, std::uint32_t rank, Patience patience) override;
  void barrier(std::uint32_t workers, Patience patience) override;
  std::uint64_t broadcast(std::uint64_t value, std::uint32_t rank, std::uint32_t workers, std::uint32_t root,
                          Patience patience) override;

 private:
  // A method of a stub, called with its context.
  template <class Request, class Response>
  using Call = std::function<grpc::Status(grpc::ClientContext&, const Request&, Response&)>;

  // What a call is: for the proof, for messages.
  struct Manner {
    const char* method;
    std::string terms;
    bool waits_for_others = false;  // then one try may take all the patience
  };

  // Calls until there is an answer: proves the key when asked to, tries again while the switch is away. The trailing
  // metadata's admission.
  template <class Request, class Response>
  std::string call(const Manner& manner, const Request& request, Response& response, Patience patience,
                   const Call<Request, Response>& stub);
  void prepare(grpc::ClientContext& context, const Manner& manner, const std::string& message,
               const std::string& nonce) const;
  // The one to prove the key over, out of a challenge.
  [[nodiscard]] std::string next_nonce(const grpc::ClientContext& context, int challenges) const;
  [[noreturn]] void give_up(const grpc::Status& status) const;

  ClientOptions options_;
  std::string target_;
  std::string secret_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<switchml_proto::Session::Stub> session_;
  std::unique_ptr<switchml_proto::Sync::Stub> sync_;
  std::unique_ptr<weft_switch::Membership::Stub> membership_;
};

void GrpcClient::prepare(grpc::ClientContext& context, const Manner& manner, const std::string& message,
                         const std::string& nonce) const {
  if (!options_.job.empty()) context.AddMetadata(kJob, options_.job);
  if (!manner.terms.empty()) context.AddMetadata(kTerms, manner.terms);
  if (nonce.empty()) return;
  context.AddMetadata(kNonce, nonce);
  context.AddMetadata(kProof, prove(secret_, nonce, {manner.method, options_.job, manner.terms, message}));
}

std::string GrpcClient::next_nonce(const grpc::ClientContext& context, int challenges) const {
  if (secret_.empty()) {
    throw JoinRefused("weft: the switch at " + target_ + " admits by key; set WEFT_SML_KEYS to the file that has it");
  }
  if (challenges > kMostChallenges) {
    throw SwitchUnreachable("weft: the switch at " + target_ + " asked " + std::to_string(kMostChallenges) +
                            " times for another proof of the key; do several switches answer at this address?");
  }
  return trailing(context, kNonce);
}

void GrpcClient::give_up(const grpc::Status& status) const {
  const std::string text = "weft: the switch at " + target_ + ": " + status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    throw SwitchUnreachable(text + "; is weft-switch running there, and its --control port open?");
  }
  throw JoinRefused(text);
}

template <class Request, class Response>
std::string GrpcClient::call(const Manner& manner, const Request& request, Response& response, Patience patience,
                             const Call<Request, Response>& stub) {
  const auto deadline = Clock::now() + patience;
  const std::string message = request.SerializeAsString();
  std::string nonce;
  int challenges = 0;
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(manner.waits_for_others ? deadline : std::min(deadline, Clock::now() + kOneTry));
    prepare(context, manner, message, nonce);
    const grpc::Status status = stub(context, request, response);
    if (status.ok()) return trailing(context, kAdmission);
    if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
      nonce = next_nonce(context, ++challenges);
      continue;
    }
    nonce.clear();
    const bool away = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (!away || Clock::now() >= deadline) give_up(status);
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Joined GrpcClient::join(const JoinRequest& wish, Patience patience) {
  switchml_proto::UdpSessionRequest request;
  request.set_session_id(wish.session);
  request.set_rank(wish.rank);
  request.set_num_workers(wish.workers);
  request.set_ipv4(wish.address.ipv4);
  request.set_packet_size(wish.packet_elements == 64 ? switchml_proto::MTU_256 : switchml_proto::MTU_1024);
  const Terms terms{wish.mode, wish.packet_elements, wish.address.port, wish.slots,
                    wish.first_operation ? int{*wish.first_operation} : -1};
  switchml_proto::UdpSessionResponse response;
  const std::string admission = call<switchml_proto::UdpSessionRequest, switchml_proto::UdpSessionResponse>(
      {"UdpSession", terms.write()}, request, response, patience,
      [&](auto& context, const auto& asked, auto& answer) { return session_->UdpSession(&context, asked, &answer); });
  Joined joined;
  if (admission.empty() && wish.mode == aggregation::Mode::kSwitchMl) {
    // SwitchML's own controller tells nothing: its switch has 8192 slots, all of them this session's.
    joined.admission.slots = std::min(wish.slots, kSwitchMlSlots);
    joined.admission.port = kSwitchMlPort;
  } else if (!read_admission(admission, joined.admission)) {
    throw JoinRefused("weft: the switch at " + target_ + " is not a weft-switch; for SwitchML's set mode = classic");
  }
  joined.switch_address = {response.ipv4(), joined.admission.port};
  if (!secret_.empty()) {
    std::memcpy(joined.key.data(), packet_key(secret_, wish.session).data(), joined.key.size());
  }
  return joined;
}

void GrpcClient::leave(std::uint64_t session, std::uint32_t rank, Patience patience) {
  weft_switch::LeaveRequest request;
  request.set_session_id(session);
  request.set_rank(rank);
  weft_switch::LeaveResponse response;
  call<weft_switch::LeaveRequest, weft_switch::LeaveResponse>(
      {"Leave", ""}, request, response, patience,
      [&](auto& context, const auto& asked, auto& answer) { return membership_->Leave(&context, asked, &answer); });
}

void GrpcClient::barrier(std::uint32_t workers, Patience patience) {
  switchml_proto::BarrierRequest request;
  request.set_num_workers(workers);
  switchml_proto::BarrierResponse response;
  call<switchml_proto::BarrierRequest, switchml_proto::BarrierResponse>(
      {"Barrier", "", true}, request, response, patience,
      [&](auto& context, const auto& asked, auto& answer) { return sync_->Barrier(&context, asked, &answer); });
}

std::uint64_t GrpcClient::broadcast(std::uint64_t value, std::uint32_t rank, std::uint32_t workers, std::uint32_t root,
                                    Patience patience) {
  switchml_proto::BroadcastRequest request;
  request.set_value(value);
  request.set_rank(rank);
  request.set_num_workers(workers);
  request.set_root(root);
  switchml_proto::BroadcastResponse response;
  call<switchml_proto::BroadcastRequest, switchml_proto::BroadcastResponse>(
      {"Broadcast", "", true}, request, response, patience,
      [&](auto& context, const auto& asked, auto& answer) { return sync_->Broadcast(&context, asked, &answer); });
  return response.value();
}

}  // namespace
}  // namespace weft::control::rpc

extern "C" weft::control::Client* weft_control_client(const weft::control::ClientOptions& options) {
  return new weft::control::rpc::GrpcClient(options);
}
