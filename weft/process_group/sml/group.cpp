#include "weft/process_group/sml/group.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <span>

#include "weft/numeric/half.h"
#include "weft/process_group/mpi/buffers.h"
#include "weft/process_group/sml/setup.h"
#include "weft/process_group/sml/work.h"

namespace weft::process_group {
namespace {

template <class Number>
void sum_as(aggregation::WorkerSession& session, const at::Tensor& memory, aggregation::Reduction reduction) {
  auto* data = static_cast<Number*>(memory.mutable_data_ptr());
  const auto count = static_cast<std::size_t>(memory.numel());
  session.all_reduce(std::span<const Number>(data, count), std::span<Number>(data, count), reduction);
}

void sum(aggregation::WorkerSession& session, const at::Tensor& memory, aggregation::Reduction reduction) {
  switch (memory.scalar_type()) {
    case at::kInt:
      return sum_as<std::int32_t>(session, memory, reduction);
    case at::kFloat:
      return sum_as<float>(session, memory, reduction);
    case at::kHalf:
      return sum_as<numeric::Float16>(session, memory, reduction);
    case at::kBFloat16:
      return sum_as<numeric::BFloat16>(session, memory, reduction);
    default:
      TORCH_INTERNAL_ASSERT(false, "sml: ", memory.scalar_type(), " is not supported");
  }
}

AggregationQueue::Task task_of(std::vector<OutputBuffer> targets, aggregation::Reduction reduction,
                               std::chrono::milliseconds timeout, const c10::intrusive_ptr<SmlWork>& work) {
  AggregationQueue::Task task;
  task.title = "all_reduce number " + std::to_string(work->getSequencenumber());
  for (const OutputBuffer& target : targets) task.elements += target.memory.numel();
  task.done = std::make_shared<std::atomic<std::int64_t>>(0);
  task.run = [targets = std::move(targets), reduction, timeout, done = task.done](aggregation::WorkerSession& session) {
    session.set_timeout(timeout);
    for (const OutputBuffer& target : targets) {
      sum(session, target.memory, reduction);
      target.deliver();
      *done += target.memory.numel();
    }
  };
  task.conclude = [work](std::exception_ptr error) { work->conclude(std::move(error)); };
  return task;
}

aggregation::Reduction reduction_of(const c10d::ReduceOp& op) {
  return op == c10d::ReduceOp::AVG ? aggregation::Reduction::kMean : aggregation::Reduction::kSum;
}

Membership members_of(const c10d::DistributedBackendOptions& options) {
  return {options.store, options.group_rank, options.group_size,
          std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout)};
}

}  // namespace

std::string SmlGroup::fallback_for(const c10d::DistributedBackendOptions& options, const std::string& usual) {
  return agreed_fallback(members_of(options), usual);
}

SmlGroup::BackendPtr SmlGroup::create(const c10d::DistributedBackendOptions& options, const BackendPtr& fallback) {
  const Membership members = members_of(options);
  aggregation::Config config = agreed_config(members);
  std::shared_ptr<AggregationQueue> queue = members.size > 1 ? open_queue(members, config) : nullptr;
  return c10::make_intrusive<SmlGroup>(members.rank, members.size, members.timeout, fallback, std::move(config),
                                       std::move(queue));
}

SmlGroup::SmlGroup(int rank, int size, std::chrono::milliseconds timeout, BackendPtr fallback,
                   aggregation::Config config, std::shared_ptr<AggregationQueue> queue)
    : Backend(rank, size),
      options_(c10::make_intrusive<Options>("sml", timeout)),
      fallback_(std::move(fallback)),
      config_(std::move(config)),
      queue_(std::move(queue)) {
  init();
}

SmlGroup::~SmlGroup() { shutdown(); }

std::map<std::string, std::int64_t> SmlGroup::statistics() const {
  std::map<std::string, std::int64_t> all;
  {
    const std::lock_guard lock(counting_);
    all = counts_;
  }
  if (!queue_) return all;
  const auto worker = queue_->statistics();
  all["switch.packets_sent"] = static_cast<std::int64_t>(worker.packets_sent);
  all["switch.packets_received"] = static_cast<std::int64_t>(worker.packets_received);
  all["switch.retransmissions"] = static_cast<std::int64_t>(worker.retransmissions);
  all["switch.extra_rounds"] = static_cast<std::int64_t>(worker.extra_rounds);
  all["switch.rejoins"] = static_cast<std::int64_t>(worker.rejoins);
  all["switch.round_trip_ns"] = static_cast<std::int64_t>(worker.round_trip.count());
  return all;
}

