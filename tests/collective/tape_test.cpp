// The tape: backward runs all recorded communication on every rank, or throws an error that names skipped operations.
#include "weft/collective/autograd/tape.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/collective/single_process.h"
#include "weft/mpi/error.h"

namespace weft::collective {
namespace {

using mpi::ReduceOp;
using testing::AllOf;
using testing::HasSubstr;

Tensor constant(double value) { return at::full({3}, value, at::kDouble); }

template <class Run>
std::string text_of(Run&& run) {
  try {
    run();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class TapeTest : public testing::Test {
 protected:
  void TearDown() override { Tape::current().reset(); }
  const double n_ = static_cast<double>(size());
};

// Backward

TEST_F(TapeTest, ResultMayBeUsedByOneRankOnly) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor used = all_reduce(x, comm());
  const Tensor unused = all_gather(x * 3, comm());
  const Tensor moved = sendrecv(x * 2, comm(), next(), previous());
  const Tensor loss = rank() == 0 ? used.sum() + moved.sum() : x.sum() * 0;
  backward(loss);
  expect_close(x.grad(), constant(1 + (next() == 0 ? 2 : 0)));
}

TEST_F(TapeTest, RanksWithoutALossTakePartInBackward) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = all_reduce(x * x, comm());
  const Tensor z = all_reduce(y * y, comm(), ReduceOp::kMax);
  if (rank() == 0) {
    backward(z.sum());
  } else {
    backward(std::nullopt);
  }
  // z is equal on all ranks, so each gets 1/n of the gradient of y², and every y passes it to every x.
  expect_close(x.grad(), 4 * x.detach() * y.detach());
}

TEST_F(TapeTest, LossMayBeIndependentOfCommunication) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = broadcast(x, comm());
  backward(rank() == 0 ? y.sum() : at::ones({}, at::kDouble));
  expect_close(x.grad(), constant(rank() == 0 ? 1 : 0));
  backward(at::ones({}));  // nothing is recorded, so backward does nothing
  backward(std::nullopt);
}

TEST_F(TapeTest, LossOfSeveralElementsRequiresAGradient) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = all_reduce(x, comm());
  EXPECT_THAT(text_of([&] { backward(y); }), HasSubstr("3 elements"));
  const Tensor again = all_reduce(x, comm());
  backward(again, constant(2));
  expect_close(x.grad(), constant(2 * n_));
  expect_works(comm());
}

TEST_F(TapeTest, PlainBackwardWorksIfItReachesAllOperations) {
  const Tensor x = leaf(values({3}, rank()));
  all_reduce(all_reduce(x, comm()) * 2, comm()).sum().backward();
  expect_close(x.grad(), constant(2 * n_ * n_));
  EXPECT_EQ(Tape::current().length(), 0);
}

TEST_F(TapeTest, PlainBackwardThatSkipsAnOperationThrowsOnAllRanks) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = all_reduce(x, comm());
  const Tensor unreached = all_gather(x, comm());
  EXPECT_THAT(text_of([&] { y.sum().backward(); }),
              AllOf(HasSubstr("does not reach all_gather on communicator 'world'"), HasSubstr("weft.backward(loss)")));
  Tape::current().reset();
  expect_works(comm());
}

TEST_F(TapeTest, OtherRanksThrowIfOneRankSkipsAnOperation) {
  if (size() == 1) GTEST_SKIP() << "requires at least two ranks";
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = all_reduce(x, comm());
  const Tensor unreached = all_gather(x, comm());
  if (rank() == 0) {
    EXPECT_THAT(text_of([&] { y.sum().backward(); }), HasSubstr("does not reach all_gather"));
    Tape::current().reset();
  } else {
    try {
      backward(y.sum() + unreached.sum());
      ADD_FAILURE() << "expected PeerLost";
    } catch (const mpi::PeerLost& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("does not reach all_gather"));
    }
  }
  EXPECT_EQ(Tape::current().length(), 0) << "a failed backward empties the tape";
  expect_works(comm());
}

TEST_F(TapeTest, OtherRanksThrowIfBackwardOfOneRankThrows) {
  if (size() == 1) GTEST_SKIP() << "requires at least two ranks";
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = all_reduce(x, comm());
  if (rank() == 0) {
    y.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("a hook that fails"); });
  }
  try {
    backward(y.sum());
    ADD_FAILURE() << "expected an exception";
  } catch (const mpi::PeerLost& error) {
    EXPECT_EQ(error.rank(), 0);
    EXPECT_THAT(error.what(), HasSubstr("a hook that fails"));
  } catch (const std::exception& error) {
    EXPECT_EQ(rank(), 0);
    EXPECT_THAT(error.what(), HasSubstr("a hook that fails"));
  }
  expect_works(comm());
}

