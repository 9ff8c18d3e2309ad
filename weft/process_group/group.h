// The c10d backend `weft`: torch.distributed over MPI.
//
// Every operation is started by the calling thread, in program order, and is a state machine from then on: a caller who
// waits carries it on himself, with no other thread in between; what nobody waits for is carried on by the progress
// thread. Nothing blocks inside MPI, so everything can time out and operations of different groups never wait for each
// other.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/process_group/channels.h"
#include "weft/process_group/work.h"

namespace weft::process_group {

class Group final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // `ranks` are the members' in MPI_COMM_WORLD.
  Group(std::shared_ptr<Channels> channels, const std::vector<int>& ranks, std::chrono::milliseconds timeout);
  ~Group() override;

  // What init_process_group and new_group ask for. Throws, saying how to start the job, if the launcher gave other
  // ranks or another number of them than MPI has.
  [[nodiscard]] static c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions& options);
  // Collective over `ranks` of MPI_COMM_WORLD. The first group of a process must be everybody's.
  [[nodiscard]] static c10::intrusive_ptr<Group> over(const std::vector<int>& ranks, const std::string& name,
                                                      std::chrono::milliseconds timeout);

  const std::string getBackendName() const override { return "weft"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  void waitForPendingWorks() override;
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;

  // reductions.cpp
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;

  // sparse.cpp
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;

  // gathering.cpp
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                        std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;

  // barrier.cpp
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // messages.cpp
  WorkPtr send(Tensors& tensors, int dest, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  // How a call wants to be made.
  struct Manner {
    c10d::OpType type;
    const char* title;
    std::chrono::milliseconds timeout;
    bool async;
  };
  template <class CallOptions>
  [[nodiscard]] Manner manner(c10d::OpType type, const char* title, const CallOptions& opts) const {
    return {type, title, opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout, opts.asyncOp};
  }

  // Starts what `begin` describes, in program order; a synchronous call returns when it is done.
  WorkPtr launch(const Manner& manner, const std::function<Job()>& begin);
  // A job of several, one for each i < count.
  WorkPtr launch_each(const Manner& manner, std::size_t count, const std::function<Job(std::size_t)>& begin);
  // Carries one step of a compound call on to its end.
  void complete(mpi::Operation& operation, const char* what, std::chrono::milliseconds timeout);
  void remember(const c10::intrusive_ptr<Work>& work);
  [[nodiscard]] std::vector<c10::intrusive_ptr<Work>> pending();

  [[nodiscard]] mpi::CommunicatorView comm() const { return channels_->collectives(); }
  [[nodiscard]] int next_tag() { return channels_->tags().tag(channels_->tags().take(1)); }
  void require_root(std::int64_t root, const char* what) const;

  [[nodiscard]] Job all_reduce_job(const at::Tensor& tensor, const c10d::ReduceOp& op);
  [[nodiscard]] Job reduce_scatter_job(const Tensors& blocks, const at::Tensor& output, const c10d::ReduceOp& op);
  [[nodiscard]] Job all_gather_job(const Tensors& outputs, const at::Tensor& input);
  [[nodiscard]] Job all_gather_into_job(const at::Tensor& output, const at::Tensor& input);
  [[nodiscard]] Job all_to_all_job(const Tensors& outputs, const Tensors& inputs);
  [[nodiscard]] WorkPtr receive(Tensors& tensors, int source, int tag, c10d::OpType type, const char* title);

  std::shared_ptr<Channels> channels_;
  c10::intrusive_ptr<Options> options_;
  std::vector<int> world_ranks_;  // of MPI_COMM_WORLD, by rank of the group
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<int> splits_{0};
  std::mutex pending_mutex_;
  std::vector<c10::weak_intrusive_ptr<Work>> pending_;
  bool coalescing_ = false;
  std::vector<WorkPtr> batch_;
};

}  // namespace weft::process_group
