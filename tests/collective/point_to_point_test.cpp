// Messages between two ranks, neighbour exchanges and non-blocking collectives.
#include "weft/collective/point_to_point.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "tests/collective/single_process.h"
#include "tests/eventually.h"
#include "weft/collective/neighbour_exchange.h"
#include "weft/collective/pool.h"
#include "weft/mpi/request.h"

namespace weft::collective {
namespace {

using mpi::ReduceOp;
using testing::HasSubstr;

Tensor constant(double value) { return at::full({3}, value, at::kDouble); }

// Messages

TEST(Messages, RingOfSendsAndReceivesHasGradients) {
  // Rank 0 sends first, the others forward the tensor, and rank 0 receives it in the end.
  const Tensor x = leaf(values({2, 3}, rank()));
  Tensor y;
  if (rank() == 0) {
    const auto sending = isend(x * x, comm(), next());
    y = recv(std::nullopt, comm(), previous()).tensor;
    wait(sending);
  } else {
    y = recv(std::nullopt, comm(), previous()).tensor;
    send(y * x, comm(), next());
  }
  backward(rank() == 0 ? std::optional(y.sum()) : std::nullopt);

  Tensors xs;
  for (std::int64_t r = 0; r < size(); ++r) xs.push_back(leaf(values({2, 3}, r)));
  Tensor product = xs[0] * xs[0];
  for (std::int64_t r = 1; r < size(); ++r) product = product * xs[static_cast<std::size_t>(r)];
  const auto expected = torch::autograd::grad({product.sum()}, xs);
  if (rank() == 0) expect_close(y, product);
  expect_close(x.grad(), expected[static_cast<std::size_t>(rank())]);
}

TEST(Messages, SendrecvShiftsAndShiftsGradientsBack) {
  const Tensor x = leaf(values({4}, rank()));
  const Tensor y = sendrecv(x, comm(), next(), previous());
  expect_close(y, values({4}, previous()));
  backward(cubic_loss(y, rank()));
  const Tensor mine = x.detach();
  expect_close(x.grad(), 3 * mine * mine * values({4}, 100 + next()));
}

TEST(Messages, SecondDerivatives) {
  const Tensor x = leaf(values({4}, rank()));
  const Tensor y = sendrecv(x, comm(), next(), previous());
  const Tensor first = grad((y * y * y).sum(), {x}, {}, true, /*create_graph=*/true)[0];
  expect_close(first, 3 * x.detach() * x.detach());
  // The gradient of the gradient is sent back to its rank.
  const Tensor again = sendrecv(first, comm(), previous(), next());
  backward((again * values({4}, 7 + rank())).sum());
  expect_close(x.grad(), 6 * x.detach() * values({4}, 7 + previous()));
}

TEST(Messages, EqualTagsCanBeWaitedForOutOfOrder) {
  const Tensor x = leaf(values({3, 5}, rank()));
  std::vector<c10::intrusive_ptr<PendingOperation>> sends;
  std::vector<c10::intrusive_ptr<PendingOperation>> receives;
  for (int i = 0; i < 3; ++i) receives.push_back(irecv(std::nullopt, comm(), previous(), 9));
  for (int i = 0; i < 3; ++i) sends.push_back(isend(x[i] * (i + 1), comm(), next(), 9));
  Tensors ys(3);
  for (const std::size_t i : {2, 0, 1}) ys[i] = wait(receives[i]);
  for (const std::size_t i : {1, 2, 0}) EXPECT_FALSE(wait(sends[i]).defined());
  const Tensor theirs = values({3, 5}, previous());
  Tensor loss = at::zeros({}, at::kDouble);
  for (int i = 0; i < 3; ++i) {
    expect_close(ys[static_cast<std::size_t>(i)], theirs[i] * (i + 1));
    loss = loss + ys[static_cast<std::size_t>(i)].sum() * std::pow(10, i);
  }
  backward(loss);
  for (int i = 0; i < 3; ++i) expect_close(x.grad()[i], at::full({5}, (i + 1) * std::pow(10, i), at::kDouble));
}

TEST(Messages, AnySourceAndAnyTagReturnGradientsToTheSender) {
  const Tensor x = leaf(values({3}, rank()));
  if (rank() != 0) {
    send(x, comm(), 0, 10 + rank());
    backward(std::nullopt);
    expect_close(x.grad(), constant(static_cast<double>(rank())));
  } else {
    Tensor loss = x.sum() * 0;
    std::vector<bool> heard(static_cast<std::size_t>(size()), false);
    for (std::int64_t i = 1; i < size(); ++i) {
      const Received got = recv(std::nullopt, comm(), std::nullopt, std::nullopt);
      EXPECT_EQ(got.tag, 10 + got.source);
      expect_close(got.tensor, values({3}, got.source));
      heard[static_cast<std::size_t>(got.source)] = true;
      loss = loss + got.tensor.sum() * got.source;
    }
    EXPECT_EQ(std::count(heard.begin(), heard.end(), true), size() - 1);
    backward(loss);
  }
}

TEST(Messages, NonBlockingReceiveReportsItsSource) {
  if (rank() != 0) {
    send(values({3}, rank()), comm(), 0, 5);
    return;
  }
  for (std::int64_t i = 1; i < size(); ++i) {
    const auto pending = irecv(constant(0), comm(), std::nullopt, 5);
    eventually([&] { return pending->ready(); }, "a message");
    const Tensor y = wait(pending);
    EXPECT_EQ(pending->tag(), 5);
    expect_close(y, values({3}, pending->source()));
  }
}

TEST(Messages, LargeMessagesInBothDirectionsDoNotDeadlock) {
  constexpr std::int64_t kElements = std::int64_t{1} << 20;  // 8 MiB, more than MPI buffers
  const Tensor x = leaf(values({kElements}, rank()));
  const Tensor y = sendrecv(x, comm(), next(), previous());
  expect_close(y, values({kElements}, previous()));
  backward((y * y).sum());
  expect_close(x.grad(), 2 * x.detach());
}

TEST(Messages, GradientsInBothDirectionsDoNotDeadlock) {
  // Every rank starts large sends to all ranks before it receives, in forward and in backward.
  constexpr std::int64_t kElements = 1 << 15;
  const Tensor x = leaf(values({kElements}, rank()));
  std::vector<c10::intrusive_ptr<PendingOperation>> sends;
  for (std::int64_t peer = 0; peer < size(); ++peer) sends.push_back(isend(x * (peer + 1), comm(), peer));
  Tensor loss = at::zeros({}, at::kDouble);
  for (std::int64_t peer = 0; peer < size(); ++peer) {
    loss = loss + recv(std::nullopt, comm(), peer).tensor.sum() * (rank() + 1);
  }
  for (const auto& sending : sends) wait(sending);
  backward(loss);
  double expected = 0;
  for (std::int64_t peer = 1; peer <= size(); ++peer) expected += static_cast<double>(peer * peer);
  expect_close(x.grad(), at::full({kElements}, expected, at::kDouble));
}

TEST(Messages, SupportAnyShapeAndType) {
  const Tensors sent = {at::zeros({0, 3}),
                        at::full({}, 4.5, at::kDouble),
                        at::ones({2, 2}, at::kBool),
                        values({3}, 1, at::kComplexFloat).conj(),
                        values({4, 3}, 2).t(),
                        values({5}, 3, at::kHalf),
                        values({5}, 3, at::kBFloat16),
                        at::arange(7).to(at::kUInt16)};
  for (const Tensor& x : sent) {
    const Tensor y = sendrecv(x, comm(), next(), previous());
    EXPECT_EQ(y.scalar_type(), x.scalar_type());
    expect_close(y, x.resolve_conj(), c10::toString(x.scalar_type()));
    EXPECT_TRUE(y.is_contiguous());
  }
}

TEST(Messages, WithoutGradientsNothingIsRecorded) {
  const Tensor y = sendrecv(values({3}, rank()), comm(), next(), previous());
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(Tape::current().length(), 0);
}

TEST(Messages, ReceiverReturnsTheGradientIfTheSenderRequiresGrad) {
  // Only rank 0's tensor requires grad: its receiver records the receive and returns a gradient without having a loss.
  const Tensor x = values({3}, rank()).set_requires_grad(rank() == 0);
  const Tensor y = sendrecv(x, comm(), next(), previous());
  EXPECT_EQ(y.requires_grad(), previous() == 0);
  backward(rank() == 0 && size() > 1 ? std::nullopt : std::optional((y * 5).sum()));
  if (rank() == 0) expect_close(x.grad(), constant(5));
}

TEST(Messages, SecondWaitThrows) {
  const auto sending = isend(values({3}, rank()), comm(), next());
  const auto receiving = irecv(std::nullopt, comm(), previous());
  static_cast<void>(wait(receiving));
  wait(sending);
  EXPECT_THROW(static_cast<void>(wait(receiving)), c10::Error);
  EXPECT_THROW(static_cast<void>(wait(sending)), c10::Error);
  EXPECT_THROW(static_cast<void>(wait(nullptr)), c10::Error);
}

TEST(Messages, DroppedReceiveDoesNotMatchMessages) {
  {
    const auto dropped = irecv(std::nullopt, comm(), previous(), 3);
  }
  barrier(comm());  // the dropped receive may match earlier messages
  const Tensor y = sendrecv(values({3}, rank()), comm(), next(), previous(), 3);
  expect_close(y, values({3}, previous()));
}

TEST(Messages, SentTensorMayChangeAfterSend) {
  constexpr std::int64_t kElements = 1 << 16;
  const Tensor x = values({kElements}, rank());
  const auto receiving = irecv(std::nullopt, comm(), previous());
  const auto sending = isend(x, comm(), next());
  const Tensor y = wait(receiving);
  wait(sending);
  x.zero_();
  expect_close(y, values({kElements}, previous()));
}

// Neighbours on a grid

struct GridCase {
  std::vector<int> extents;
  std::vector<bool> periodic;
};

// The neighbour of `rank` on a row-major grid, if any.
std::optional<int> neighbour(const GridCase& grid, int rank, std::size_t side) {
  const std::size_t dim = side / 2;
  int stride = 1;
  for (std::size_t i = grid.extents.size(); i-- > dim + 1;) stride *= grid.extents[i];
  const int extent = grid.extents[dim];
  const int place = rank / stride % extent;
  int beside = place + (side % 2 == 0 ? -1 : 1);
  if (beside < 0 || beside >= extent) {
    if (!grid.periodic[dim]) return std::nullopt;
    beside = (beside + extent) % extent;
  }
  return rank + (beside - place) * stride;
}

// Every rank sends a different tensor to each side; shapes differ between the dimensions.
Tensor outgoing_of(int rank, std::size_t side) {
  return values({2 + static_cast<std::int64_t>(side / 2), 3}, 20 * rank + static_cast<std::int64_t>(side));
}

void check_exchange(const GridCase& c) {
  const CommunicatorPtr grid = Communicator::adopt(comm()->origin().cart(c.extents, c.periodic));
  if (grid == nullptr) return;
  const int me = grid->rank();
  const std::size_t sides = 2 * c.extents.size();
  Tensors outgoing;
  for (std::size_t side = 0; side < sides; ++side) outgoing.push_back(leaf(outgoing_of(me, side)));
  const Tensors incoming = neighbour_exchange(outgoing, grid);
  Tensor loss = at::zeros({}, at::kDouble);
  for (std::size_t side = 0; side < sides; ++side) {
    const auto beside = neighbour(c, me, side);
    ASSERT_EQ(incoming[side].defined(), beside.has_value()) << side;
    if (!beside) continue;
    expect_close(incoming[side], outgoing_of(*beside, side ^ 1U));
    loss = loss + (incoming[side] * incoming[side]).sum() * (me + 2 * static_cast<int>(side) + 1);
  }
  backward(loss);
  for (std::size_t side = 0; side < sides; ++side) {
    const auto beside = neighbour(c, me, side);
    const double weight = beside ? *beside + 2 * static_cast<double>(side ^ 1U) + 1 : 0;
    expect_close(grad_of(outgoing[side]), 2 * weight * outgoing[side].detach());
  }
}

TEST(Neighbours, ExchangeOnVariousGrids) {
  const int n = static_cast<int>(size());
  std::vector<GridCase> grids;
  for (const bool wraps : {false, true}) {
    grids.push_back({{n}, {wraps}});
    grids.push_back({{1, n}, {true, wraps}});
    grids.push_back({{n, 1}, {wraps, false}});
    grids.push_back({{1}, {wraps}});  // the other ranks are not members
    if (n >= 2) grids.push_back({{2}, {wraps}});
    if (n >= 4) grids.push_back({{2, 2}, {wraps, true}});
    if (n >= 4) grids.push_back({{2, 1, 2}, {true, wraps, false}});
  }
  for (const auto& grid : grids) {
    SCOPED_TRACE(testing::PrintToString(grid.extents) + " periodic " + testing::PrintToString(grid.periodic));
    check_exchange(grid);
  }
}

TEST(Neighbours, SecondDerivatives) {
  const CommunicatorPtr ring = Communicator::adopt(comm()->origin().cart({comm()->size()}, {true}));
  const Tensor x = leaf(values({3}, rank()));
  const Tensors in = neighbour_exchange({x, x * 2}, ring);
  const Tensor loss = (in[0] * in[0] * in[0]).sum() + (in[1] * in[1] * in[1]).sum();
  const Tensor first = grad(loss, {x}, {}, true, /*create_graph=*/true)[0];
  // The previous neighbour cubes x, the next one 2x: together x³ + 8x³.
  expect_close(first, 27 * x.detach().pow(2));
  backward(first.sum());
  expect_close(x.grad(), 54 * x.detach());
}

TEST(Neighbours, InvalidArgumentsThrow) {
  EXPECT_THROW(static_cast<void>(neighbour_exchange({}, comm())), std::exception) << "not Cartesian";
  const CommunicatorPtr ring = Communicator::adopt(comm()->origin().cart({comm()->size()}, {true}));
  EXPECT_THROW(static_cast<void>(neighbour_exchange({values({3}, 1)}, ring)), std::exception)
      << "one tensor for two sides";
  EXPECT_THROW(static_cast<void>(neighbour_exchange({values({3}, 1), Tensor()}, ring)), std::exception)
      << "a missing tensor";
}

TEST(Barrier, BlocksUntilAllRanksHaveCalledIt) {
  using Clock = std::chrono::steady_clock;
  barrier(comm());
  const auto start = Clock::now();
  if (rank() == size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  barrier(comm());
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(40));
}

// Non-blocking collectives

TEST(NonBlocking, AllReduceHasGradients) {
  const Tensor x = leaf(values({3}, rank()));
  Tensor sum = at::zeros({3}, at::kDouble);
  for (std::int64_t r = 0; r < size(); ++r) sum = sum + values({3}, r);
  for (const auto op : {ReduceOp::kSum, ReduceOp::kMean}) {
    const double scale = op == ReduceOp::kSum ? 1 : 1 / static_cast<double>(size());
    x.mutable_grad() = Tensor();
    const Tensor y = wait(iall_reduce(x, comm(), op));
    expect_close(y, sum * scale);
    backward((y * y).sum());
    expect_close(x.grad(), 2 * scale * scale * static_cast<double>(size()) * sum);
    EXPECT_EQ(Tape::current().length(), 0);
  }
}

TEST(NonBlocking, AllGatherAndBroadcast) {
  const Tensor x = leaf(values({2, rank() + 1}, rank()));
  const Tensor b = leaf(values({4}, rank()));
  const Tensor s = leaf(values({}, rank()));
  const auto gathering = iall_gather(x, comm(), -1);
  const auto broadcasting = ibroadcast(b, comm(), size() - 1);
  const auto scalars = iall_gather(s, comm());
  const Tensor from_root = wait(broadcasting);
  const Tensor numbers = wait(scalars);
  const Tensor all = wait(gathering);
  Tensors xs;
  for (std::int64_t r = 0; r < size(); ++r) xs.push_back(values({2, r + 1}, r));
  expect_close(all, at::cat(xs, 1));
  expect_close(from_root, values({4}, size() - 1));
  EXPECT_EQ(numbers.sizes(), at::IntArrayRef({size()}));
  backward((all * all).sum() + from_root.sum() * (rank() + 1) + numbers.sum());
  const auto n = static_cast<double>(size());
  expect_close(x.grad(), 2 * n * x.detach());
  expect_close(b.grad(), at::full({4}, rank() == size() - 1 ? n * (n + 1) / 2 : 0, at::kDouble));
  expect_close(s.grad(), at::full({}, n, at::kDouble));
}

TEST(NonBlocking, SecondDerivatives) {
  const auto n = static_cast<double>(size());
  const auto check = [&](const std::function<Tensor(const Tensor&)>& run, const std::function<Tensor(Tensor)>& second) {
    const Tensor x = leaf(values({3}, rank()));
    const Tensor y = run(x);
    const Tensor first = grad((y * y * y).sum(), {x}, {}, true, /*create_graph=*/true)[0];
    backward(first.sum());
    expect_close(grad_of(x), second(x.detach()));
  };
  // The first derivative is 3 n y² on every rank, the second n · 6 n y.
  check([](const Tensor& x) { return wait(iall_reduce(x, comm())); },
        [&](const Tensor& x) { return 6 * n * n * all_reduce(x, comm()); });
  check([](const Tensor& x) { return wait(iall_gather(x, comm())); }, [&](const Tensor& x) { return 6 * n * x; });
  check([](const Tensor& x) { return wait(ibroadcast(x, comm())); },
        [&](const Tensor& x) { return rank() == 0 ? 6 * n * x : at::zeros_like(x); });
}

TEST(NonBlocking, OtherOperationsMayRunBetweenStartAndWait) {
  const Tensor x = leaf(values({3}, rank()));
  const auto first = iall_reduce(x * 2, comm());
  const Tensor between = all_reduce(x * 3, comm());
  const auto second = iall_reduce(x * 5, comm());
  const Tensor b = wait(second);
  const Tensor a = wait(first);
  backward((a * a).sum() + between.sum() + b.sum());
  const auto n = static_cast<double>(size());
  expect_close(x.grad(), n * (4 * a.detach() + 8));
}

TEST(NonBlocking, OperationWithoutWaitTakesPartInBackward) {
  const Tensor x = leaf(values({3}, rank()));
  const auto a = iall_reduce(x, comm());
  const auto b = iall_gather(x, comm());
  const auto c = ibroadcast(x, comm());
  const Tensor used = all_reduce(x, comm());
  backward(used.sum());
  expect_close(x.grad(), constant(static_cast<double>(size())));
  expect_works(comm());
}

TEST(NonBlocking, OneRankMayWaitAlone) {
  const Tensor x = leaf(values({3}, rank()));
  const auto pending = iall_reduce(x, comm());
  // wait() is local in forward; in backward all ranks take part, with zeros if they did not wait.
  const Tensor loss = rank() == 0 ? wait(pending).sum() : x.sum() * 0;
  backward(loss);
  expect_close(x.grad(), constant(1));
  expect_works(comm());
}

TEST(NonBlocking, GradientsFlowThroughAWaitInAnotherTape) {
  const Tensor x = leaf(values({3}, rank()));
  const auto pending = iall_reduce(x, comm());
  {
    const TapeScope scope;
    const Tensor y = wait(pending);
    expect_close(grad(y.sum(), {x})[0], constant(static_cast<double>(size())), "the way to x is not cut");
  }
  Tape::current().reset();
}

TEST(NonBlocking, WorksWithoutATape) {
  const TapeScope off(false);
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = wait(iall_reduce(wait(iall_gather(x, comm())), comm()));
  y.sum().backward();
  expect_close(x.grad(), constant(static_cast<double>(size() * size())));
}

TEST(NonBlocking, DroppedOperationsKeepTheirMemory) {
  constexpr std::int64_t kElements = 1 << 18;
  barrier(comm());
  for (int round = 0; round < 5; ++round) {
    {
      const at::NoGradGuard no_grad;
      const auto dropped = iall_reduce(at::ones({kElements}), comm());
      const auto also_dropped = iall_gather(at::ones({kElements}), comm());
    }
    // Of the same size: the pool would return the memory of the dropped results if it were free.
    const Tensor fresh = pooled_empty({kElements}, at::kFloat).fill_(7);
    const Tensor longer = pooled_empty({kElements * size()}, at::kFloat).fill_(7);
    barrier(comm());
    while (mpi::Request::abandoned_count() > 0) std::this_thread::yield();
    EXPECT_TRUE(fresh.eq(7).all().item<bool>());
    EXPECT_TRUE(longer.eq(7).all().item<bool>());
  }
}

TEST(NonBlocking, RejectsReductionsThatItCannotDifferentiate) {
  const Tensor x = leaf(values({3}, rank()));
  EXPECT_ANY_THROW(static_cast<void>(iall_reduce(x, comm(), ReduceOp::kMax)));
  expect_close(wait(iall_reduce(constant(static_cast<double>(rank())), comm(), ReduceOp::kMax)),
               constant(static_cast<double>(size() - 1)));
  const auto pending = iall_reduce(x.detach(), comm());
  static_cast<void>(wait(pending));
  EXPECT_THROW(static_cast<void>(wait(pending)), c10::Error);
  expect_works(comm());
}

}  // namespace
}  // namespace weft::collective
