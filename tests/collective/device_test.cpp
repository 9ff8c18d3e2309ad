// Tensors on another device: results and gradients are on the same device; the data is staged through host memory.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <functional>

#include "tests/collective/single_process.h"
#include "tests/collective/standin_device.h"

namespace weft::collective {
namespace {

using mpi::ReduceOp;
using standin::kDevice;

Tensor on_device(const Tensor& x) { return leaf(x.to(kDevice)); }

Tensors inputs(at::IntArrayRef shape, at::ScalarType type = at::kDouble) {
  Tensors xs;
  for (std::int64_t r = 0; r < size(); ++r) xs.push_back(values(shape, r, type));
  return xs;
}

void expect_on_device(const Tensor& actual, const Tensor& expected, const std::string& what = "") {
  ASSERT_TRUE(actual.defined()) << what;
  EXPECT_EQ(actual.device(), kDevice) << what;
  expect_close(actual.to(at::kCPU), expected, what);
}

TEST(StandinDevice, MemoryIsNotDirectlyReadable) {
  const Tensor host = values({4, 3}, 1);
  const Tensor x = host.to(kDevice);
  EXPECT_NE(*static_cast<const double*>(x.const_data_ptr()), host[0][0].item<double>()) << "scrambled";
  expect_on_device(x, host);
  expect_on_device(x.t(), host.t());
  expect_on_device(x * 2 + x, host * 3);
}

TEST(StandinDevice, CollectivesReturnDeviceTensors) {
  const Tensors xs = inputs({3, 2});
  const auto me = static_cast<std::size_t>(rank());
  const Tensor x = on_device(xs[me]);
  const Tensor all = at::stack(xs);
  expect_on_device(all_reduce(x, comm()), all.sum(0), "all_reduce");
  expect_on_device(all_reduce(x, comm(), ReduceOp::kMean), all.mean(0), "all_reduce mean");
  expect_on_device(all_reduce(x, comm(), ReduceOp::kProd), all.prod(0), "all_reduce prod");
  expect_on_device(all_reduce(x.t(), comm()), all.sum(0).t(), "all_reduce of a transposed tensor");
  expect_on_device(reduce(x, comm(), ReduceOp::kMax), rank() == 0 ? std::get<0>(all.max(0)) : at::zeros_like(xs[0]),
                   "reduce");
  expect_on_device(broadcast(x, comm(), size() - 1), xs.back(), "broadcast");
  expect_on_device(all_gather(x, comm(), 1), at::cat(xs, 1), "all_gather");
  expect_on_device(gather(x, comm()), rank() == 0 ? at::cat(xs) : at::zeros({0, 2}, at::kDouble), "gather");
  expect_on_device(scan(x, comm()), all.narrow(0, 0, rank() + 1).sum(0), "scan");
  expect_on_device(exscan(x, comm()), all.narrow(0, 0, rank()).sum(0), "exscan");
  backward(std::nullopt);
}

TEST(StandinDevice, ExchangesReturnDeviceTensors) {
  const auto me = static_cast<std::size_t>(rank());
  const Tensors xs = inputs({size(), 2});
  const Tensor x = on_device(xs[me]);
  const Tensor all = at::stack(xs);
  expect_on_device(reduce_scatter(x, comm()), all.sum(0).narrow(0, rank(), 1), "reduce_scatter");
  expect_on_device(scatter(x, comm()), xs[0].narrow(0, rank(), 1), "scatter");
  expect_on_device(all_to_all(x, comm()), all.select(1, rank()), "all_to_all");
  // The tensor of a rank other than the root selects the device of its piece.
  const Tensor placeholder = rank() == 0 ? xs[0] : at::zeros({0}, at::TensorOptions().device(kDevice));
  EXPECT_EQ(scatter(placeholder, comm()).device(), rank() == 0 ? at::Device(at::kCPU) : kDevice);
  backward(std::nullopt);
}

TEST(StandinDevice, MessagesReturnDeviceTensors) {
  const Tensor x = on_device(values({3}, rank()));
  expect_on_device(sendrecv(x, comm(), next(), previous()), values({3}, previous()), "sendrecv");
  expect_on_device(sendrecv(x, comm(), next(), previous(), 1, x), values({3}, previous()), "sendrecv like");
  const auto receiving = irecv(x, comm(), previous());
  const auto sending = isend(x, comm(), next());
  expect_on_device(wait(receiving), values({3}, previous()), "irecv");
  wait(sending);
  const CommunicatorPtr ring = Communicator::adopt(comm()->origin().cart({comm()->size()}, {true}));
  const Tensors incoming = neighbour_exchange({x, x * 2}, ring);
  expect_on_device(incoming[0], 2 * values({3}, previous()), "neighbour before");
  expect_on_device(incoming[1], values({3}, next()), "neighbour after");
  backward(std::nullopt);
}

TEST(StandinDevice, NonBlockingOperationsReturnDeviceTensors) {
  const Tensors xs = inputs({3});
  const Tensor x = on_device(xs[static_cast<std::size_t>(rank())]);
  const auto reducing = iall_reduce(x, comm());
  const auto gathering = iall_gather(x, comm());
  const auto broadcasting = ibroadcast(x, comm());
  expect_on_device(wait(broadcasting), xs[0], "ibroadcast");
  expect_on_device(wait(gathering), at::cat(xs), "iall_gather");
  expect_on_device(wait(reducing), at::stack(xs).sum(0), "iall_reduce");
  backward(std::nullopt);
}

// The same program on the device and on the CPU.
Tensor program(const Tensor& x) {
  const Tensor sum = all_reduce(x * x, comm());
  const Tensor joined = all_gather(sum * x, comm());
  const Tensor moved = sendrecv(joined, comm(), next(), previous(), 0, joined);
  const Tensor unused = all_reduce(x, comm(), ReduceOp::kMax);
  const Tensor pieces = reduce_scatter(moved, comm());
  const Tensor last = wait(iall_reduce(pieces * x, comm()));
  return (last * last).sum();
}

TEST(StandinDevice, GradientsEqualThoseOnTheCpu) {
  const Tensor x = leaf(values({3}, rank()));
  backward(program(x));
  const Tensor y = on_device(values({3}, rank()));
  backward(program(y));
  EXPECT_EQ(Tape::current().length(), 0);
  expect_on_device(y.grad(), x.grad());
}

TEST(StandinDevice, RanksWithoutALossTakePartInBackward) {
  const Tensor x = on_device(values({3}, rank()));
  const Tensor loss = program(x);
  backward(rank() == 0 ? std::optional(loss) : std::nullopt);
  const Tensor y = leaf(values({3}, rank()));
  const Tensor expected = program(y);
  backward(rank() == 0 ? std::optional(expected) : std::nullopt);
  expect_on_device(x.grad(), y.grad());
}

Tensor second_derivative(const Tensor& x, bool has_loss) {
  const Tensor first = grad(program(x), {x}, {}, true, /*create_graph=*/true)[0];
  backward(has_loss ? std::optional((first * first).sum()) : std::nullopt);
  return x.grad();
}

TEST(StandinDevice, SecondDerivativesEqualThoseOnTheCpu) {
  const Tensor expected = second_derivative(leaf(values({3}, rank())), true);
  expect_on_device(second_derivative(on_device(values({3}, rank())), true), expected);
}

// Autograd runs the nodes of a device in a separate thread; they must not record to the tape of that thread.
TEST(StandinDevice, SecondDerivativesOfRanksWithoutALoss) {
  const Tensor expected = second_derivative(leaf(values({3}, rank())), rank() == 0);
  expect_on_device(second_derivative(on_device(values({3}, rank())), rank() == 0), expected);
  EXPECT_EQ(Tape::current().length(), 0);
}

TEST(StandinDevice, SecondDerivativesFreeTheGraph) {
  c10::weak_intrusive_ptr<c10::TensorImpl> watched{c10::intrusive_ptr<c10::TensorImpl>()};
  {
    const Tensor x = on_device(values({3}, rank()));
    const Tensor y = all_reduce(x * x, comm());
    const Tensor gradient = grad((y * y).sum(), {x}, {}, true, /*create_graph=*/true)[0];
    watched = c10::weak_intrusive_ptr<c10::TensorImpl>(gradient.getIntrusivePtr());
    backward((gradient * gradient).sum());
  }
  EXPECT_TRUE(watched.expired());
}

TEST(StandinDevice, RanksMayUseDifferentDevices) {
  const at::Device mine = rank() % 2 == 0 ? kDevice : at::Device(at::kCPU);
  const Tensor x = leaf(values({3}, rank()).to(mine));
  backward(program(x));
  EXPECT_EQ(x.grad().device(), mine);
  const Tensor y = leaf(values({3}, rank()));
  backward(program(y));
  expect_close(x.grad().to(at::kCPU), y.grad());
}

}  // namespace
}  // namespace weft::collective