TEST_F(TapeTest, RetainedGraphAllowsASecondBackward) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = all_reduce(x, comm());
  const Tensor loss = (y * y).sum();
  backward(loss, std::nullopt, /*retain_graph=*/true);
  EXPECT_EQ(Tape::current().length(), 1) << "kept for the second pass";
  backward(loss);
  expect_close(x.grad(), 4 * n_ * y.detach());
  EXPECT_EQ(Tape::current().length(), 0);
}

// grad

TEST_F(TapeTest, PrunedBackwardThrows) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor z = leaf(values({3}, 10 + rank()));
  const Tensor first = all_gather(x, comm());
  const Tensor second = all_reduce(z, comm());
  const std::string text = text_of([&] { torch::autograd::grad({second.sum()}, {z}); });
  EXPECT_THAT(text, AllOf(HasSubstr("would skip communication before all_reduce"), HasSubstr("Use weft.grad")));
  Tape::current().reset();
  expect_works(comm());
}

TEST_F(TapeTest, GradReturnsGradientsWithoutAccumulation) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor z = leaf(values({3}, 10 + rank()));
  const Tensor unrelated = leaf(values({2}, rank()));
  const Tensor first = all_gather(x, comm());
  const Tensor second = all_reduce(z, comm());
  const auto gradients = grad(rank() == 0 ? std::optional(second.sum()) : std::nullopt, {z, unrelated, x});
  expect_close(gradients[0], constant(1));
  expect_close(gradients[1], at::zeros({2}, at::kDouble));
  expect_close(gradients[2], at::zeros({3}, at::kDouble));
  for (const Tensor& input : {x, z, unrelated}) EXPECT_FALSE(input.grad().defined());
  EXPECT_EQ(Tape::current().length(), 0);
}

TEST_F(TapeTest, GradOfAnIntermediateTensor) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor middle = all_reduce(x, comm()) * 2;
  const Tensor y = all_reduce(middle, comm());
  expect_close(grad(y.sum(), {middle})[0], constant(n_));
}

TEST_F(TapeTest, GradRejectsInputsThatDoNotRequireGrad) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = all_reduce(x, comm());
  EXPECT_THAT(text_of([&] { static_cast<void>(grad(y.sum(), {values({3}, 1)})); }), HasSubstr("require grad"));
  expect_works(comm());
}

TEST_F(TapeTest, SupportsThirdDerivatives) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = all_reduce(x, comm(), ReduceOp::kMean);
  const Tensor first = grad((y * y * y * y).sum(), {x}, {}, true, true)[0];
  const Tensor second = grad(first.sum(), {x}, {}, true, true)[0];
  backward(second.sum());
  expect_close(first, 4 * y.detach().pow(3));
  expect_close(second, 12 * y.detach().pow(2));
  expect_close(x.grad(), 24 * y.detach());
}

// anchor

TEST_F(TapeTest, PlainBackwardFromAnAnchorRunsAllOperations) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor y = all_reduce(x, comm());
  const Tensor unused = all_gather(x, comm());
  const Tensor loss = anchor(y.sum());
  expect_close(loss, y.sum().detach());
  EXPECT_EQ(Tape::current().length(), 0) << "anchor empties the tape";
  loss.backward();
  expect_close(x.grad(), constant(n_));
}

TEST_F(TapeTest, AnchorsSeparateRegions) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor first = anchor(all_reduce(x, comm()).sum());
  const Tensor second = anchor(all_reduce(x * 3, comm()).sum());
  second.backward();  // the order does not matter
  expect_close(x.grad(), constant(3 * n_));
  first.backward();
  expect_close(x.grad(), constant(4 * n_));
}

TEST_F(TapeTest, AnchorWithoutCommunicationReturnsItsArgument) {
  const Tensor x = leaf(values({3}, rank()));
  EXPECT_TRUE(anchor(x).is_same(x));
  EXPECT_THAT(text_of([] { static_cast<void>(anchor(at::zeros({2}, at::kLong))); }),
              HasSubstr("floating-point or complex"));
  EXPECT_THAT(text_of([] { static_cast<void>(anchor(Tensor())); }), HasSubstr("floating-point or complex"));
}

// Scopes

