// Invalid calls: every rank throws an exception that describes the calls of all ranks, no rank hangs, and the
// communicator stays usable.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <functional>

#include "tests/collective/single_process.h"
#include "tests/mpi/scoped_options.h"
#include "weft/mpi/error.h"

namespace weft::collective {
namespace {

using mpi::Disagreement;
using mpi::PeerLost;
using mpi::ReduceOp;
using mpi::ScopedOptions;
using testing::AllOf;
using testing::HasSubstr;

class Errors : public testing::Test {
 protected:
  void SetUp() override {
    if (size() == 1) GTEST_SKIP() << "requires at least two ranks";
  }
  void TearDown() override {
    Tape::current().reset();
    expect_works(comm());
  }
  const bool odd_one_ = rank() == size() - 1;  // the rank whose call differs
  const std::string odd_name_ = "rank " + std::to_string(size() - 1) + ": ";
};

class ErrorsAlone : public testing::Test {};

template <class Error>
std::string text_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return "another exception: " + std::string(error.what());
  }
  return "no exception";
}

// Different calls

TEST_F(Errors, DifferentShapesThrowOnAllRanks) {
  const auto text = text_of<Disagreement>([&] { (void)all_reduce(at::zeros({odd_one_ ? 3 : 2}), comm()); });
  EXPECT_THAT(text,
              AllOf(HasSubstr("all_reduce(Float[2], 'sum')"), HasSubstr(odd_name_ + "all_reduce(Float[3], 'sum')"),
                    HasSubstr("errors_test.cpp"), HasSubstr("nothing was sent")));
}

TEST_F(Errors, DifferentSizesInOtherDimensionsThrowOnAllRanks) {
  const auto text = text_of<Disagreement>([&] { (void)all_gather(at::zeros({2, odd_one_ ? 3 : 2}), comm()); });
  EXPECT_THAT(text, AllOf(HasSubstr("all_gather(Float[2, 2]"), HasSubstr(odd_name_ + "all_gather(Float[2, 3]")));
}

TEST_F(Errors, DifferentTypesThrowOnAllRanks) {
  const auto type = odd_one_ ? at::kDouble : at::kFloat;
  for (const auto& run : std::vector<std::function<void()>>{
           [&] { (void)all_reduce(at::zeros({2}, type), comm()); },
           [&] { (void)broadcast(at::zeros({2}, type), comm()); },
           [&] { (void)all_to_all(at::zeros({2}, type), comm()); },
           [&] { (void)reduce_scatter(at::zeros({2}, type), comm()); },
           [&] { (void)scan(at::zeros({2}, type), comm()); },
           [&] { (void)gather(at::zeros({2}, type), comm()); },
           [&] { (void)iall_reduce(at::zeros({2}, type), comm()); },
       }) {
    EXPECT_THAT(text_of<Disagreement>(run), AllOf(HasSubstr("Float[2]"), HasSubstr("Double[2]")));
  }
}

TEST_F(Errors, DifferentReductionsThrowOnAllRanks) {
  const auto op = odd_one_ ? ReduceOp::kMax : ReduceOp::kSum;
  EXPECT_THAT(text_of<Disagreement>([&] { (void)all_reduce(at::zeros({2}), comm(), op); }),
              AllOf(HasSubstr("'sum'"), HasSubstr(odd_name_ + "all_reduce(Float[2], 'max')")));
  // prod, min and max use gather, so the other ranks report a gather.
  EXPECT_THAT(text_of<Disagreement>([&] { (void)reduce(at::zeros({2}), comm(), op); }),
              AllOf(HasSubstr("reduce(Float[2], 'sum', root=0)"), HasSubstr(odd_name_ + "gather(")));
}

TEST_F(Errors, DifferentRootsThrowOnAllRanks) {
  const std::int64_t root = odd_one_ ? 1 : 0;
  for (const auto& run : std::vector<std::function<void()>>{
           [&] { (void)broadcast(at::zeros({2}), comm(), root); },
           [&] { (void)reduce(at::zeros({2}), comm(), ReduceOp::kSum, root); },
           [&] { (void)gather(at::zeros({2}), comm(), 0, root); },
           [&] { (void)scatter(at::zeros({2}), comm(), 0, root); },
           [&] { (void)ibroadcast(at::zeros({2}), comm(), root); },
       }) {
    EXPECT_THAT(text_of<Disagreement>(run), AllOf(HasSubstr("root=0"), HasSubstr("root=1")));
  }
}

