#include "weft/control/rpc/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <stdexcept>

#include "weft/control/rpc/session_service.h"
#include "weft/control/rpc/sync_service.h"

namespace weft::control::rpc {
namespace {

constexpr int kLargestMessage = 64 << 10;  // the authenticator refuses and counts smaller ones that are still too large
constexpr int kLargestMetadata = 8 << 10;
constexpr int kCallsPerConnection = 8;  // a worker makes one call at a time
// Second line of defence after the limits of the connections: gRPC then cancels calls.
constexpr std::size_t kMemory = std::size_t{64} << 20;
constexpr auto kShutdownTimeout = std::chrono::milliseconds(500);

}  // namespace

struct Server::Parts {
  Parts(ServerOptions options, aggregation::Jobs& jobs, EventCounters& counters)
      : access(options.keys.with_shares(jobs.limits()), options.open, counters),
        limiter(options.listen, options.connections, counters),
        authenticator(access, limiter, counters),
        sessions(jobs),
        session_service(authenticator, sessions, counters, {options.data_address, options.multihomed}),
        membership_service(authenticator, sessions),
        sync_service(authenticator, rendezvous) {}

  AccessControl access;
  ConnectionLimiter limiter;
  Authenticator authenticator;
  Sessions sessions;
  Rendezvous rendezvous;
  SessionService session_service;
  MembershipService membership_service;
  SyncService sync_service;
  std::unique_ptr<grpc::Server> server;
};

Server::Server(ServerOptions options, aggregation::Jobs& jobs, EventCounters& counters)
    : parts_(std::make_unique<Parts>(std::move(options), jobs, counters)) {
  grpc::ServerBuilder builder;
  builder.RegisterService(&parts_->session_service);
  builder.RegisterService(&parts_->membership_service);
  builder.RegisterService(&parts_->sync_service);
  builder.SetMaxReceiveMessageSize(kLargestMessage);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kLargestMetadata);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnection);
  builder.SetResourceQuota(grpc::ResourceQuota("weft-switch").Resize(kMemory));
  parts_->server = builder.BuildAndStart();
  if (!parts_->server) throw std::runtime_error("weft: gRPC could not start a server");
  parts_->limiter.open([server = parts_->server.get()](int fd) { grpc::AddInsecureChannelFromFd(server, fd); });
}

Server::~Server() { stop(); }

void Server::stop() {
  parts_->limiter.stop_accepting();
  parts_->rendezvous.give_up("the switch is stopping");
  parts_->server->Shutdown(std::chrono::system_clock::now() + kShutdownTimeout);
  parts_->limiter.close();
}

void Server::set_keys(const JobKeys& keys) { parts_->access.set_keys(keys.with_shares(parts_->sessions.limits())); }

std::uint16_t Server::port() const { return parts_->limiter.port(); }
std::size_t Server::connections() const { return parts_->limiter.connections(); }
std::size_t Server::waiting() const { return parts_->rendezvous.waiting(); }
Sessions& Server::sessions() { return parts_->sessions; }

}  // namespace weft::control::rpc
