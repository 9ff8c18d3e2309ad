#include "weft/control/rpc/sync_service.h"

#include <atomic>

namespace weft::control::rpc {
namespace {

// A call that waits for other workers. It lives until gRPC is done with it and the meeting has let go of it.
class Guest final : public grpc::ServerUnaryReactor {
 public:
  Guest(Meetings& meetings, Passage passage, std::function<void(std::uint64_t)> deliver)
      : meetings_(meetings), passage_(std::move(passage)), deliver_(std::move(deliver)) {}

  [[nodiscard]] const std::string& job() const { return passage_.job; }

  // What the meeting calls when it knows. `self` keeps this alive for a meeting that answers after a cancelled call.
  [[nodiscard]] static Meetings::Answered answerer(const std::shared_ptr<Guest>& self) {
    self->self_ = self;
    return [self](const Meetings::Answer& answer) { self->answer(answer); };
  }
  void wait_with(Meetings::Ticket ticket) {
    ticket_ = ticket;
    if (cancelled_) OnCancel();  // it went while the ticket was being written
  }

  void OnCancel() override {
    cancelled_ = true;
    if (ticket_ == 0) return;
    meetings_.leave(ticket_);
    if (finished_.exchange(true)) return;
    Finish({grpc::StatusCode::CANCELLED, "weft-switch: the worker went away"});
  }
  void OnDone() override { self_.reset(); }

 private:
  // After Finish() the response is gRPC's to free: whoever comes first, this or a cancellation, is the only one.
  void answer(const Meetings::Answer& answer) {
    if (finished_.exchange(true)) return;
    if (answer.met) deliver_(answer.value);
    Finish(answer.met ? grpc::Status::OK
                      : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "weft-switch: " + answer.reason));
  }

  Meetings& meetings_;
  Passage passage_;
  std::function<void(std::uint64_t)> deliver_;
  std::shared_ptr<Guest> self_;
  std::atomic<Meetings::Ticket> ticket_{0};
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
  Passage passage = gate_.pass(*context, "Barrier", *request);
  if (!passage.status.ok()) return refused(context, passage.status);
  const auto guest = std::make_shared<Guest>(meetings_, std::move(passage), [](std::uint64_t) {});
  guest->wait_with(meetings_.barrier(guest->job(), request->num_workers(), Guest::answerer(guest)));
  return guest.get();
}

grpc::ServerUnaryReactor* SyncService::Broadcast(grpc::CallbackServerContext* context,
                                                 const switchml_proto::BroadcastRequest* request,
                                                 switchml_proto::BroadcastResponse* response) {
  Passage passage = gate_.pass(*context, "Broadcast", *request);
  if (!passage.status.ok()) return refused(context, passage.status);
  const auto guest = std::make_shared<Guest>(meetings_, std::move(passage),
                                             [response](std::uint64_t value) { response->set_value(value); });
  guest->wait_with(meetings_.broadcast(guest->job(), request->num_workers(), request->rank(), request->root(),
                                       request->value(), Guest::answerer(guest)));
  return guest.get();
}

}  // namespace weft::control::rpc
