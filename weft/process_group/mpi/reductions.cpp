#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/direct_reduce.h"
#include "weft/node/all_reduce.h"
#include "weft/node/reduce.h"
#include "weft/node/reduce_scatter.h"
#include "weft/process_group/mpi/buffers.h"
#include "weft/process_group/mpi/group.h"

namespace weft::process_group {
namespace {

// Between nodes, MPI's all-reduce needs fewer messages below this size, and weft's own is faster above it
// (docs/process-group.md). Ranks that share memory use weft/node for all sizes.
constexpr std::int64_t kSmallBytes = std::int64_t{8} << 10;

using Algorithm = Reduction::Algorithm;

}  // namespace

Task MpiGroup::all_reduce_task(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  collective::require_communicable(tensor);
  const bool direct =
      static_cast<std::int64_t>(tensor.nbytes()) >= kSmallBytes || size_ == 1 || communicators_->node() != nullptr;
  const Reduction reduction(op, tensor, size_, direct ? Algorithm::kDirect : Algorithm::kMpi);
  const OutputBuffer target = in_place_buffer(tensor, reduction.type());
  Task task;
  task.start = [this, reduction, target, direct]() -> std::unique_ptr<mpi::Operation> {
    reduction.prepare(target.memory);
    const auto type = collective::datatype_of(reduction.type());
    const auto keep = collective::keep_alive(target.memory);
    if (target.memory.device().is_cpu()) {
      if (auto operation = node::start_all_reduce(target.data(), target.data(), target.memory.numel(), type,
                                                  reduction.op(), comm(), keep)) {
        return operation;
      }
    }
    if (direct) {
      return mpi::direct_all_reduce(target.data(), target.memory.numel(), type, reduction.op(), comm(),
                                    communicators_->tags(), keep);
    }
    mpi::Request request(keep);
    mpi::all_reduce_start(target.data(), target.data(), target.memory.numel(), type, reduction.op(), comm(), request);
    return std::make_unique<mpi::RequestOperation>(std::move(request));
  };
  task.deliver = delivery(reduction, target);
  task.inputs = {tensor};
  task.outputs = {tensor};
  return task;
}

MpiGroup::WorkPtr MpiGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1, "weft: all_reduce expects one tensor per rank, got ", tensors.size());
  if (tensors.front().layout() == at::kSparse) return allreduce_sparse(tensors, opts);
  return launch(settings(c10d::OpType::ALLREDUCE, "weft:all_reduce", opts),
                [&] { return all_reduce_task(tensors.front(), opts.reduceOp); });
}

MpiGroup::WorkPtr MpiGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return launch_each(settings(c10d::OpType::ALLREDUCE_COALESCED, "weft:all_reduce", opts), tensors.size(),
                     [&](std::size_t i) { return all_reduce_task(tensors[i], opts.reduceOp); });
}

MpiGroup::WorkPtr MpiGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor& tensor = only(tensors, "reduce");
  require_root(opts.rootRank, "reduce");
  return launch(settings(c10d::OpType::REDUCE, "weft:reduce", opts), [&] {
    const Reduction reduction(opts.reduceOp, tensor, size_, Algorithm::kMpi);
    const int root = static_cast<int>(opts.rootRank);
    const bool is_root = rank_ == root;
    const OutputBuffer target =
        is_root ? in_place_buffer(tensor, reduction.type()) : OutputBuffer{{}, reduction.prepared(tensor)};
    Task task;
    task.start = [this, reduction, target, root, is_root]() -> std::unique_ptr<mpi::Operation> {
      if (is_root) reduction.prepare(target.memory);
      const auto keep = collective::keep_alive(target.memory);
      const auto type = collective::datatype_of(reduction.type());
      const void* in = target.memory.const_data_ptr();
      void* out = is_root ? target.data() : nullptr;
      if (target.memory.device().is_cpu()) {
        if (auto operation =
                node::start_reduce(in, out, target.memory.numel(), type, reduction.op(), root, comm(), keep)) {
          return operation;
        }
      }
      mpi::Request request(keep);
      mpi::reduce_start(in, out, target.memory.numel(), type, reduction.op(), root, comm(), request);
      return std::make_unique<mpi::RequestOperation>(std::move(request));
    };
    if (is_root) task.deliver = delivery(reduction, target);
    task.inputs = {tensor};
    task.outputs = {tensor};
    return task;
  });
}

Task MpiGroup::reduce_scatter_task(const Tensors& blocks, const at::Tensor& output, const c10d::ReduceOp& op) {
  collective::require_communicable(output);
  require_one_each(blocks, size_, "reduce_scatter");
  const Reduction reduction(op, output, size_, Algorithm::kDirect);
  const OutputBuffer target = output_buffer(output, reduction.type());
  const auto memory = std::make_shared<Tensors>(1, target.memory);
  std::vector<const void*> data;
  std::vector<std::int64_t> counts;
  for (const at::Tensor& block : blocks) {
    require_same_type(block, output, "reduce_scatter");
    data.push_back(memory->emplace_back(reduction.prepared(block)).const_data_ptr());
    counts.push_back(block.numel());
  }
  TORCH_CHECK(counts[static_cast<std::size_t>(rank_)] == output.numel(), "weft: reduce_scatter expects an output of ",
              counts[static_cast<std::size_t>(rank_)], " elements (the size of this rank's input block), got ",
              output.numel());
  Task task;
  task.start = [this, reduction, target, memory, data = std::move(data), counts = std::move(counts)] {
    const auto type = collective::datatype_of(reduction.type());
    if (target.memory.device().is_cpu()) {
      if (auto operation =
              node::start_reduce_scatter(data, counts, target.data(), type, reduction.op(), comm(), memory)) {
        return operation;
      }
    }
    return mpi::direct_reduce_scatter(data, counts, target.data(), type, reduction.op(), comm(), communicators_->tags(),
                                      memory);
  };
  task.deliver = delivery(reduction, target);
  task.inputs = blocks;
  task.outputs = {output};
  return task;
}

Task MpiGroup::reduce_scatter_tensor_task(const at::Tensor& input, const at::Tensor& output, const c10d::ReduceOp& op) {
  TORCH_CHECK(input.numel() == output.numel() * size_, "weft: reduce_scatter_tensor expects an input of ",
              output.numel() * size_, " elements, ", size_, " times the output's, got ", input.numel());
  Task task = reduce_scatter_task(equal_parts(input_buffer(input), size_), output, op);
  task.inputs = {input};
  return task;
}

MpiGroup::WorkPtr MpiGroup::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                           const c10d::ReduceScatterOptions& opts) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1, "weft: reduce_scatter expects one list of tensors, got ", inputs.size());
  return launch(settings(c10d::OpType::REDUCE_SCATTER, "weft:reduce_scatter", opts),
                [&] { return reduce_scatter_task(inputs.front(), output, opts.reduceOp); });
}

MpiGroup::WorkPtr MpiGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& opts) {
  return launch(settings(c10d::OpType::_REDUCE_SCATTER_BASE, "weft:_reduce_scatter_base", opts),
                [&] { return reduce_scatter_tensor_task(input, output, opts.reduceOp); });
}

MpiGroup::WorkPtr MpiGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& opts) {
  return launch_each(settings(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "weft:reduce_scatter", opts),
                     std::max(inputs.size(), outputs.size()), [&](std::size_t i) {
                       require_pairs(outputs, inputs, "reduce_scatter");
                       return reduce_scatter_tensor_task(inputs[i], outputs[i], opts.reduceOp);
                     });
}

}  // namespace weft::process_group