TEST_F(Errors, DifferentOperationsThrowOnAllRanks) {
  const auto text = text_of<Disagreement>([&] {
    if (odd_one_) {
      barrier(comm());
    } else {
      (void)all_gather(at::zeros({2}), comm());
    }
  });
  EXPECT_THAT(text, AllOf(HasSubstr("all_gather(Float[2], dim=0)"), HasSubstr(odd_name_ + "barrier()")));
}

TEST_F(Errors, DifferentPieceSizesThrowOnAllRanks) {
  Shape sizes(static_cast<std::size_t>(size()), 1);
  if (odd_one_) std::swap(sizes[0] = 2, sizes[1] = 0);
  EXPECT_THAT(
      text_of<Disagreement>([&] { (void)reduce_scatter(at::zeros({size()}), comm(), ReduceOp::kSum, 0, sizes); }),
      HasSubstr("reduce_scatter(Float["));
}

TEST_F(Errors, PiecesThatCannotBeConcatenatedThrowOnAllRanks) {
  // Pieces of different sizes can only be concatenated along the dimension of the split.
  Shape sizes(static_cast<std::size_t>(size()), 1);
  sizes[static_cast<std::size_t>(rank())] = 2;
  const auto x = at::zeros({size() + 1, 2});
  EXPECT_THAT(text_of<Disagreement>([&] { (void)all_to_all(x, comm(), 0, 1, sizes); }), HasSubstr("equal sizes"));
}

// Invalid arguments of one rank

TEST_F(Errors, AllRanksThrowIfOneRanksArgumentIsInvalid) {
  const auto expect = [&](const std::function<void()>& run, const char* cause) {
    EXPECT_THAT(text_of<Disagreement>(run), AllOf(HasSubstr(odd_name_), HasSubstr(cause)));
  };
  expect([&] { (void)all_reduce(odd_one_ ? at::zeros({2}).to_sparse() : at::zeros({2}), comm()); }, "to_dense()");
  expect([&] { (void)all_reduce(odd_one_ ? Tensor() : at::zeros({2}), comm()); },
         "expected a tensor, got an undefined tensor");
  expect([&] { (void)all_reduce(at::zeros({2}, odd_one_ ? at::kLong : at::kFloat), comm(), ReduceOp::kMean); },
         "'mean' is not defined on int64");
  expect([&] { (void)broadcast(at::zeros({2}), comm(), odd_one_ ? size() : 0); }, "root to be a rank in [0, ");
  expect([&] { (void)broadcast(at::zeros({2}), comm(), odd_one_ ? -1 : 0); }, "got -1");
  expect([&] { (void)gather(at::zeros({2}), comm(), odd_one_ ? 1 : 0); }, "expected a dimension in [-1, 0]");
  expect([&] { (void)all_gather(at::zeros({2}), comm(), odd_one_ ? -2 : 0); }, "got -2");
  expect([&] { (void)all_to_all(odd_one_ ? at::zeros({}) : at::zeros({2}), comm()); }, "at least one dimension");
  expect(
      [&] {
        (void)reduce_scatter(at::zeros({2}), comm(), ReduceOp::kSum, 0,
                             odd_one_ ? at::OptionalIntArrayRef(Shape{2}) : std::nullopt);
      },
      "one size per rank");
  expect([&] { (void)iall_gather(odd_one_ ? Tensor() : at::zeros({2}), comm()); }, "got an undefined tensor");
}

