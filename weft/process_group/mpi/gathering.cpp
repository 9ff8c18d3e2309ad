#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/message/exchange.h"
#include "weft/node/broadcast.h"
#include "weft/node/exchange.h"
#include "weft/process_group/mpi/buffers.h"
#include "weft/process_group/mpi/group.h"

namespace weft::process_group {
namespace {

using Tensors = MpiGroup::Tensors;

void require_size(const Tensors& pieces, const at::Tensor& like, const char* what) {
  for (const at::Tensor& piece : pieces) {
    TORCH_CHECK(piece.numel() == like.numel(), "weft: ", what, " expects tensors of ", like.numel(),
                " elements, like this rank's own, got ", piece.numel(), " in the list");
  }
}

std::vector<std::int64_t> split_sizes(const std::vector<std::int64_t>& given, const at::Tensor& tensor, int ranks,
                                      const char* which) {
  const std::int64_t total = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (given.empty()) {
    TORCH_CHECK(total % ranks == 0, "weft: all_to_all expects an ", which, " whose first dimension (", total,
                ") is a multiple of the number of ranks (", ranks, "), or split sizes");
    return std::vector<std::int64_t>(static_cast<std::size_t>(ranks), total / ranks);
  }
  TORCH_CHECK(static_cast<int>(given.size()) == ranks, "weft: all_to_all expects one ", which,
              " split size for each of ", ranks, " ranks, got ", given.size());
  std::int64_t sum = 0;
  for (const std::int64_t size : given) {
    TORCH_CHECK(size >= 0, "weft: all_to_all expects ", which, " split sizes of at least 0, got ", size);
    sum += size;
  }
  TORCH_CHECK(sum == total, "weft: all_to_all expects ", which, " split sizes that add up to ", total, ", got ", sum);
  return given;
}

// The messages of a call. It owns their memory, so the memory lives until MPI has finished with it.
class Transfers {
 public:
  void send(int dest, const at::Tensor& input) {
    const at::Tensor& memory = memory_->emplace_back(input_buffer(input));
    outgoing_.push_back({dest, memory.const_data_ptr(), static_cast<std::int64_t>(memory.nbytes())});
  }
  void receive(int source, const OutputBuffer& target) {
    memory_->push_back(target.memory);
    incoming_.push_back({source, target.data(), target.bytes()});
  }
  // `kind` names the collective. `node` is the shared memory of the ranks of `comm`; may be null.
  [[nodiscard]] std::unique_ptr<mpi::Operation> start(const char* kind, std::shared_ptr<node::Group> node, int tag,
                                                      mpi::CommView comm) const {
    const bool host_memory = std::all_of(memory_->begin(), memory_->end(),
                                         [](const at::Tensor& memory) { return memory.device().is_cpu(); });
    if (node == nullptr || !node->cross_memory() || !host_memory)
      return mpi::exchange(outgoing_, incoming_, tag, comm, memory_);
    std::vector<node::Given> given(static_cast<std::size_t>(comm.size()));
    std::vector<node::Taken> taken(given.size());
    for (const mpi::Outgoing& message : outgoing_) {
      given[static_cast<std::size_t>(message.dest)] = {message.data, message.bytes};
    }
    for (const mpi::Incoming& message : incoming_) {
      taken[static_cast<std::size_t>(message.source)] = {message.data, message.bytes};
    }
    return node::start_exchange(std::move(node), kind, std::move(given), /*same_for_all=*/false, std::move(taken),
                                memory_);
  }

 private:
  std::vector<mpi::Outgoing> outgoing_;
  std::vector<mpi::Incoming> incoming_;
  std::shared_ptr<Tensors> memory_ = std::make_shared<Tensors>();
};

std::function<void()> delivery(std::vector<OutputBuffer> targets) {
  return [targets = std::move(targets)] { deliver_all(targets); };
}

}  // namespace

MpiGroup::WorkPtr MpiGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  require_root(opts.rootRank, "broadcast");
  return launch(settings(c10d::OpType::BROADCAST, "weft:broadcast", opts), [&] {
    const int root = static_cast<int>(opts.rootRank);
    const bool is_root = rank_ == root;
    const at::Tensor memory = is_root ? input_buffer(tensor) : at::Tensor();
    const OutputBuffer target = is_root ? OutputBuffer{memory, memory} : output_buffer(tensor);
    Task task;
    task.start = [this, target, root]() -> std::unique_ptr<mpi::Operation> {
      const auto keep = collective::keep_alive(target.memory);
      if (target.memory.device().is_cpu()) {
        if (auto operation = node::start_broadcast(target.data(), target.bytes(), root, comm(), keep)) return operation;
      }
      mpi::Request request(keep);
      mpi::broadcast_start(target.data(), target.memory.numel(), collective::datatype_of(target.memory.scalar_type()),
                           root, comm(), request);
      return std::make_unique<mpi::RequestOperation>(std::move(request));
    };
    if (!is_root) task.deliver = delivery({target});
    task.inputs = {tensor};
    task.outputs = {tensor};
    return task;
  });
}

