#include "weft/aggregation/config/control_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "switchml.grpc.pb.h"
#include "weft/control/keys.h"
#include "weft/control/request_mac.h"
#include "weft/control/rpc/metadata.h"
#include "weft_switch.grpc.pb.h"

namespace weft::control::rpc {
namespace {

using Clock = std::chrono::system_clock;  // the clock of gRPC's deadlines
constexpr auto kOneTry = std::chrono::seconds(3);
constexpr int kSwitchMlSlots = 8192;
constexpr std::uint16_t kSwitchMlPort = 48864;
constexpr auto kBetweenTries = std::chrono::milliseconds(100);
constexpr int kMostChallenges = 8;  // usually one; a restarted or busy switch drops its nonces

std::string trailing(const grpc::ClientContext& context, const char* name) {
  const auto& all = context.GetServerTrailingMetadata();
  const auto found = all.find(name);
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

class GrpcClient final : public aggregation::ControlClient {
 public:
  explicit GrpcClient(const aggregation::ControlClientOptions& options)
      : options_(options), target_(options.host + ":" + std::to_string(options.port)) {
    if (!options.keys.empty()) secret_ = JobKeys::load(options.keys).at(options.job).secret;
    grpc::ChannelArguments arguments;
    // Reconnects quickly: a restarted switch is back within a second.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // the switch is in the local network
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(target_, grpc::InsecureChannelCredentials(), arguments);
    session_ = switchml_proto::Session::NewStub(channel_);
    sync_ = switchml_proto::Sync::NewStub(channel_);
    membership_ = weft_switch::Membership::NewStub(channel_);
  }

  aggregation::JoinResponse join(const aggregation::JoinRequest& request, Timeout timeout) override;
  void leave(std::uint64_t session, std::uint32_t rank, Timeout timeout) override;
  void barrier(std::uint32_t workers, Timeout timeout) override;
  std::uint64_t broadcast(std::uint64_t value, std::uint32_t rank, std::uint32_t workers, std::uint32_t root,
                          Timeout timeout) override;

 private:
  // Calls a method of a stub.
  template <class Request, class Response>
  using Call = std::function<grpc::Status(grpc::ClientContext&, const Request&, Response&)>;

  // Properties of a call, for its MAC and for messages.
  struct CallProperties {
    const char* method;
    std::string terms;
    bool waits_for_others = false;  // true: one attempt may take the whole `timeout`
  };

  // Calls until the switch answers: authenticates when challenged and retries while the switch is unreachable. Returns
  // the admission in the trailing metadata.
  template <class Request, class Response>
  std::string call(const CallProperties& properties, const Request& request, Response& response, Timeout timeout,
                   const Call<Request, Response>& stub);
  void prepare(grpc::ClientContext& context, const CallProperties& properties, const std::string& message,
               const std::string& nonce) const;
  // Returns the nonce of a challenge.
  [[nodiscard]] std::string next_nonce(const grpc::ClientContext& context, int challenges) const;
  [[noreturn]] void give_up(const grpc::Status& status) const;

  aggregation::ControlClientOptions options_;
  std::string target_;
  std::string secret_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<switchml_proto::Session::Stub> session_;
  std::unique_ptr<switchml_proto::Sync::Stub> sync_;
  std::unique_ptr<weft_switch::Membership::Stub> membership_;
};

void GrpcClient::prepare(grpc::ClientContext& context, const CallProperties& properties, const std::string& message,
                         const std::string& nonce) const {
  if (!options_.job.empty()) context.AddMetadata(kJob, options_.job);
  if (!properties.terms.empty()) context.AddMetadata(kTerms, properties.terms);
  if (nonce.empty()) return;
  context.AddMetadata(kNonce, nonce);
  context.AddMetadata(kRequestMac,
                      request_mac(secret_, nonce, {properties.method, options_.job, properties.terms, message}));
}

std::string GrpcClient::next_nonce(const grpc::ClientContext& context, int challenges) const {
  if (secret_.empty()) {
    throw aggregation::JoinRefused("weft: the switch at " + target_ +
                                   " requires a job key; set WEFT_SML_KEYS to the keys file");
  }
  if (challenges > kMostChallenges) {
    throw aggregation::SwitchUnreachable("weft: the switch at " + target_ + " sent " + std::to_string(kMostChallenges) +
                                         " challenges in a row; do several switches answer at this address?");
  }
  return trailing(context, kNonce);
}

void GrpcClient::give_up(const grpc::Status& status) const {
  const std::string text = "weft: the switch at " + target_ + ": " + status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    throw aggregation::SwitchUnreachable(text + "; check that weft-switch runs there and its --control port is open");
  }
  throw aggregation::JoinRefused(text);
}

template <class Request, class Response>
std::string GrpcClient::call(const CallProperties& properties, const Request& request, Response& response,
                             Timeout timeout, const Call<Request, Response>& stub) {
  const auto deadline = Clock::now() + timeout;
  const std::string message = request.SerializeAsString();
  std::string nonce;
  int challenges = 0;
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(properties.waits_for_others ? deadline : std::min(deadline, Clock::now() + kOneTry));
    prepare(context, properties, message, nonce);
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

aggregation::JoinResponse GrpcClient::join(const aggregation::JoinRequest& join, Timeout timeout) {
  switchml_proto::UdpSessionRequest request;
  request.set_session_id(join.session);
  request.set_rank(join.rank);
  request.set_num_workers(join.workers);
  request.set_ipv4(join.address.ipv4);
  request.set_packet_size(join.packet_elements == 64 ? switchml_proto::MTU_256 : switchml_proto::MTU_1024);
  const Terms terms{join.mode,
                    join.packet_elements,
                    join.address.port,
                    join.slots,
                    join.first_operation ? int{*join.first_operation} : -1,
                    join.salt,
                    join.memory};
  switchml_proto::UdpSessionResponse response;
  const std::string admission = call<switchml_proto::UdpSessionRequest, switchml_proto::UdpSessionResponse>(
      {"UdpSession", terms.write()}, request, response, timeout,
      [&](auto& context, const auto& asked, auto& answer) { return session_->UdpSession(&context, asked, &answer); });
  aggregation::JoinResponse joined;
  if (admission.empty() && join.mode == aggregation::Mode::kSwitchMl) {
    // SwitchML's own controller sends no admission: its switch has 8192 slots, all for this session.
    joined.admission.slots = std::min(join.slots, kSwitchMlSlots);
    joined.admission.port = kSwitchMlPort;
  } else if (!read_admission(admission, joined.admission)) {
    throw aggregation::JoinRefused("weft: the switch at " + target_ +
                                   " is not a weft-switch; set mode = classic for SwitchML's switches");
  }
  joined.switch_address = {response.ipv4(), joined.admission.port};
  if (!secret_.empty()) joined.key = aggregation::derive_session_key(secret_, join.session);
  return joined;
}

void GrpcClient::leave(std::uint64_t session, std::uint32_t rank, Timeout timeout) {
  weft_switch::LeaveRequest request;
  request.set_session_id(session);
  request.set_rank(rank);
  weft_switch::LeaveResponse response;
  call<weft_switch::LeaveRequest, weft_switch::LeaveResponse>(
      {"Leave", ""}, request, response, timeout,
      [&](auto& context, const auto& asked, auto& answer) { return membership_->Leave(&context, asked, &answer); });
}

void GrpcClient::barrier(std::uint32_t workers, Timeout timeout) {
  switchml_proto::BarrierRequest request;
  request.set_num_workers(workers);
  switchml_proto::BarrierResponse response;
  call<switchml_proto::BarrierRequest, switchml_proto::BarrierResponse>(
      {"Barrier", "", true}, request, response, timeout,
      [&](auto& context, const auto& asked, auto& answer) { return sync_->Barrier(&context, asked, &answer); });
}

std::uint64_t GrpcClient::broadcast(std::uint64_t value, std::uint32_t rank, std::uint32_t workers, std::uint32_t root,
                                    Timeout timeout) {
  switchml_proto::BroadcastRequest request;
  request.set_value(value);
  request.set_rank(rank);
  request.set_num_workers(workers);
  request.set_root(root);
  switchml_proto::BroadcastResponse response;
  call<switchml_proto::BroadcastRequest, switchml_proto::BroadcastResponse>(
      {"Broadcast", "", true}, request, response, timeout,
      [&](auto& context, const auto& asked, auto& answer) { return sync_->Broadcast(&context, asked, &answer); });
  return response.value();
}

}  // namespace
}  // namespace weft::control::rpc

extern "C" weft::aggregation::ControlClient* weft_control_client(
    const weft::aggregation::ControlClientOptions& options) {
  return new weft::control::rpc::GrpcClient(options);
}