TEST_F(Errors, InvalidSizesOnTheRootThrowOnAllRanks) {
  Shape sizes(static_cast<std::size_t>(size()), 1);
  sizes[0] = -1;
  EXPECT_THAT(text_of<Disagreement>([&] { (void)scatter(at::zeros({size()}), comm(), 0, 0, sizes); }),
              AllOf(HasSubstr("rank 0: scatter failed"), HasSubstr("at least 0")));
  sizes[0] = 5;
  EXPECT_THAT(text_of<Disagreement>([&] { (void)scatter(at::zeros({size()}), comm(), 0, 0, sizes); }),
              HasSubstr("add up to"));
}

TEST_F(Errors, NoGradOnOneRankThrowsOnAllRanks) {
  const at::AutoGradMode mode(!odd_one_);
  const Tensor x = leaf(values({2}, rank()));
  EXPECT_THAT(text_of<Disagreement>([&] { (void)all_reduce(x, comm()); }),
              AllOf(HasSubstr("with gradients"), HasSubstr(odd_name_), HasSubstr("under no_grad")));
  EXPECT_EQ(Tape::current().length(), 0);
  // Without gradients, the grad modes may differ.
  expect_close(all_reduce(at::ones({2}), comm()), at::full({2}, static_cast<float>(size())));
}

// Messages

TEST_F(Errors, MessageOfTheWrongShapeThrows) {
  for (const std::int64_t elements : {3, 1 << 16}) {  // inline, and in a second message
    std::string text;
    if (rank() == 0) {
      const auto sending = isend(at::zeros({elements}), comm(), 1);
      text = text_of<PeerLost>([&] { barrier(comm()); });
    } else if (rank() == 1) {
      text = text_of<c10::Error>([&] { (void)recv(at::zeros({2}), comm(), 0); });
    } else {
      text = text_of<PeerLost>([&] { barrier(comm()); });
    }
    EXPECT_THAT(text, AllOf(HasSubstr("recv on rank 1 expected Float[2] from rank 0"),
                            HasSubstr("[" + std::to_string(elements) + "]")));
    expect_works(comm());
  }
}

TEST_F(Errors, ReceiveUnderNoGradThrowsIfTheSenderRequiresGrad) {
  const at::AutoGradMode mode(rank() != 1);
  std::string text;
  if (rank() == 0) {
    const Tensor x = leaf(values({2}, 0));
    send(x, comm(), 1);
    text = text_of<PeerLost>([&] { backward(std::nullopt); });
  } else if (rank() == 1) {
    text = text_of<c10::Error>([&] { (void)recv(std::nullopt, comm(), 0); });
  } else {
    text = text_of<PeerLost>([&] { barrier(comm()); });
  }
  EXPECT_THAT(text, HasSubstr("under no_grad"));
}

TEST_F(Errors, ReceiveWithoutSendTimesOut) {
  const ScopedOptions impatient([](mpi::Options& options) {
    options.timeout = std::chrono::milliseconds(300);
    options.warn_after = std::chrono::milliseconds(150);
  });
  EXPECT_THAT(text_of<mpi::TimeoutError>([&] { (void)recv(std::nullopt, comm(), next(), 77); }),
              AllOf(HasSubstr("recv"), HasSubstr("no message from rank " + std::to_string(next()))));
  barrier(comm());
}

// Backward

TEST_F(Errors, BackwardThrowsForReductionsWithoutADerivative) {
  const Tensor x = leaf(values({2}, rank()));
  for (const auto& run : std::vector<std::function<Tensor()>>{
           [&] { return all_reduce(x, comm(), ReduceOp::kLogicalAnd); },
           [&] { return reduce(x, comm(), ReduceOp::kLogicalOr); },
           [&] { return reduce_scatter(x, comm(), ReduceOp::kLogicalXor); },
           [&] { return scan(x, comm(), ReduceOp::kLogicalAnd); },
       }) {
    const Tensor y = run();
    EXPECT_THAT(text_of<c10::Error>([&] { backward(y.sum()); }), HasSubstr("has no derivative"));
    Tape::current().reset();
    expect_works(comm());
  }
}