Task MpiGroup::all_gather_task(const Tensors& outputs, const at::Tensor& input) {
  require_one_each(outputs, size_, "all_gather");
  require_same_type(input, outputs.front(), "all_gather");
  const auto& mine = outputs[static_cast<std::size_t>(rank_)];
  TORCH_CHECK(mine.numel() == input.numel(), "weft: all_gather expects an output of ", input.numel(),
              " elements for this rank (the size of its input), got ", mine.numel());
  const at::Tensor memory = input_buffer(input);  // one copy for all ranks
  std::vector<OutputBuffer> targets;
  Transfers transfers;
  for (int rank = 0; rank < size_; ++rank) {
    transfers.receive(rank, targets.emplace_back(output_buffer(outputs[static_cast<std::size_t>(rank)])));
    transfers.send(rank, memory);
  }
  Task task;
  task.start = [this, transfers] { return transfers.start("all_gather", communicators_->node(), next_tag(), comm()); };
  task.inputs = {input};
  task.deliver = delivery(std::move(targets));
  task.outputs = outputs;
  return task;
}

MpiGroup::WorkPtr MpiGroup::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const at::Tensor& input = only(inputs, "all_gather");
  TORCH_CHECK(outputs.size() == 1, "weft: all_gather expects one list of tensors, got ", outputs.size());
  return launch(settings(c10d::OpType::ALLGATHER, "weft:all_gather", opts),
                [&] { return all_gather_task(outputs.front(), input); });
}

Task MpiGroup::all_gather_into_task(const at::Tensor& output, const at::Tensor& input) {
  TORCH_CHECK(output.numel() == input.numel() * size_, "weft: all_gather_into_tensor expects an output of ",
              input.numel() * size_, " elements, ", size_, " times the input's, got ", output.numel());
  const OutputBuffer whole = output_buffer(output);
  Task task = all_gather_task(equal_parts(whole.memory, size_), input);
  task.deliver = delivery({whole});
  task.outputs = {output};
  return task;
}

MpiGroup::WorkPtr MpiGroup::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  return launch(settings(c10d::OpType::_ALLGATHER_BASE, "weft:_all_gather_base", opts),
                [&] { return all_gather_into_task(output, input); });
}

MpiGroup::WorkPtr MpiGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& opts) {
  return launch_each(settings(c10d::OpType::ALLGATHER_COALESCED, "weft:all_gather", opts),
                     std::max(inputs.size(), outputs.size()), [&](std::size_t i) {
                       require_pairs(outputs, inputs, "all_gather");
                       return all_gather_into_task(outputs[i], inputs[i]);
                     });
}

MpiGroup::WorkPtr MpiGroup::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(static_cast<int>(outputs.size()) == size_, "weft: all_gather_coalesced expects one list for each of ",
              size_, " ranks, got ", outputs.size());
  for (const auto& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "weft: all_gather_coalesced expects lists of ", inputs.size(),
                " tensors, like the inputs, got ", list.size());
  }
  return launch_each(settings(c10d::OpType::ALLGATHER_COALESCED, "weft:all_gather", opts), inputs.size(),
                     [&](std::size_t i) {
                       Tensors of_each_rank;
                       for (const auto& list : outputs) of_each_rank.push_back(list[i]);
                       return all_gather_task(of_each_rank, inputs[i]);
                     });
}

