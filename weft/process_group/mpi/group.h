// The c10d backend `weft`: torch.distributed over MPI.
//
// The calling thread starts every operation in program order; from then on the operation is a state machine. A thread
// that waits for an operation advances it; the progress thread advances the others. No call blocks inside MPI, so every
// operation can time out, and operations of different groups never wait for each other.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/process_group/mpi/group_communicators.h"
#include "weft/process_group/mpi/work.h"

namespace weft::process_group {

class MpiGroup final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // ranks: the ranks of the members in MPI_COMM_WORLD.
  MpiGroup(std::shared_ptr<GroupCommunicators> communicators, const std::vector<int>& ranks,
           std::chrono::milliseconds timeout);
  ~MpiGroup() override;

  // Creates the group for init_process_group and new_group. Collective over its ranks. All ranks throw
  // DistBackendError if one of them does not call it within the group's timeout.
  // Throws c10::Error if rank or size differ from MPI's; the message explains how to start the job.
  [[nodiscard]] static c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions& options);
  // Collective over `ranks` of MPI_COMM_WORLD. The first group of a process must contain all ranks. Blocks inside MPI
  // until all ranks call it, unless they meet in `store` first.
  [[nodiscard]] static c10::intrusive_ptr<MpiGroup> over(const std::vector<int>& ranks, const std::string& name,
                                                         std::chrono::milliseconds timeout,
                                                         const c10::intrusive_ptr<c10d::Store>& store = nullptr);

  const std::string getBackendName() const override { return "weft"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  bool supportsSplitting() const override { return true; }
  // False, so that batch_isend_irecv starts the operations one by one: torch's coalescing manager keeps its state if an
  // operation raises, and later calls of all_reduce would then do nothing. Code that uses the manager still works.
  bool supportsCoalescing() const override { return false; }
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

  // Implemented in reductions.cpp:
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;

  // Implemented in sparse.cpp:
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;

  // Implemented in gathering.cpp:
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

  // Implemented in barrier.cpp:
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // Implemented in messages.cpp:
  WorkPtr send(Tensors& tensors, int dest, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  // Type, title, timeout and mode of a call.
  struct CallSettings {
    c10d::OpType type;
    const char* title;
    std::chrono::milliseconds timeout;
    bool async;
  };
  template <class C10dOptions>
  [[nodiscard]] CallSettings settings(c10d::OpType type, const char* title, const C10dOptions& opts) const {
    return {type, title, opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout, opts.asyncOp};
  }

  // Starts the task that `prepare` creates, in program order. A synchronous call returns when it is complete.
  // `prepare` checks all arguments; it throws before anything is sent. Between startCoalescing() and endCoalescing(),
  // the task is added to the batch instead.
  WorkPtr launch(const CallSettings& settings, const std::function<Task()>& prepare);
  // Starts a task that consists of `count` tasks, after all of them are prepared.
  WorkPtr launch_each(const CallSettings& settings, std::size_t count, const std::function<Task(std::size_t)>& prepare);
  [[nodiscard]] c10::intrusive_ptr<MpiWork> make_work(const CallSettings& settings, Task task);
  [[nodiscard]] WorkPtr add_to_batch(const CallSettings& settings, const std::function<Task()>& prepare);
  // Leaves an unfinished Work to the progress thread.
  void advance_in_background(const c10::intrusive_ptr<MpiWork>& work);
  // Blocks until one step of a call with several steps is complete.
  void complete(mpi::Operation& operation, const char* what, std::chrono::milliseconds timeout);
  void remember(const c10::intrusive_ptr<MpiWork>& work);
  [[nodiscard]] std::vector<c10::intrusive_ptr<MpiWork>> pending();

  [[nodiscard]] mpi::CommView comm() const { return communicators_->collectives(); }
  [[nodiscard]] int next_tag() { return communicators_->tags().tag(communicators_->tags().take(1)); }
  void require_root(std::int64_t root, const char* what) const;

  [[nodiscard]] Task all_reduce_task(const at::Tensor& tensor, const c10d::ReduceOp& op);
  [[nodiscard]] Task reduce_scatter_task(const Tensors& blocks, const at::Tensor& output, const c10d::ReduceOp& op);
  [[nodiscard]] Task reduce_scatter_tensor_task(const at::Tensor& input, const at::Tensor& output,
                                                const c10d::ReduceOp& op);
  [[nodiscard]] Task all_gather_task(const Tensors& outputs, const at::Tensor& input);
  [[nodiscard]] Task all_gather_into_task(const at::Tensor& output, const at::Tensor& input);
  [[nodiscard]] Task all_to_all_task(const Tensors& outputs, const Tensors& inputs);
  // Without a source, receives from any rank.
  [[nodiscard]] WorkPtr receive(Tensors& tensors, std::optional<int> source, int tag, c10d::OpType type,
                                const char* title);

  std::shared_ptr<GroupCommunicators> communicators_;
  c10::intrusive_ptr<Options> options_;
  std::vector<int> world_ranks_;  // ranks in MPI_COMM_WORLD, by rank in the group
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<int> splits_{0};
  std::mutex pending_mutex_;
  std::vector<c10::weak_intrusive_ptr<MpiWork>> pending_;
  bool coalescing_ = false;
  std::vector<c10::intrusive_ptr<MpiWork>> batch_;  // works that are not started yet
  std::exception_ptr batch_error_;                  // the error of the first invalid call
};

}  // namespace weft::process_group
