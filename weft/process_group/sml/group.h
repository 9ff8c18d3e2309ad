// The c10d backend `sml`: sums through a switch, all other operations through a fallback backend.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/aggregation/config/config.h"
#include "weft/process_group/sml/aggregation_queue.h"

namespace weft::process_group {

class SmlGroup final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // Collective: reads the configuration and joins a session at the switch. `fallback` belongs to the same group. If one
  // rank fails, all ranks throw its error.
  [[nodiscard]] static BackendPtr create(const c10d::DistributedBackendOptions& options, const BackendPtr& fallback);

  // Collective, before create(): returns "mpi" or "gloo"; `usual` unless the configuration sets it.
  [[nodiscard]] static std::string fallback_for(const c10d::DistributedBackendOptions& options,
                                                const std::string& usual);

  SmlGroup(int rank, int size, std::chrono::milliseconds timeout, BackendPtr fallback, aggregation::Config config,
           std::shared_ptr<AggregationQueue> queue);
  ~SmlGroup() override;

  // Number of operations per path ("switch.all_reduce", "fallback.broadcast", "fallback.all_reduce.Double", ...) and
  // the worker's packet counters.
  [[nodiscard]] std::map<std::string, std::int64_t> statistics() const;

  const std::string getBackendName() const override { return "sml"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  bool supportsCoalescing() const override { return fallback_->supportsCoalescing(); }
  void setSequenceNumberForGroup() override { fallback_->setSequenceNumberForGroup(); }
  std::uint64_t getSequenceNumberForGroup() override { return sequence_ + fallback_->getSequenceNumberForGroup(); }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  void waitForPendingWorks() override;
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;

  // Implemented in fallback.cpp:
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                        std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int dest, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  // Reason why a sum cannot use the switch, or an empty text. Depends only on properties that all ranks share: type,
  // reduction, length, configuration.
  [[nodiscard]] std::string objection(const at::Tensor& tensor, const c10d::ReduceOp& op) const;
  [[nodiscard]] WorkPtr through_switch(const Tensors& tensors, const c10d::ReduceOp& op, c10d::OpType type,
                                       std::chrono::milliseconds timeout, bool async);
  // Counts the operation and returns the fallback backend.
  c10d::Backend& other(const std::string& operation);
  void count(const std::string& name);

  c10::intrusive_ptr<Options> options_;
  BackendPtr fallback_;
  aggregation::Config config_;
  std::shared_ptr<AggregationQueue> queue_;  // null if the group has one rank
  std::atomic<std::uint64_t> sequence_{0};
  bool coalescing_ = false;
  std::mutex order_;  // held while a sum is queued, because all ranks must queue sums in the same order
  mutable std::mutex counting_;
  std::map<std::string, std::int64_t> counts_;
  std::vector<c10::weak_intrusive_ptr<c10d::Work>> pending_;
};

}  // namespace weft::process_group
