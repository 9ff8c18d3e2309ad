#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/direct_reduce.h"
#include "weft/process_group/mpi/buffers.h"
#include "weft/process_group/mpi/group.h"

namespace weft::process_group {
namespace {

// Below this size, MPI's all-reduce needs fewer messages; above it, weft's own is faster (docs/process-group.md).
constexpr std::int64_t kSmallBytes = std::int64_t{8} << 10;

}  // namespace

Task MpiGroup::all_reduce_task(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  collective::require_communicable(tensor);
  const Reduction reduction(op, tensor, size_);
  const OutputBuffer target = in_place_buffer(tensor, reduction.type());
  reduction.prepare(target.memory);
  const auto type = collective::datatype_of(reduction.type());
  Task task;
  if (target.bytes() < kSmallBytes && size_ > 1) {
    mpi::Request request(collective::keep_alive(target.memory));
    mpi::all_reduce_start(target.data(), target.data(), target.memory.numel(), type, reduction.op(), comm(), request);
    task.operation = std::make_unique<mpi::RequestOperation>(std::move(request));
  } else {
    task.operation = mpi::direct_all_reduce(target.data(), target.memory.numel(), type, reduction.op(), comm(),
                                            communicators_->tags());
  }
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
    const Reduction reduction(opts.reduceOp, tensor, size_);
    const bool is_root = rank_ == opts.rootRank;
    const OutputBuffer target =
        is_root ? in_place_buffer(tensor, reduction.type()) : OutputBuffer{{}, reduction.prepared(tensor)};
    if (is_root) reduction.prepare(target.memory);
    mpi::Request request(collective::keep_alive(target.memory));
    mpi::reduce_start(target.memory.const_data_ptr(), is_root ? target.data() : nullptr, target.memory.numel(),
                      collective::datatype_of(reduction.type()), reduction.op(), static_cast<int>(opts.rootRank),
                      comm(), request);
    Task task;
    task.operation = std::make_unique<mpi::RequestOperation>(std::move(request));
    if (is_root) task.deliver = delivery(reduction, target);
    task.inputs = {tensor};
    task.outputs = {tensor};
    return task;
  });
}

Task MpiGroup::reduce_scatter_task(const Tensors& blocks, const at::Tensor& output, const c10d::ReduceOp& op) {
  collective::require_communicable(output);
  require_one_each(blocks, size_, "reduce_scatter");
  const Reduction reduction(op, output, size_);
  const OutputBuffer target = output_buffer(output, reduction.type());
  Task task;
  std::vector<const void*> data;
  std::vector<std::int64_t> counts;
  for (const at::Tensor& block : blocks) {
    require_same_type(block, output, "reduce_scatter");
    task.memory.push_back(reduction.prepared(block));
    data.push_back(task.memory.back().const_data_ptr());
    counts.push_back(block.numel());
  }
  TORCH_CHECK(counts[static_cast<std::size_t>(rank_)] == output.numel(), "weft: reduce_scatter expects an output of ",
              counts[static_cast<std::size_t>(rank_)], " elements (the size of this rank's input block), got ",
              output.numel());
  task.operation = mpi::direct_reduce_scatter(std::move(data), std::move(counts), target.data(),
                                              collective::datatype_of(reduction.type()), reduction.op(), comm(),
                                              communicators_->tags());
  task.deliver = delivery(reduction, target);
  task.inputs = blocks;
  task.outputs = {output};
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
  TORCH_CHECK(input.numel() == output.numel() * size_, "weft: reduce_scatter_tensor expects an input of ",
              output.numel() * size_, " elements, ", size_, " times the output's, got ", input.numel());
  return launch(settings(c10d::OpType::_REDUCE_SCATTER_BASE, "weft:_reduce_scatter_base", opts), [&] {
    Task task = reduce_scatter_task(equal_parts(input_buffer(input), size_), output, opts.reduceOp);
    task.inputs = {input};
    return task;
  });
}

MpiGroup::WorkPtr MpiGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "weft: reduce_scatter expects one output per input, got ",
              outputs.size(), " and ", inputs.size());
  return launch_each(settings(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "weft:reduce_scatter", opts),
                     inputs.size(), [&](std::size_t i) {
                       return reduce_scatter_task(equal_parts(input_buffer(inputs[i]), size_), outputs[i],
                                                  opts.reduceOp);
                     });
}

}  // namespace weft::process_group
