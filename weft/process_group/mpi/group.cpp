#include "weft/process_group/mpi/group.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <torch/library.h>

#include <algorithm>
#include <numeric>

#include "weft/mpi/communicator.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"
#include "weft/mpi/progress.h"
#include "weft/mpi/waiter.h"
#include "weft/process_group/mpi/rendezvous.h"

namespace weft::process_group {
namespace {

constexpr const char* kHowToStart =
    "start all ranks with MPI: `mpirun -n 4 python train.py` or `srun -n 4 python train.py`; torchrun does not work";

std::vector<int> all_ranks() {
  std::vector<int> ranks(static_cast<std::size_t>(mpi::CommView::world().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Complete when all operations of a batch are. Then throws the error of the first one that failed.
class BatchOperation final : public mpi::Operation {
 public:
  explicit BatchOperation(std::vector<c10::intrusive_ptr<MpiWork>> works) : works_(std::move(works)) {}
  bool advance() override {
    bool done = true;
    for (const auto& work : works_) done = work->advance() && done;
    if (!done) return false;
    for (const auto& work : works_) {
      if (!work->isSuccess()) std::rethrow_exception(work->exception());
    }
    return true;
  }

 private:
  std::vector<c10::intrusive_ptr<MpiWork>> works_;
};

// Several operations, started one after the other. If one cannot start, the earlier ones are abandoned.
std::unique_ptr<mpi::Operation> start_all(const std::vector<std::function<std::unique_ptr<mpi::Operation>()>>& starts) {
  auto operations = std::make_unique<mpi::OperationList>();
  for (const auto& start : starts) operations->add(start());
  return operations;
}

}  // namespace

MpiGroup::MpiGroup(std::shared_ptr<GroupCommunicators> communicators, const std::vector<int>& ranks,
                   std::chrono::milliseconds timeout)
    : Backend(communicators->rank(), communicators->size()),
      communicators_(std::move(communicators)),
      options_(c10::make_intrusive<Options>("weft", timeout)),
      world_ranks_(ranks) {
  options_->group_name = communicators_->name();
  options_->global_ranks_in_group.assign(ranks.begin(), ranks.end());
  init();
}

c10::intrusive_ptr<MpiGroup> MpiGroup::over(const std::vector<int>& ranks, const std::string& name,
                                            std::chrono::milliseconds timeout,
                                            const c10::intrusive_ptr<c10d::Store>& store) {
  mpi::Environment::ensure();
  mpi::Environment::require_thread_multiple("a process group");
  static_cast<void>(Communicator::world());  // its alarms interrupt waits; collective at the first call
  if (store) await_members(*store, ranks, name, timeout);
  return c10::make_intrusive<MpiGroup>(std::make_shared<GroupCommunicators>(ranks, name), ranks, timeout);
}

MpiGroup::~MpiGroup() { shutdown(); }

c10::intrusive_ptr<c10d::Backend> MpiGroup::create(const c10d::DistributedBackendOptions& options) {
  mpi::Environment::ensure();
  const mpi::CommView world = mpi::CommView::world();
  std::vector<int> ranks(options.global_ranks_in_group.begin(), options.global_ranks_in_group.end());
  if (ranks.empty()) {
    TORCH_CHECK(options.group_rank == world.rank() && options.group_size == world.size(), "weft: this process is rank ",
                options.group_rank, " of ", options.group_size, " for torch.distributed, but rank ", world.rank(),
                " of ", world.size(), " for MPI; ", kHowToStart);
    ranks = all_ranks();
  }
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  return over(ranks, options.group_id, timeout, options.store);
}

c10::intrusive_ptr<c10d::Backend> MpiGroup::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::vector<int>& ranks,
                                                  const c10::intrusive_ptr<Options>& opts) {
  const int number = splits_++;
  if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) return nullptr;
  std::vector<int> members;
  for (const int rank : ranks) {
    require_root(rank, "split");
    members.push_back(world_ranks_[static_cast<std::size_t>(rank)]);
  }
  const std::string name =
      opts && !opts->group_name.empty() ? opts->group_name : communicators_->name() + ".split" + std::to_string(number);
  return over(members, name, opts ? opts->timeout : options_->timeout, store);
}

void MpiGroup::require_root(std::int64_t root, const char* what) const {
  TORCH_CHECK(root >= 0 && root < size_, "weft: ", what, " expects a rank in [0, ", size_ - 1, "], got ", root);
}

c10::intrusive_ptr<MpiWork> MpiGroup::make_work(const CallSettings& settings, Task task) {
  // Only collectives count: all ranks call them, unlike messages and batches of messages.
  const bool collective = !c10d::isP2POp(settings.type) && settings.type != c10d::OpType::COALESCED;
  const CallInfo call{settings.type, settings.title, collective ? ++sequence_ : sequence_.load(), settings.timeout};
  return c10::make_intrusive<MpiWork>(communicators_, call, std::move(task));
}

MpiGroup::WorkPtr MpiGroup::launch(const CallSettings& settings, const std::function<Task()>& prepare) {
  c10::intrusive_ptr<MpiWork> work;
  {
    const std::lock_guard order(communicators_->order());
    communicators_->require_usable();
    const c10::AutoGradMode no_grad(false);
    if (coalescing_) return add_to_batch(settings, prepare);
    work = make_work(settings, prepare());
    work->start();
  }
  if (settings.async) {
    if (!work->advance()) advance_in_background(work);
    return work;
  }
  try {
    work->wait();
  } catch (const mpi::Interrupted&) {
    advance_in_background(work);  // the other ranks depend on it
    throw;
  }
  return work;
}

// An exception must not leave the batch before endCoalescing(): torch's coalescing manager would keep its state.
MpiGroup::WorkPtr MpiGroup::add_to_batch(const CallSettings& settings, const std::function<Task()>& prepare) {
  try {
    return batch_.emplace_back(make_work(settings, prepare()));
  } catch (const std::exception&) {
    if (!batch_error_) batch_error_ = std::current_exception();
    Task never_started;
    never_started.start = []() -> std::unique_ptr<mpi::Operation> { return nullptr; };
    return make_work(settings, std::move(never_started));
  }
}

void MpiGroup::advance_in_background(const c10::intrusive_ptr<MpiWork>& work) {
  remember(work);
  mpi::ProgressThread::instance().add([work] { return work->advance(); });
}

MpiGroup::WorkPtr MpiGroup::launch_each(const CallSettings& settings, std::size_t count,
                                        const std::function<Task(std::size_t)>& prepare) {
  return launch(settings, [&] {
    Task all;
    std::vector<std::function<std::unique_ptr<mpi::Operation>()>> starts;
    std::vector<std::function<void()>> deliveries;
    for (std::size_t i = 0; i < count; ++i) {
      Task one = prepare(i);
      starts.push_back(std::move(one.start));
      if (one.deliver) deliveries.push_back(std::move(one.deliver));
      all.inputs.insert(all.inputs.end(), one.inputs.begin(), one.inputs.end());
      all.outputs.insert(all.outputs.end(), one.outputs.begin(), one.outputs.end());
    }
    all.start = [starts = std::move(starts)] { return start_all(starts); };
    all.deliver = [deliveries = std::move(deliveries)] {
      for (const auto& deliver : deliveries) deliver();
    };
    return all;
  });
}

void MpiGroup::complete(mpi::Operation& operation, const char* what, std::chrono::milliseconds timeout) {
  try {
    mpi::complete(operation, {.operation = what, .communicator = Communicator::world().get(), .timeout = timeout});
  } catch (const std::exception& error) {
    communicators_->invalidate(std::string(what) + " failed: " + error.what(),
                               dynamic_cast<const mpi::PeerLost*>(&error) != nullptr);
    TORCH_CHECK_WITH(DistBackendError, false, "weft: ", what, " on process group '", communicators_->name(),
                     "' failed: ", error.what());
  }
}

void MpiGroup::startCoalescing() {
  batch_.clear();  // of a batch that ended with an exception; it has sent nothing
  batch_error_ = nullptr;
  coalescing_ = true;
}

MpiGroup::WorkPtr MpiGroup::endCoalescing() {
  coalescing_ = false;
  auto batch = std::exchange(batch_, {});
  if (const auto error = std::exchange(batch_error_, nullptr)) std::rethrow_exception(error);
  const CallSettings settings{c10d::OpType::COALESCED, "weft:coalesced", options_->timeout, /*async=*/true};
  return launch(settings, [&] {
    Task task;
    for (const auto& work : batch) {
      for (auto& tensor : work->result()) task.outputs.push_back(tensor);
    }
    task.start = [batch = std::move(batch)] {
      for (const auto& work : batch) work->start();
      return std::make_unique<BatchOperation>(batch);
    };
    return task;
  });
}

void MpiGroup::remember(const c10::intrusive_ptr<MpiWork>& work) {
  const std::lock_guard lock(pending_mutex_);
  std::erase_if(pending_, [](const auto& entry) {
    const auto held = entry.lock();
    return !held || held->isCompleted();
  });
  pending_.emplace_back(work);
}

std::vector<c10::intrusive_ptr<MpiWork>> MpiGroup::pending() {
  const std::lock_guard lock(pending_mutex_);
  std::vector<c10::intrusive_ptr<MpiWork>> works;
  for (const auto& entry : pending_) {
    if (auto held = entry.lock()) works.push_back(std::move(held));
  }
  return works;
}

void MpiGroup::waitForPendingWorks() {
  for (const auto& work : pending()) work->wait();
}

void MpiGroup::abort() {
  communicators_->invalidate("it was aborted");
  for (const auto& work : pending()) work->fail("the process group was aborted");
}

void MpiGroup::shutdown() { communicators_->close(); }

// At exit, Python must not wait for terminated ranks.
TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("process_group_lost_peer() -> bool", [] { return GroupCommunicators::any_peer_lost(); });
}

c10d::ErrorType MpiGroup::getError() {
  try {
    communicators_->require_usable();
  } catch (const c10::Error&) {
    return c10d::ErrorType::COMM_ERROR;
  }
  return c10d::ErrorType::SUCCESS;
}

}  // namespace weft::process_group
