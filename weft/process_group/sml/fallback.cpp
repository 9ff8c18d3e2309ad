// Operations that the fallback backend performs.
#include "weft/process_group/sml/group.h"

namespace weft::process_group {

void SmlGroup::count(const std::string& name) {
  const std::lock_guard lock(counting_);
  ++counts_[name];
}

c10d::Backend& SmlGroup::other(const std::string& operation) {
  count("fallback." + operation);
  return *fallback_;
}

SmlGroup::WorkPtr SmlGroup::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return other("all_reduce_sparse").allreduce_sparse(tensors, opts);
}

SmlGroup::WorkPtr SmlGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return other("broadcast").broadcast(tensors, opts);
}

SmlGroup::WorkPtr SmlGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return other("reduce").reduce(tensors, opts);
}

SmlGroup::WorkPtr SmlGroup::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return other("all_gather").allgather(outputs, inputs, opts);
}

SmlGroup::WorkPtr SmlGroup::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  return other("all_gather_into_tensor")._allgather_base(output, input, opts);
}

SmlGroup::WorkPtr SmlGroup::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& opts) {
  return other("all_gather_coalesced").allgather_coalesced(outputs, inputs, opts);
}

SmlGroup::WorkPtr SmlGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& opts) {
  return other("all_gather_into_tensor_coalesced").allgather_into_tensor_coalesced(outputs, inputs, opts);
}

SmlGroup::WorkPtr SmlGroup::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  return other("gather").gather(outputs, inputs, opts);
}

SmlGroup::WorkPtr SmlGroup::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  return other("scatter").scatter(outputs, inputs, opts);
}

SmlGroup::WorkPtr SmlGroup::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                           const c10d::ReduceScatterOptions& opts) {
  return other("reduce_scatter").reduce_scatter(outputs, inputs, opts);
}

SmlGroup::WorkPtr SmlGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& opts) {
  return other("reduce_scatter_tensor")._reduce_scatter_base(output, input, opts);
}

SmlGroup::WorkPtr SmlGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& opts) {
  return other("reduce_scatter_tensor_coalesced").reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

SmlGroup::WorkPtr SmlGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                          std::vector<std::int64_t>& output_sizes,
                                          std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& opts) {
  return other("all_to_all_single").alltoall_base(output, input, output_sizes, input_sizes, opts);
}

SmlGroup::WorkPtr SmlGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return other("all_to_all").alltoall(outputs, inputs, opts);
}

SmlGroup::WorkPtr SmlGroup::barrier(const c10d::BarrierOptions& opts) { return other("barrier").barrier(opts); }

void SmlGroup::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  other("monitored_barrier").monitoredBarrier(opts, wait_all_ranks);
}

SmlGroup::WorkPtr SmlGroup::send(Tensors& tensors, int dest, int tag) { return other("send").send(tensors, dest, tag); }

SmlGroup::WorkPtr SmlGroup::recv(Tensors& tensors, int source, int tag) {
  return other("recv").recv(tensors, source, tag);
}

SmlGroup::WorkPtr SmlGroup::recvAnysource(Tensors& tensors, int tag) {
  return other("recv").recvAnysource(tensors, tag);
}

}  // namespace weft::process_group