MpiGroup::WorkPtr MpiGroup::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  const at::Tensor& input = only(inputs, "gather");
  require_root(opts.rootRank, "gather");
  const bool is_root = rank_ == opts.rootRank;
  TORCH_CHECK(outputs.size() == (is_root ? 1 : 0), "weft: gather expects ",
              is_root ? "one list of tensors" : "no output list", " on rank ", rank_, " (the root is rank ",
              opts.rootRank, "), got ", outputs.size());
  if (is_root) {
    require_one_each(outputs.front(), size_, "gather");
    require_same_type(input, outputs.front().front(), "gather");
    require_size(outputs.front(), input, "gather");
  }
  return launch(settings(c10d::OpType::GATHER, "weft:gather", opts), [&] {
    Task task;
    task.inputs = {input};
    std::vector<OutputBuffer> targets;
    Transfers transfers;
    transfers.send(static_cast<int>(opts.rootRank), input);
    if (is_root) {
      for (int rank = 0; rank < size_; ++rank) {
        transfers.receive(rank, targets.emplace_back(output_buffer(outputs.front()[static_cast<std::size_t>(rank)])));
      }
      task.outputs = outputs.front();
    }
    task.start = [this, transfers] { return transfers.start("gather", communicators_->node(), next_tag(), comm()); };
    task.deliver = delivery(std::move(targets));
    return task;
  });
}

MpiGroup::WorkPtr MpiGroup::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  const at::Tensor& output = only(outputs, "scatter");
  require_root(opts.rootRank, "scatter");
  const bool is_root = rank_ == opts.rootRank;
  TORCH_CHECK(inputs.size() == (is_root ? 1 : 0), "weft: scatter expects ",
              is_root ? "one list of tensors" : "no input list", " on rank ", rank_, " (the root is rank ",
              opts.rootRank, "), got ", inputs.size());
  if (is_root) {
    require_one_each(inputs.front(), size_, "scatter");
    require_same_type(inputs.front().front(), output, "scatter");
    require_size(inputs.front(), output, "scatter");
  }
  return launch(settings(c10d::OpType::SCATTER, "weft:scatter", opts), [&] {
    Task task;
    const OutputBuffer target = output_buffer(output);
    Transfers transfers;
    transfers.receive(static_cast<int>(opts.rootRank), target);
    if (is_root) {
      for (int rank = 0; rank < size_; ++rank) transfers.send(rank, inputs.front()[static_cast<std::size_t>(rank)]);
      task.inputs = inputs.front();
    }
    task.start = [this, transfers] { return transfers.start("scatter", communicators_->node(), next_tag(), comm()); };
    task.deliver = delivery({target});
    task.outputs = {output};
    return task;
  });
}

Task MpiGroup::all_to_all_task(const Tensors& outputs, const Tensors& inputs) {
  require_one_each(outputs, size_, "all_to_all");
  require_one_each(inputs, size_, "all_to_all");
  require_same_type(inputs.front(), outputs.front(), "all_to_all");
  const auto me = static_cast<std::size_t>(rank_);
  TORCH_CHECK(inputs[me].numel() == outputs[me].numel(), "weft: all_to_all: this rank sends itself ",
              inputs[me].numel(), " elements but receives ", outputs[me].numel(), " from itself");
  Task task;
  std::vector<OutputBuffer> targets;
  Transfers transfers;
  for (int k = 0; k < size_; ++k) {
    const int to = (rank_ + k) % size_;  // each rank starts with a different receiver
    const int from = (rank_ - k + size_) % size_;
    transfers.send(to, inputs[static_cast<std::size_t>(to)]);
    transfers.receive(from, targets.emplace_back(output_buffer(outputs[static_cast<std::size_t>(from)])));
  }
  task.inputs = inputs;
  task.start = [this, transfers] { return transfers.start("all_to_all", communicators_->node(), next_tag(), comm()); };
  task.deliver = delivery(std::move(targets));
  task.outputs = outputs;
  return task;
}

MpiGroup::WorkPtr MpiGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                          std::vector<std::int64_t>& output_sizes,
                                          std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& opts) {
  collective::require_communicable(output);
  collective::require_communicable(input);
  const auto receives = split_sizes(output_sizes, output, size_, "output");
  const auto sends = split_sizes(input_sizes, input, size_, "input");
  return launch(settings(c10d::OpType::ALLTOALL_BASE, "weft:all_to_all", opts), [&] {
    const OutputBuffer whole = output_buffer(output);
    Task task = all_to_all_task(parts_of(whole.memory, receives), parts_of(input_buffer(input), sends));
    task.inputs = {input};
    task.deliver = delivery({whole});
    task.outputs = {output};
    return task;
  });
}

MpiGroup::WorkPtr MpiGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return launch(settings(c10d::OpType::ALLTOALL, "weft:all_to_all", opts),
                [&] { return all_to_all_task(outputs, inputs); });
}

}  // namespace weft::process_group
