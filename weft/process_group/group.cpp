#include "weft/process_group/group.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <torch/library.h>

#include <algorithm>
#include <numeric>

#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"
#include "weft/mpi/progress.h"
#include "weft/mpi/team.h"
#include "weft/mpi/waiter.h"

namespace weft::process_group {
namespace {

constexpr const char* kHowToStart =
    "start every rank by MPI: `mpirun -n 4 python train.py` or `srun -n 4 python train.py` (not torchrun, and not "
    "without "
    "a launcher)";

std::vector<int> everybody() {
  std::vector<int> ranks(static_cast<std::size_t>(mpi::CommunicatorView::world().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Done when all of a batch's are.
class BatchOperation final : public mpi::Operation {
 public:
  explicit BatchOperation(std::vector<c10::intrusive_ptr<c10d::Work>> works) : works_(std::move(works)) {}
  bool advance() override {
    std::erase_if(works_, [](const auto& entry) {
      auto* work = static_cast<Work*>(entry.get());
      if (!work->carry_on()) return false;
      if (!work->isSuccess()) std::rethrow_exception(work->exception());
      return true;
    });
    return works_.empty();
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace

Group::Group(std::shared_ptr<Channels> channels, const std::vector<int>& ranks, std::chrono::milliseconds timeout)
    : Backend(channels->rank(), channels->size()),
      channels_(std::move(channels)),
      options_(c10::make_intrusive<Options>("weft", timeout)),
      world_ranks_(ranks) {
  options_->group_name = channels_->name();
  options_->global_ranks_in_group.assign(ranks.begin(), ranks.end());
  init();
}

c10::intrusive_ptr<Group> Group::over(const std::vector<int>& ranks, const std::string& name,
                                      std::chrono::milliseconds timeout) {
  mpi::Environment::ensure();
  mpi::Environment::require_thread_multiple("a process group");
  static_cast<void>(mpi::Team::world());  // whose alarms interrupt waits; collective at its first call
  return c10::make_intrusive<Group>(std::make_shared<Channels>(ranks, name), ranks, timeout);
}

Group::~Group() { shutdown(); }

c10::intrusive_ptr<c10d::Backend> Group::create(const c10d::DistributedBackendOptions& options) {
  mpi::Environment::ensure();
  const mpi::CommunicatorView world = mpi::CommunicatorView::world();
  std::vector<int> ranks(options.global_ranks_in_group.begin(), options.global_ranks_in_group.end());
  if (ranks.empty()) {
    TORCH_CHECK(options.group_rank == world.rank() && options.group_size == world.size(),
                "weft: torch.distributed was told that this is rank ", options.group_rank, " of ", options.group_size,
                ", but for MPI it is rank ", world.rank(), " of ", world.size(), "; ", kHowToStart);
    ranks = everybody();
  }
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  return over(ranks, options.group_id, timeout);
}

c10::intrusive_ptr<c10d::Backend> Group::split(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                               const std::vector<int>& ranks, const c10::intrusive_ptr<Options>& opts) {
  const int number = splits_++;
  if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) return nullptr;
  std::vector<int> members;
  for (const int rank : ranks) {
    require_root(rank, "split");
    members.push_back(world_ranks_[static_cast<std::size_t>(rank)]);
  }
  const std::string name =
      opts && !opts->group_name.empty() ? opts->group_name : channels_->name() + ".split" + std::to_string(number);
  return over(members, name, opts ? opts->timeout : options_->timeout);
}

void Group::require_root(std::int64_t root, const char* what) const {
  TORCH_CHECK(root >= 0 && root < size_, "weft: ", what, " expects a rank in [0, ", size_ - 1, "], got ", root);
}

Group::WorkPtr Group::launch(const Manner& manner, const std::function<Job()>& begin) {
  c10::intrusive_ptr<Work> work;
  {
    const std::lock_guard order(channels_->order());
    channels_->require_usable();
    const c10::AutoGradMode no_grad(false);
    Job job = begin();
    // Collectives are numbered alike on all ranks; messages and batches of them are some ranks' own business.
    const bool collective = !c10d::isP2POp(manner.type) && manner.type != c10d::OpType::COALESCED;
    const Call call{manner.type, manner.title, collective ? ++sequence_ : sequence_.load(), manner.timeout};
    work = c10::make_intrusive<Work>(channels_, call, std::move(job));
  }
  if (coalescing_) {
    batch_.push_back(work);
    return work;
  }
  if (!manner.async) {
    work->wait();
  } else if (!work->carry_on()) {
    remember(work);
    mpi::ProgressThread::instance().add([work] { return work->carry_on(); });
  }
  return work;
}

Group::WorkPtr Group::launch_each(const Manner& manner, std::size_t count,
                                  const std::function<Job(std::size_t)>& begin) {
  return launch(manner, [&] {
    Job all;
    auto operations = std::make_unique<mpi::OperationList>();
    std::vector<std::function<void()>> deliveries;
    for (std::size_t i = 0; i < count; ++i) {
      Job one = begin(i);
      operations->add(std::move(one.operation));
      if (one.deliver) deliveries.push_back(std::move(one.deliver));
      all.inputs.insert(all.inputs.end(), one.inputs.begin(), one.inputs.end());
      all.outputs.insert(all.outputs.end(), one.outputs.begin(), one.outputs.end());
      all.memory.insert(all.memory.end(), one.memory.begin(), one.memory.end());
    }
    all.operation = std::move(operations);
    all.deliver = [deliveries = std::move(deliveries)] {
      for (const auto& deliver : deliveries) deliver();
    };
    return all;
  });
}

void Group::complete(mpi::Operation& operation, const char* what, std::chrono::milliseconds timeout) {
  try {
    mpi::complete(operation, {.operation = what, .team = mpi::Team::world().get(), .timeout = timeout});
  } catch (const std::exception& error) {
    channels_->give_up(std::string(what) + " failed: " + error.what(),
                       dynamic_cast<const mpi::PeerLost*>(&error) != nullptr);
    TORCH_CHECK_WITH(DistBackendError, false, "weft: ", what, " on process group '", channels_->name(),
                     "' failed: ", error.what());
  }
}

void Group::startCoalescing() {
  TORCH_CHECK(!coalescing_, "weft: a batch of operations is being collected already");
  coalescing_ = true;
}

Group::WorkPtr Group::endCoalescing() {
  coalescing_ = false;
  auto batch = std::exchange(batch_, {});
  const Manner manner{c10d::OpType::COALESCED, "weft:coalesced", options_->timeout, /*async=*/true};
  return launch(manner, [&] {
    Job job;
    for (const auto& work : batch) {
      for (auto& tensor : work->result()) job.outputs.push_back(tensor);
    }
    job.operation = std::make_unique<BatchOperation>(std::move(batch));
    return job;
  });
}

void Group::remember(const c10::intrusive_ptr<Work>& work) {
  const std::lock_guard lock(pending_mutex_);
  std::erase_if(pending_, [](const auto& entry) {
    const auto held = entry.lock();
    return !held || held->isCompleted();
  });
  pending_.emplace_back(work);
}

std::vector<c10::intrusive_ptr<Work>> Group::pending() {
  const std::lock_guard lock(pending_mutex_);
  std::vector<c10::intrusive_ptr<Work>> works;
  for (const auto& entry : pending_) {
    if (auto held = entry.lock()) works.push_back(std::move(held));
  }
  return works;
}

void Group::waitForPendingWorks() {
  for (const auto& work : pending()) work->wait();
}

void Group::abort() {
  channels_->give_up("it was aborted");
  for (const auto& work : pending()) work->fail("the process group was aborted");
}

void Group::shutdown() { channels_->close(); }

// For the end of the process, which must not wait for ranks that are gone.
TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("process_group_lost_peer", [] { return Channels::any_peer_lost(); });
}

c10d::ErrorType Group::getError() {
  try {
    channels_->require_usable();
  } catch (const c10::Error&) {
    return c10d::ErrorType::COMM_ERROR;
  }
  return c10d::ErrorType::SUCCESS;
}

}  // namespace weft::process_group
