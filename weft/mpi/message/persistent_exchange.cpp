#include "weft/mpi/message/persistent_exchange.h"

#include <utility>

#include "weft/mpi/chunks.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"
#include "weft/mpi/message/truncated.h"

namespace weft::mpi {

PersistentExchange::PersistentExchange(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming,
                                       int tag, CommView comm, std::shared_ptr<void> keep)
    : comm_(comm.handle()), tag_(tag), keep_(std::move(keep)) {
  for (const Incoming& piece : incoming) {
    if (piece.bytes > 0) receive(piece);
  }
  for (const Outgoing& piece : outgoing) {
    if (piece.bytes > 0) send(piece);
  }
}

PersistentExchange::~PersistentExchange() {
  if (!Environment::alive()) return;
  Request abandoned(keep_);
  for (Message& message : messages_) {
    if (message.under_way) {
      *abandoned.add() = message.request;  // leaks the handle; exchanges fail rarely
    } else if (message.request != MPI_REQUEST_NULL) {
      MPI_Request_free(&message.request);
    }
  }
}

void PersistentExchange::receive(const Incoming& piece) {
  for_each_chunk(piece.bytes, [&](std::int64_t first, int n) {
    Message& message = messages_.emplace_back(Message{MPI_REQUEST_NULL, piece.source, n});
    check(MPI_Recv_init(at(piece.data, first, 1), n, MPI_BYTE, piece.source, tag_, comm_, &message.request),
          "MPI_Recv_init", comm_);
  });
}

void PersistentExchange::send(const Outgoing& piece) {
  for_each_chunk(piece.bytes, [&](std::int64_t first, int n) {
    Message& message = messages_.emplace_back();
    check(MPI_Send_init(at(piece.data, first, 1), n, MPI_BYTE, piece.dest, tag_, comm_, &message.request),
          "MPI_Send_init", comm_);
  });
}

bool PersistentExchange::is_for(CommView comm, int tag) const noexcept { return comm.handle() == comm_ && tag == tag_; }

void PersistentExchange::start() {
  for (Message& message : messages_) {
    check(MPI_Start(&message.request), "MPI_Start", comm_);
    message.under_way = true;
    ++under_way_;
  }
}

bool PersistentExchange::advance() {
  for (Message& message : messages_) {
    if (message.under_way) test(message);
  }
  if (under_way()) return false;
  // Throws only after everything else is done, so that no message of this exchange matches the next one.
  if (!complaint_.empty()) throw LengthMismatch(std::exchange(complaint_, {}));
  return true;
}

void PersistentExchange::test(Message& message) {
  int done = 0;
  MPI_Status status;
  std::string came;
  try {
    check(MPI_Test(&message.request, &done, &status), "MPI_Test", comm_);
    if (done == 0) return;
    int bytes = message.bytes;
    if (message.source >= 0) check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count", comm_);
    if (bytes != message.bytes) came = std::to_string(bytes);
  } catch (const Truncated&) {
    came = "more";
  }
  message.under_way = false;
  --under_way_;
  if (!came.empty() && complaint_.empty()) complaint_ = length_mismatch_text(message.source, came, message.bytes);
}

}  // namespace weft::mpi