TEST_F(Errors, DebugReportsTheForwardCallSite) {
  const ScopedOptions debugging([](mpi::Options& options) { options.debug = true; });
  const Tensor x = leaf(values({2}, rank()));
  const Tensor y = all_reduce(x, comm());
  const Tensor unreached = all_gather(x, comm());
  EXPECT_THAT(text_of<c10::Error>([&] { y.sum().backward(); }),
              AllOf(HasSubstr("does not reach all_gather"), HasSubstr("called from"), HasSubstr("errors_test.cpp:")));
}

TEST_F(Errors, CorrectProgramsWorkWithoutChecks) {
  const ScopedOptions unchecked([](mpi::Options& options) { options.check = false; });
  expect_works(comm());
  const Tensor x = leaf(values({rank() + 1}, rank()));
  const Tensor y = all_gather(x, comm());
  backward((y * y).sum());
  expect_close(x.grad(), 2 * static_cast<double>(size()) * x.detach());
  // An invalid argument then throws on its own rank only.
  if (odd_one_) {
    EXPECT_THROW((void)all_reduce(at::zeros({2}).to_sparse(), comm()), c10::Error);
  }
}

// Closed communicators; these tests run on any number of ranks.

TEST_F(ErrorsAlone, FreedCommunicatorThrows) {
  const CommunicatorPtr communicator = Communicator::over(comm()->origin(), "short-lived");
  expect_works(communicator);
  communicator->close();
  for (const auto& run : std::vector<std::function<void()>>{
           [&] { (void)all_reduce(at::zeros({2}), communicator); },
           [&] { (void)iall_reduce(at::zeros({2}), communicator); },
           [&] { send(at::zeros({2}), communicator, 0); },
           [&] { (void)irecv(std::nullopt, communicator, 0); },
           [&] { barrier(communicator); },
       }) {
    EXPECT_THAT(text_of<Disagreement>(run), HasSubstr("'short-lived' was freed"));
  }
  expect_works(comm());
}

TEST_F(ErrorsAlone, BackwardThrowsIfTheCommunicatorWasClosed) {
  const Tensor x = leaf(values({2}, rank()));
  Tensor y;
  {
    const CommunicatorPtr communicator = Communicator::over(comm()->origin(), "short-lived");
    y = all_reduce(x, communicator);
  }
  backward(y.sum());  // the recorded operation keeps the communicator alive
  expect_close(x.grad(), at::full({2}, static_cast<double>(size()), at::kDouble));

  const CommunicatorPtr communicator = Communicator::over(comm()->origin(), "closed");
  y = all_reduce(x, communicator);
  communicator->close();
  EXPECT_THAT(text_of<Disagreement>([&] { backward(y.sum()); }), HasSubstr("'closed' was freed"));
  expect_works(comm());
}

TEST_F(ErrorsAlone, InvalidRanksTagsAndTensorsThrow) {
  const Tensor x = at::zeros({2});
  EXPECT_THAT(text_of<c10::Error>([&] { send(x, comm(), size()); }), HasSubstr("dest to be a rank"));
  EXPECT_THAT(text_of<c10::Error>([&] { (void)recv(x, comm(), -1); }), HasSubstr("source to be a rank"));
  EXPECT_THAT(text_of<c10::Error>([&] { send(x, comm(), 0, -1); }), HasSubstr("expected a tag in [0, "));
  EXPECT_THAT(text_of<c10::Error>([&] { send(Tensor(), comm(), 0); }), HasSubstr("got an undefined tensor"));
  EXPECT_THAT(text_of<c10::Error>([&] { send(x.to_sparse(), comm(), 0); }), HasSubstr("to_dense()"));
  EXPECT_THAT(text_of<std::invalid_argument>([&] { send(at::zeros(Shape(17, 1)), comm(), 0); }),
              HasSubstr("16 dimensions"));
  expect_works(comm());
}

TEST_F(ErrorsAlone, OneRankThrowsTheOriginalException) {
  const CommunicatorPtr alone = Communicator::adopt(comm()->origin().split(comm()->rank(), 0));
  EXPECT_THROW((void)all_reduce(at::zeros({2}).to_sparse(), alone), c10::Error);
  EXPECT_THROW((void)all_gather(at::zeros({2}), alone, 4), c10::IndexError);
  expect_works(alone);
}

}  // namespace
}  // namespace weft::collective
