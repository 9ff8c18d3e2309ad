#include "weft/control/rpc/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <stdexcept>

#include "weft/control/rpc/session_service.h"
#include "weft/control/rpc/sync_service.h"

namespace weft::control::rpc {
namespace {

constexpr int kLargestMessage = 64 << 10;  // what lies between this and a sane size is refused and counted by the gate
constexpr int kLargestMetadata = 8 << 10;
constexpr int kCallsPerConnection = 64;
constexpr auto kFarewell = std::chrono::milliseconds(500);

}  // namespace

struct Server::Parts {
  Parts(ServerOptions options, aggregation::Jobs& jobs, Counters& counters)
      : admission(options.keys.with_shares(jobs.limits()), options.open, counters),
        door(options.listen, options.door, counters),
        gate(admission, door, counters),
        sessions(jobs),
        session_service(gate, sessions, counters, {options.data_address, options.multihomed}),
        membership_service(gate, sessions),
        sync_service(gate, meetings) {}

  Admission admission;
  FrontDoor door;
  Gate gate;
  Sessions sessions;
  Meetings meetings;
  SessionService session_service;
  MembershipService membership_service;
  SyncService sync_service;
  std::unique_ptr<grpc::Server> server;
};

Server::Server(ServerOptions options, aggregation::Jobs& jobs, Counters& counters)
    : parts_(std::make_unique<Parts>(std::move(options), jobs, counters)) {
  grpc::ServerBuilder builder;
  builder.RegisterService(&parts_->session_service);
  builder.RegisterService(&parts_->membership_service);
  builder.RegisterService(&parts_->sync_service);
  builder.SetMaxReceiveMessageSize(kLargestMessage);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kLargestMetadata);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnection);
  parts_->server = builder.BuildAndStart();
  if (!parts_->server) throw std::runtime_error("weft: gRPC could not start a server");
  parts_->door.open([server = parts_->server.get()](int fd) { grpc::AddInsecureChannelFromFd(server, fd); });
}

Server::~Server() { stop(); }

void Server::stop() {
  parts_->door.close();
  parts_->meetings.give_up("the switch stops");
  parts_->server->Shutdown(std::chrono::system_clock::now() + kFarewell);
}

std::uint16_t Server::port() const { return parts_->door.port(); }
std::size_t Server::connections() const { return parts_->door.connections(); }
std::size_t Server::waiting() const { return parts_->meetings.waiting(); }
Sessions& Server::sessions() { return parts_->sessions; }

}  // namespace weft::control::rpc
