#include "weft/mpi/message/exchange.h"

#include <cstring>
#include <deque>
#include <string>
#include <utility>

#include "weft/mpi/chunks.h"
#include "weft/mpi/error.h"
#include "weft/mpi/message/truncated.h"

namespace weft::mpi {

std::string length_mismatch_text(int source, const std::string& received, std::int64_t expected) {
  return "rank " + std::to_string(source) + " sent " + received + " bytes, expected " + std::to_string(expected) +
         "; both ranks must pass the same size for this piece";
}

namespace {

// Checks the length of every message: a short one would otherwise leave stale bytes in the buffer unnoticed.
class Exchange final : public Operation {
 public:
  Exchange(CommView comm, int tag, std::shared_ptr<void> keep)
      : comm_(comm.handle()), tag_(tag), keep_(std::move(keep)), sends_(keep_) {}

  void receive(const Incoming& piece) {
    for_each_chunk(piece.bytes, [&](std::int64_t first, int n) {
      auto& receive = receives_.emplace_back(Receive{Request(keep_), piece.source, n});
      check(MPI_Irecv(at(piece.data, first, 1), n, MPI_BYTE, piece.source, tag_, comm_, receive.request.add()),
            "MPI_Irecv", comm_);
    });
  }

  void send(const Outgoing& piece) {
    for_each_chunk(piece.bytes, [&](std::int64_t first, int n) {
      check(MPI_Isend(at(piece.data, first, 1), n, MPI_BYTE, piece.dest, tag_, comm_, sends_.add()), "MPI_Isend",
            comm_);
    });
  }

  // Reports a wrong length after everything else is done, so that no message of this exchange matches the next one.
  [[nodiscard]] bool advance() override {
    while (!receives_.empty() && arrived(receives_.back())) receives_.pop_back();
    if (!receives_.empty() || !sends_.test()) return false;
    keep_.reset();
    if (!mismatch_.empty()) throw LengthMismatch(std::exchange(mismatch_, {}));
    return true;
  }

 private:
  struct Receive {
    Request request;
    int source;
    int bytes;
  };

  [[nodiscard]] bool arrived(Receive& receive) {
    try {
      if (!receive.request.test()) return false;
      int bytes = 0;
      check(MPI_Get_count(&receive.request.status(), MPI_BYTE, &bytes), "MPI_Get_count", comm_);
      if (bytes != receive.bytes) note_mismatch(receive, std::to_string(bytes));
    } catch (const Truncated&) {
      note_mismatch(receive, "more");
    }
    return true;
  }
  void note_mismatch(const Receive& receive, const std::string& received) {
    if (mismatch_.empty()) mismatch_ = length_mismatch_text(receive.source, received, receive.bytes);
  }

  MPI_Comm comm_;
  int tag_;
  std::shared_ptr<void> keep_;
  Request sends_;
  std::vector<Receive> receives_;
  std::string mismatch_;
};

void copy_to_self(const Outgoing& piece, const Incoming& target) {
  if (piece.bytes != target.bytes) {
    throw LengthMismatch(length_mismatch_text(target.source, std::to_string(piece.bytes), target.bytes));
  }
  if (piece.bytes > 0) std::memmove(target.data, piece.data, static_cast<std::size_t>(piece.bytes));
}

}  // namespace

std::unique_ptr<Operation> exchange(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming,
                                    int tag, CommView comm, std::shared_ptr<void> keep) {
  auto transfers = std::make_unique<Exchange>(comm, tag, std::move(keep));
  std::deque<Incoming> from_self;
  for (const Incoming& piece : incoming) {
    if (piece.source == comm.rank()) {
      from_self.push_back(piece);
    } else if (piece.bytes > 0) {
      transfers->receive(piece);
    }
  }
  for (const Outgoing& piece : outgoing) {
    if (piece.dest == comm.rank()) {
      copy_to_self(piece, from_self.front());
      from_self.pop_front();
    } else if (piece.bytes > 0) {
      transfers->send(piece);
    }
  }
  return transfers;
}

}  // namespace weft::mpi