void SmlGroup::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  fallback_->setTimeout(timeout);
}

void SmlGroup::startCoalescing() {
  fallback_->startCoalescing();
  coalescing_ = true;  // coalesced operations use the fallback, because their order must be that of one backend
}

SmlGroup::WorkPtr SmlGroup::endCoalescing() {
  coalescing_ = false;
  return fallback_->endCoalescing();
}

void SmlGroup::waitForPendingWorks() {
  std::vector<WorkPtr> works;
  {
    const std::lock_guard lock(order_);
    for (const auto& entry : pending_) {
      if (auto work = entry.lock()) works.push_back(std::move(work));
    }
  }
  for (const auto& work : works) work->wait();
  fallback_->waitForPendingWorks();
}

void SmlGroup::abort() {
  if (queue_) queue_->give_up("it was aborted");
  fallback_->abort();
}

void SmlGroup::shutdown() {
  if (queue_) queue_->close();
  fallback_->shutdown();
}

c10d::ErrorType SmlGroup::getError() {
  return queue_ && !queue_->usable() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

std::string SmlGroup::objection(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  if (!queue_) return "one_rank";
  if (coalescing_) return "coalesced";
  if (op != c10d::ReduceOp::SUM && op != c10d::ReduceOp::AVG) return "reduction";
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu()) return "layout";
  const at::ScalarType type = tensor.scalar_type();
  const bool floating = type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  if (!floating && type != at::kInt) return c10::toString(type);
  if (type == at::kInt && op == c10d::ReduceOp::AVG) return "reduction";
  if (floating && config_.weft.exact) return "exact";
  if (floating && config_.general.prepostprocessor == "bypass") return "bypass";
  return tensor.numel() == 0 ? "empty" : "";
}

SmlGroup::WorkPtr SmlGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1, "sml: all_reduce expects one tensor per rank, got ", tensors.size());
  const std::string reason = objection(tensors.front(), opts.reduceOp);
  if (!reason.empty()) return other("all_reduce." + reason).allreduce(tensors, opts);
  return through_switch(tensors, opts.reduceOp, c10d::OpType::ALLREDUCE, opts.timeout, opts.asyncOp);
}

SmlGroup::WorkPtr SmlGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  for (const at::Tensor& tensor : tensors) {
    const std::string reason = objection(tensor, opts.reduceOp);
    if (!reason.empty()) return other("all_reduce_coalesced." + reason).allreduce_coalesced(tensors, opts);
  }
  return through_switch(tensors, opts.reduceOp, c10d::OpType::ALLREDUCE_COALESCED, opts.timeout, opts.asyncOp);
}

SmlGroup::WorkPtr SmlGroup::through_switch(const Tensors& tensors, const c10d::ReduceOp& op, c10d::OpType type,
                                           std::chrono::milliseconds timeout, bool async) {
  count("switch.all_reduce");
  const auto limit = timeout == c10d::kUnsetTimeout ? options_->timeout : timeout;
  c10::intrusive_ptr<SmlWork> work;
  {
    const std::lock_guard order(order_);
    const c10::AutoGradMode no_grad(false);
    std::vector<OutputBuffer> targets;
    for (const at::Tensor& tensor : tensors) targets.push_back(in_place_buffer(tensor));
    work = c10::make_intrusive<SmlWork>(queue_, rank_, type, ++sequence_, limit, tensors);
    queue_->add(task_of(std::move(targets), reduction_of(op), limit, work));
    std::erase_if(pending_, [](const auto& entry) {
      const auto held = entry.lock();
      return !held || held->isCompleted();
    });
    pending_.emplace_back(c10::intrusive_ptr<c10d::Work>(work));
  }
  if (!async) work->wait();
  return work;
}

}  // namespace weft::process_group
