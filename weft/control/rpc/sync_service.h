// SwitchML's Sync service: barrier and broadcast for the workers of a job.
#pragma once

#include "switchml.grpc.pb.h"
#include "weft/control/rendezvous.h"
#include "weft/control/rpc/authenticator.h"

namespace weft::control::rpc {

class SyncService final : public switchml_proto::Sync::CallbackService {
 public:
  SyncService(Authenticator& authenticator, Rendezvous& rendezvous)
      : authenticator_(authenticator), rendezvous_(rendezvous) {}

  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext* context, const switchml_proto::BarrierRequest* request,
                                    switchml_proto::BarrierResponse* response) override;
  grpc::ServerUnaryReactor* Broadcast(grpc::CallbackServerContext* context,
                                      const switchml_proto::BroadcastRequest* request,
                                      switchml_proto::BroadcastResponse* response) override;

 private:
  Authenticator& authenticator_;
  Rendezvous& rendezvous_;
};

}  // namespace weft::control::rpc
