#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "weft/collective/tensor.h"
#include "weft/mpi/chunks.h"
#include "weft/mpi/error.h"
#include "weft/mpi/message/truncated.h"
#include "weft/process_group/mpi/buffers.h"
#include "weft/process_group/mpi/group.h"

namespace weft::process_group {
namespace {

// Receives one tensor and checks the size of the message.
class ReceiveOperation final : public mpi::Operation {
 public:
  // Sets `source`, which may be MPI_ANY_SOURCE, to the sender.
  ReceiveOperation(const OutputBuffer& target, std::shared_ptr<int> source, int tag, mpi::CommView comm)
      : comm_(comm),
        tag_(tag),
        source_(std::move(source)),
        expected_(target.bytes()),
        data_(target.data()),
        keep_(collective::keep_alive(target.memory)) {
    post();
  }

  bool advance() override {
    while (received_ < expected_ || !any_received_) {
      try {
        if (!part_.test()) return false;
      } catch (const mpi::Truncated&) {
        throw wrong_size("a longer message");
      }
      handle_part();
    }
    return true;
  }

 private:
  // Receives one part at a time: with MPI_ANY_SOURCE, the first part determines the sender of the others.
  void post() {
    const auto bytes = std::min(mpi::options().max_count, expected_ - received_);
    part_ = mpi::Request(keep_);
    mpi::check(MPI_Irecv(mpi::at(data_, received_, 1), static_cast<int>(bytes), MPI_BYTE, *source_, tag_,
                         comm_.handle(), part_.add()),
               "MPI_Irecv", comm_.handle());
    asked_ = bytes;
  }
  void handle_part() {
    const MPI_Status& status = part_.status();
    int got = 0;
    mpi::check(MPI_Get_count(&status, MPI_BYTE, &got), "MPI_Get_count", comm_.handle());
    *source_ = status.MPI_SOURCE;
    any_received_ = true;
    received_ += asked_;
    if (got != asked_) {
      throw wrong_size("a message of " + std::to_string(received_ - asked_ + got) + " bytes");
    }
    if (received_ < expected_) post();
  }

  [[nodiscard]] std::length_error wrong_size(const std::string& got) const {
    return std::length_error("expected a message of " + std::to_string(expected_) + " bytes from " +
                             (*source_ == MPI_ANY_SOURCE ? "any rank" : "rank " + std::to_string(*source_)) + ", got " +
                             got + ": sender and receiver use tensors of different sizes or types");
  }

  mpi::CommView comm_;
  int tag_;
  std::shared_ptr<int> source_;
  std::int64_t expected_;
  std::int64_t received_ = 0;
  std::int64_t asked_ = 0;
  bool any_received_ = false;  // distinguishes an empty message from no message
  void* data_;
  std::shared_ptr<void> keep_;
  mpi::Request part_;
};

void require_tag(int tag, mpi::CommView comm) {
  TORCH_CHECK(tag >= 0 && tag <= comm.tag_upper_bound(), "weft: expected a tag in [0, ", comm.tag_upper_bound(),
              "], got ", tag);
}

}  // namespace

MpiGroup::WorkPtr MpiGroup::send(Tensors& tensors, int dest, int tag) {
  return launch({c10d::OpType::SEND, "weft:send", options_->timeout, /*async=*/true}, [&] {
    const at::Tensor& tensor = only(tensors, "send");
    require_root(dest, "send");
    require_tag(tag, communicators_->messages());
    Task task;
    task.inputs = {tensor};
    task.start = [memory = input_buffer(tensor), comm = communicators_->messages().handle(), dest, tag] {
      mpi::Request request(collective::keep_alive(memory));
      mpi::for_each_chunk(static_cast<std::int64_t>(memory.nbytes()), [&](std::int64_t first, int n) {
        mpi::check(MPI_Isend(mpi::at(memory.const_data_ptr(), first, 1), n, MPI_BYTE, dest, tag, comm, request.add()),
                   "MPI_Isend", comm);
      });
      return std::make_unique<mpi::RequestOperation>(std::move(request));
    };
    return task;
  });
}

MpiGroup::WorkPtr MpiGroup::recv(Tensors& tensors, int source, int tag) {
  return receive(tensors, source, tag, c10d::OpType::RECV, "weft:recv");
}

MpiGroup::WorkPtr MpiGroup::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, std::nullopt, tag, c10d::OpType::RECVANYSOURCE, "weft:recvAnySource");
}

MpiGroup::WorkPtr MpiGroup::receive(Tensors& tensors, std::optional<int> source, int tag, c10d::OpType type,
                                    const char* title) {
  return launch({type, title, options_->timeout, /*async=*/true}, [&] {
    const at::Tensor& tensor = only(tensors, "recv");
    if (source) require_root(*source, "recv");
    require_tag(tag, communicators_->messages());
    const OutputBuffer target = output_buffer(tensor);
    const auto sender = std::make_shared<int>(source.value_or(MPI_ANY_SOURCE));
    Task task;
    task.start = [target, sender, tag, comm = communicators_->messages()] {
      return std::make_unique<ReceiveOperation>(target, sender, tag, comm);
    };
    task.deliver = [target] { target.deliver(); };
    task.source = [sender] { return *sender; };
    task.inputs = {tensor};
    task.outputs = {tensor};
    return task;
  });
}

}  // namespace weft::process_group