TEST_F(TapeTest, ScopesHaveSeparateTapes) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor outer = all_reduce(x, comm());
  {
    const TapeScope scope;
    EXPECT_EQ(Tape::current().length(), 0);
    const Tensor inner = all_reduce(x * 2, comm());
    const Tensor unused = all_gather(x, comm());
    EXPECT_EQ(Tape::current().length(), 2);
    backward(inner.sum());
    expect_close(x.grad(), constant(2 * n_));
  }
  EXPECT_EQ(Tape::current().length(), 1);
  backward(outer.sum());
  expect_close(x.grad(), constant(3 * n_));
}

TEST_F(TapeTest, GradientsFlowOutOfAScope) {
  const Tensor x = leaf(values({3}, rank()));
  const Tensor outer = all_reduce(x, comm());
  Tensor inner;
  {
    const TapeScope scope;
    inner = anchor(all_reduce(outer * outer, comm()));
  }
  backward(inner.sum());
  expect_close(x.grad(), 2 * n_ * n_ * outer.detach());
}

TEST_F(TapeTest, WithoutATapeDataDependenciesOrderCommunication) {
  const Tensor x = leaf(values({3}, rank()));
  Tensor y;
  {
    const TapeScope off(false);
    y = all_reduce(all_reduce(x, comm()) * 2, comm());
    EXPECT_EQ(Tape::current().length(), 0);
  }
  EXPECT_EQ(Tape::current().length(), 0);
  y.sum().backward();
  expect_close(x.grad(), constant(2 * n_ * n_));
}

TEST_F(TapeTest, NoGradRecordsNothing) {
  const at::NoGradGuard no_grad;
  const Tensor x = leaf(values({3}, rank()));
  EXPECT_FALSE(all_reduce(x, comm()).requires_grad());
  EXPECT_EQ(Tape::current().length(), 0);
}

// Memory

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl>;

Weak weak(const Tensor& x) { return Weak(x.getIntrusivePtr()); }

TEST_F(TapeTest, BackwardFreesTheGraph) {
  const Tensor x = leaf(values({3}, rank()));
  std::vector<Weak> watched;
  for (const auto op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax}) {
    Tensor middle = x * 2;
    Tensor y = all_reduce(middle * middle, comm(), op);
    watched.push_back(weak(middle));  // saved by mul
    watched.push_back(weak(y));       // saved by prod and max
    Tensor loss = (y * y).sum();
    backward(loss);
    EXPECT_EQ(Tape::current().length(), 0);
  }
  for (std::size_t i = 0; i < watched.size(); ++i) EXPECT_TRUE(watched[i].expired()) << i;
}

TEST_F(TapeTest, ResetFreesTheGraph) {
  const Tensor x = leaf(values({3}, rank()));
  std::vector<Weak> watched;
  {
    const Tensor middle = x * 2;
    const Tensor y = all_reduce(middle * middle, comm(), ReduceOp::kProd);
    watched = {weak(middle), weak(y)};
  }
  EXPECT_FALSE(watched[0].expired()) << "the tape keeps tensors for backward";
  Tape::current().reset();
  for (const auto& tensor : watched) EXPECT_TRUE(tensor.expired());
}

TEST_F(TapeTest, SecondDerivativesFreeTheGraph) {
  const Tensor x = leaf(values({3}, rank()));
  std::vector<Weak> watched;
  {
    const Tensor middle = x * 2;
    const Tensor y = all_reduce(middle * middle, comm());
    const Tensor gradient = grad((y * y).sum(), {x}, {}, true, /*create_graph=*/true)[0];
    watched = {weak(middle), weak(y), weak(gradient)};
    backward((gradient * gradient).sum());
  }
  for (std::size_t i = 0; i < watched.size(); ++i) EXPECT_TRUE(watched[i].expired()) << i;
}

// A communicator of one rank sends no messages, so long chains are cheap.
TEST_F(TapeTest, LongChainsNeedNoDeepStack) {
  const CommunicatorPtr alone = Communicator::adopt(comm()->origin().split(comm()->rank(), 0));
  const Tensor x = leaf(values({1}, rank()));
  constexpr int kLength = 19'000;  // the tape warns from 20,000 operations on
  const auto record_chain = [&] {
    Tensor y;
    for (int i = 0; i < kLength; ++i) y = all_reduce(x, alone);
    return y;
  };
  EXPECT_EQ((record_chain(), Tape::current().length()), kLength);
  Tape::current().reset();
  backward(record_chain().sum());
  expect_close(x.grad(), at::ones({1}, at::kDouble));
}

}  // namespace
}  // namespace weft::collective
