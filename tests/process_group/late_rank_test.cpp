// Every operation of the process group with a late rank. The other ranks time out, free their tensors and allocate new
// ones. Then the late rank calls the operation. MPI must neither write into the new tensors nor send their contents.
#include <ATen/ops/full.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/eventually.h"
#include "weft/collective/pool.h"
#include "weft/mpi/comm.h"
#include "weft/mpi/progress.h"
#include "weft/mpi/request.h"
#include "weft/process_group/mpi/group.h"

namespace weft::process_group {
namespace {

using std::chrono::milliseconds;
using Tensors = MpiGroup::Tensors;
using TensorLists = MpiGroup::TensorLists;

constexpr int kLateRank = 0;
constexpr int kEarlyRank = 1;
constexpr double kCanary = -7;

enum class Layout { kPlain, kStrided };

// The calls of one rank with tensors of one size.
class Attempt {
 public:
  Attempt(c10::intrusive_ptr<MpiGroup> group, std::int64_t elements, Layout layout)
      : group_(std::move(group)), elements_(elements), layout_(layout) {
    group_->setTimeout(timeout());
  }

  [[nodiscard]] MpiGroup& group() { return *group_; }
  [[nodiscard]] int rank() const { return group_->getRank(); }
  [[nodiscard]] int size() const { return group_->getSize(); }
  [[nodiscard]] bool is_late() const { return rank() == kLateRank; }
  // The value in the tensors that a rank sends.
  [[nodiscard]] static double of(int rank) { return rank + 1; }

  // A tensor of `parts` times the number of elements.
  [[nodiscard]] at::Tensor filled(double value, int parts = 1) const {
    const at::Tensor plain = at::full({parts * elements_}, value, at::kFloat);
    if (layout_ == Layout::kPlain) return plain;
    return at::full({parts * elements_, 2}, value, at::kFloat).select(1, 0);
  }
  [[nodiscard]] at::Tensor mine(int parts = 1) const { return filled(of(rank()), parts); }
  [[nodiscard]] Tensors one_per_rank(double value) const {
    Tensors all;
    for (int i = 0; i < size(); ++i) all.push_back(filled(value));
    return all;
  }

  template <class Options>
  [[nodiscard]] Options options() const {
    Options result;
    result.timeout = timeout();
    result.asyncOp = true;
    return result;
  }

  void expect(const at::Tensor& result, double value) {
    checks_.push_back([=] { return holds(result, value); });
  }
  void started(c10::intrusive_ptr<c10d::Work> work) { works_.push_back(std::move(work)); }

  // Waits for the calls. Returns whether all of them succeeded.
  bool finish() {
    bool good = true;
    for (const auto& work : works_) {
      try {
        work->wait();
      } catch (const c10::Error&) {
        good = false;
      }
    }
    return good;
  }
  void check() const {
    for (const auto& check : checks_) EXPECT_TRUE(check()) << "wrong result on rank " << rank();
  }

  [[nodiscard]] static bool holds(const at::Tensor& tensor, double value) {
    return tensor.eq(value).all().item<bool>();
  }

 private:
  // The late rank starts after the others have given up, so their limit can be short.
  [[nodiscard]] milliseconds timeout() const { return milliseconds(is_late() ? 300 : 30); }

