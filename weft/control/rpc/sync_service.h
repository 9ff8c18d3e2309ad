// SwitchML's Sync service: barrier and broadcast among a job's workers.
#pragma once

#include "switchml.grpc.pb.h"
#include "weft/control/meetings.h"
#include "weft/control/rpc/gate.h"

namespace weft::control::rpc {

class SyncService final : public switchml_proto::Sync::CallbackService {
 public:
  SyncService(Gate& gate, Meetings& meetings) : gate_(gate), meetings_(meetings) {}

  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext* context, const switchml_proto::BarrierRequest* request,
                                    switchml_proto::BarrierResponse* response) override;
  grpc::ServerUnaryReactor* Broadcast(grpc::CallbackServerContext* context,
                                      const switchml_proto::BroadcastRequest* request,
                                      switchml_proto::BroadcastResponse* response) override;

 private:
  Gate& gate_;
  Meetings& meetings_;
};

}  // namespace weft::control::rpc
