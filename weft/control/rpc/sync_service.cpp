#include "weft/control/rpc/sync_service.h"

#include <atomic>

namespace weft::control::rpc {
namespace {

// A call that waits for other workers. It lives until both gRPC and the rendezvous have released it.
class PendingCall final : public grpc::ServerUnaryReactor {
 public:
  PendingCall(Rendezvous& rendezvous, AuthenticatedCall call, std::function<void(std::uint64_t)> deliver)
      : rendezvous_(rendezvous), call_(std::move(call)), deliver_(std::move(deliver)) {}

  [[nodiscard]] const std::string& job() const { return call_.job; }

  // Callback of the rendezvous. `self` keeps the call alive if the rendezvous answers after a cancellation.
  [[nodiscard]] static Rendezvous::OnAnswer on_answer(const std::shared_ptr<PendingCall>& self) {
    self->self_ = self;
    return [self](const Rendezvous::Answer& answer) { self->answer(answer); };
  }
  void set_ticket(Rendezvous::Ticket ticket) {
    ticket_ = ticket;
    if (cancelled_) OnCancel();  // cancelled before the ticket was stored
  }

  void OnCancel() override {
    cancelled_ = true;
    if (ticket_ == 0) return;
    rendezvous_.leave(ticket_);
    if (finished_.exchange(true)) return;
    Finish({grpc::StatusCode::CANCELLED, "weft-switch: the worker disconnected"});
  }
  void OnDone() override { self_.reset(); }

 private:
  // After Finish(), gRPC may free the response, so only the first of answer and cancellation may call it.
  void answer(const Rendezvous::Answer& answer) {
    if (finished_.exchange(true)) return;
    if (answer.met) deliver_(answer.value);
    Finish(answer.met ? grpc::Status::OK
                      : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "weft-switch: " + answer.reason));
  }

  Rendezvous& rendezvous_;
  AuthenticatedCall call_;
  std::function<void(std::uint64_t)> deliver_;
  std::shared_ptr<PendingCall> self_;
  std::atomic<Rendezvous::Ticket> ticket_{0};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> finished_{false};
};

grpc::ServerUnaryReactor* refused(grpc::CallbackServerContext* context, const grpc::Status& status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* SyncService::Barrier(grpc::CallbackServerContext* context,
                                               const switchml_proto::BarrierRequest* request,
                                               switchml_proto::BarrierResponse* /*response*/) {
  AuthenticatedCall call = authenticator_.authenticate(*context, "Barrier", *request);
  if (!call.status.ok()) return refused(context, call.status);
  const auto pending = std::make_shared<PendingCall>(rendezvous_, std::move(call), [](std::uint64_t) {});
  pending->set_ticket(rendezvous_.barrier(pending->job(), request->num_workers(), PendingCall::on_answer(pending)));
  return pending.get();
}

grpc::ServerUnaryReactor* SyncService::Broadcast(grpc::CallbackServerContext* context,
                                                 const switchml_proto::BroadcastRequest* request,
                                                 switchml_proto::BroadcastResponse* response) {
  AuthenticatedCall call = authenticator_.authenticate(*context, "Broadcast", *request);
  if (!call.status.ok()) return refused(context, call.status);
  const auto pending = std::make_shared<PendingCall>(rendezvous_, std::move(call),
                                                     [response](std::uint64_t value) { response->set_value(value); });
  pending->set_ticket(rendezvous_.broadcast(pending->job(), request->num_workers(), request->rank(), request->root(),
                                            request->value(), PendingCall::on_answer(pending)));
  return pending.get();
}

}  // namespace weft::control::rpc