  c10::intrusive_ptr<MpiGroup> group_;
  std::int64_t elements_;
  Layout layout_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  std::vector<std::function<bool()>> checks_;
};

// Runs a call that may throw at once instead of returning a Work.
template <class Call>
bool attempt(Call&& call) {
  try {
    call();
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

struct Operation {
  const char* name;
  std::function<void(Attempt&)> call;
  bool needs_all = true;  // false if ranks may complete without the late one
};

std::ostream& operator<<(std::ostream& out, const Operation& operation) { return out << operation.name; }

double sum_of(int size) { return size * (size + 1) / 2.0; }

void all_gather_list(Attempt& a) {
  TensorLists outputs{a.one_per_rank(0)};
  Tensors inputs{a.mine()};
  for (int i = 0; i < a.size(); ++i) a.expect(outputs[0][static_cast<std::size_t>(i)], Attempt::of(i));
  a.started(a.group().allgather(outputs, inputs, a.options<c10d::AllgatherOptions>()));
}

void gather_to(Attempt& a, int root) {
  TensorLists outputs;
  if (a.rank() == root) outputs.push_back(a.one_per_rank(0));
  Tensors inputs{a.mine()};
  auto options = a.options<c10d::GatherOptions>();
  options.rootRank = root;
  if (a.rank() == root) {
    for (int i = 0; i < a.size(); ++i) a.expect(outputs[0][static_cast<std::size_t>(i)], Attempt::of(i));
  }
  a.started(a.group().gather(outputs, inputs, options));
}

void scatter_from(Attempt& a, int root) {
  TensorLists inputs;
  if (a.rank() == root) inputs.push_back(a.one_per_rank(Attempt::of(root)));
  Tensors outputs{a.filled(0)};
  auto options = a.options<c10d::ScatterOptions>();
  options.rootRank = root;
  a.expect(outputs[0], Attempt::of(root));
  a.started(a.group().scatter(outputs, inputs, options));
}

void broadcast_from(Attempt& a, int root) {
  Tensors tensors{a.rank() == root ? a.mine() : a.filled(0)};
  auto options = a.options<c10d::BroadcastOptions>();
  options.rootRank = root;
  a.expect(tensors[0], Attempt::of(root));
  a.started(a.group().broadcast(tensors, options));
}

void reduce_to(Attempt& a, int root) {
  Tensors tensors{a.mine()};
  auto options = a.options<c10d::ReduceOptions>();
  options.rootRank = root;
  if (a.rank() == root) a.expect(tensors[0], sum_of(a.size()));
  a.started(a.group().reduce(tensors, options));
}

void message(Attempt& a, int from, int to) {
  Tensors tensors{a.rank() == from ? a.mine() : a.filled(0)};
  if (a.rank() == from) a.started(a.group().send(tensors, to, 3));
  if (a.rank() != to) return;
  a.expect(tensors[0], Attempt::of(from));
  a.started(a.group().recv(tensors, from, 3));
}

const std::vector<Operation> kOperations{
    {"allreduce",
     [](Attempt& a) {
       Tensors tensors{a.mine()};
       a.expect(tensors[0], sum_of(a.size()));
       a.started(a.group().allreduce(tensors, a.options<c10d::AllreduceOptions>()));
     }},
    {"allreduce_avg",
     [](Attempt& a) {
       Tensors tensors{a.mine().to(at::kBFloat16)};
       auto options = a.options<c10d::AllreduceOptions>();
       options.reduceOp = c10d::ReduceOp::AVG;
       a.expect(tensors[0], sum_of(a.size()) / a.size());
       a.started(a.group().allreduce(tensors, options));
     }},
    {"allreduce_bfloat16",
     [](Attempt& a) {
       Tensors tensors{a.mine().to(at::kBFloat16)};
       a.expect(tensors[0], sum_of(a.size()));
       a.started(a.group().allreduce(tensors, a.options<c10d::AllreduceOptions>()));
     }},
    {"allreduce_coalesced",
     [](Attempt& a) {
       Tensors tensors{a.mine(), a.mine(2)};
       for (const auto& tensor : tensors) a.expect(tensor, sum_of(a.size()));
       a.started(a.group().allreduce_coalesced(tensors, a.options<c10d::AllreduceCoalescedOptions>()));
     }},
    {"allreduce_sparse",
     [](Attempt& a) {
       const at::Tensor indices = at::zeros({1, 1}, at::kLong);
       Tensors tensors{at::sparse_coo_tensor(indices, a.mine().unsqueeze(0), {2, a.mine().numel()})};
       a.started(a.group().allreduce_sparse(tensors, a.options<c10d::AllreduceOptions>()));
     }},
    {"reduce_to_late", [](Attempt& a) { reduce_to(a, kLateRank); }, false},
    {"reduce_to_early", [](Attempt& a) { reduce_to(a, kEarlyRank); }, false},
    {"reduce_scatter",
     [](Attempt& a) {
       Tensors outputs{a.filled(0)};
       TensorLists inputs{a.one_per_rank(Attempt::of(a.rank()))};
       a.expect(outputs[0], sum_of(a.size()));
       a.started(a.group().reduce_scatter(outputs, inputs, a.options<c10d::ReduceScatterOptions>()));
     }},
    {"_reduce_scatter_base",
     [](Attempt& a) {
       at::Tensor output = a.filled(0);
       at::Tensor input = a.mine(a.size());
       a.expect(output, sum_of(a.size()));
       a.started(a.group()._reduce_scatter_base(output, input, a.options<c10d::ReduceScatterOptions>()));
     }},
    {"reduce_scatter_tensor_coalesced",
     [](Attempt& a) {
       Tensors outputs{a.filled(0), a.filled(0)};
       Tensors inputs{a.mine(a.size()), a.mine(a.size())};
       for (const auto& output : outputs) a.expect(output, sum_of(a.size()));
       a.started(a.group().reduce_scatter_tensor_coalesced(outputs, inputs, a.options<c10d::ReduceScatterOptions>()));
     }},
    {"broadcast_from_late", [](Attempt& a) { broadcast_from(a, kLateRank); }},
    {"broadcast_from_early", [](Attempt& a) { broadcast_from(a, kEarlyRank); }, false},
    {"allgather", &all_gather_list},
    {"_allgather_base",
     [](Attempt& a) {
       at::Tensor output = a.filled(0, a.size());
       at::Tensor input = a.mine();
       for (int i = 0; i < a.size(); ++i) a.expect(output.narrow(0, i * input.numel(), input.numel()), Attempt::of(i));
       a.started(a.group()._allgather_base(output, input, a.options<c10d::AllgatherOptions>()));
     }},
    {"allgather_coalesced",
     [](Attempt& a) {
       TensorLists outputs;
       for (int i = 0; i < a.size(); ++i) {
         outputs.push_back({a.filled(0), a.filled(0, 2)});
         for (const auto& output : outputs.back()) a.expect(output, Attempt::of(i));
       }
       Tensors inputs{a.mine(), a.mine(2)};
       a.started(a.group().allgather_coalesced(outputs, inputs, a.options<c10d::AllgatherOptions>()));
     }},
    {"allgather_into_tensor_coalesced",
     [](Attempt& a) {
       Tensors outputs{a.filled(0, a.size()), a.filled(0, 2 * a.size())};
       Tensors inputs{a.mine(), a.mine(2)};
       a.started(a.group().allgather_into_tensor_coalesced(outputs, inputs, a.options<c10d::AllgatherOptions>()));
     }},
    {"gather_to_late", [](Attempt& a) { gather_to(a, kLateRank); }, false},
    {"gather_to_early", [](Attempt& a) { gather_to(a, kEarlyRank); }, false},
    {"scatter_from_late", [](Attempt& a) { scatter_from(a, kLateRank); }},
    {"scatter_from_early", [](Attempt& a) { scatter_from(a, kEarlyRank); }, false},
    {"alltoall_base",
     [](Attempt& a) {
       at::Tensor output = a.filled(0, a.size());
       at::Tensor input = a.mine(a.size());
       std::vector<std::int64_t> equal;
       const std::int64_t part = input.numel() / a.size();
       for (int i = 0; i < a.size(); ++i) a.expect(output.narrow(0, i * part, part), Attempt::of(i));
       a.started(a.group().alltoall_base(output, input, equal, equal, a.options<c10d::AllToAllOptions>()));
     }},
    {"alltoall",
     [](Attempt& a) {
       Tensors outputs = a.one_per_rank(0);
       Tensors inputs = a.one_per_rank(Attempt::of(a.rank()));
       for (int i = 0; i < a.size(); ++i) a.expect(outputs[static_cast<std::size_t>(i)], Attempt::of(i));
       a.started(a.group().alltoall(outputs, inputs, a.options<c10d::AllToAllOptions>()));
     }},
    {"barrier", [](Attempt& a) { a.started(a.group().barrier(a.options<c10d::BarrierOptions>())); }},
    {"monitored_barrier",
     [](Attempt& a) { a.group().monitoredBarrier(a.options<c10d::BarrierOptions>(), /*wait_all_ranks=*/true); }},
    {"send_from_late", [](Attempt& a) { message(a, kLateRank, kEarlyRank); }, false},
    {"send_from_early", [](Attempt& a) { message(a, kEarlyRank, kLateRank); }, false},
    {"receive_from_any",
     [](Attempt& a) {
       Tensors tensors{a.is_late() ? a.mine() : a.filled(0)};
       if (a.is_late()) a.started(a.group().send(tensors, kEarlyRank, 3));
       if (a.rank() != kEarlyRank) return;
       a.expect(tensors[0], Attempt::of(kLateRank));
       a.started(a.group().recvAnysource(tensors, 3));
     },
     false},
    {"batch",
     [](Attempt& a) {
       a.group().startCoalescing();
       Tensors sent{a.mine()};
       Tensors received{a.filled(0)};
       static_cast<void>(a.group().send(sent, (a.rank() + 1) % a.size(), 3));
       const int previous = (a.rank() + a.size() - 1) % a.size();
       static_cast<void>(a.group().recv(received, previous, 3));
       a.expect(received[0], Attempt::of(previous));
       a.started(a.group().endCoalescing());
     },
     false},
};

class LateRank : public testing::TestWithParam<Operation> {
 protected:
  struct Size {
    std::int64_t elements;
    Layout layout;
  };
  // A small message is copied when it is sent. A large one is read later.
  static constexpr Size kSizes[] = {{3, Layout::kPlain}, {70'001, Layout::kPlain}, {5'003, Layout::kStrided}};

  // Collective. Groups are not reused, because a failed operation makes them unusable.
  std::vector<Attempt> attempts() {
    static int number = 0;
    std::vector<int> ranks;
    for (int rank = 0; rank < world_.size(); ++rank) ranks.push_back(rank);
    std::vector<Attempt> made;
    for (const auto& [elements, layout] : kSizes) {
      const std::string name = "late" + std::to_string(number++);
      made.emplace_back(MpiGroup::over(ranks, name, milliseconds(0)), elements, layout);
    }
    return made;
  }

  // Tensors in the memory that the attempts freed.
  static Tensors canaries() {
    Tensors all;
    for (const auto& [elements, layout] : kSizes) {
      for (int parts = 1; parts <= 4; ++parts) {
        for (int i = 0; i < 4; ++i) all.push_back(at::full({parts * elements}, kCanary, at::kFloat));
        for (int i = 0; i < 2; ++i) {
          all.push_back(collective::pooled_empty({parts * elements}, at::kFloat).fill_(kCanary));
        }
      }
    }
    return all;
  }

  void give_up() {
    auto early = attempts();
    world_.barrier();
    bool done = true;
    for (auto& attempt : early) done = process_group::attempt([&] { GetParam().call(attempt); }) && done;
    for (auto& attempt : early) done = attempt.finish() && done;
    EXPECT_FALSE(done && GetParam().needs_all) << "the operation did not wait for the late rank";
  }

  void arrive_late() {
    auto late = attempts();
    world_.barrier();
    world_.barrier();  // the others have given up and allocated new tensors
    for (auto& attempt : late) {
      // Ranks that gave up do not answer, so some operations fail here as well.
      if (process_group::attempt([&] { GetParam().call(attempt); }) && attempt.finish()) attempt.check();
    }
  }

  const mpi::UniqueComm world_ = mpi::CommView::world().dup("late_rank");
};

TEST_P(LateRank, MemoryLivesUntilMpiHasFinishedWithIt) {
  if (world_.rank() == kLateRank) {
    arrive_late();
    world_.barrier();
    return;
  }
  give_up();
  eventually([] { return mpi::ProgressThread::instance().pending() == 0; }, "the end of all operations");
  const Tensors fresh = canaries();
  world_.barrier();
  world_.barrier();  // MPI makes progress here, so the messages of the late rank arrive
  eventually([] { return mpi::Request::abandoned_count() == 0; }, "the messages of the late rank");
  for (const auto& tensor : fresh) {
    ASSERT_TRUE(Attempt::holds(tensor, kCanary)) << "MPI wrote into freed memory, now a tensor of " << tensor.numel();
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, LateRank, testing::ValuesIn(kOperations),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft::process_group
