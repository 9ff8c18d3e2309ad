// Compares values and derivatives of every collective with those that one process computes with ATen.
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <mpi.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <numeric>

#include "tests/collective/single_process.h"

namespace weft::collective {
namespace {

using mpi::ReduceOp;

// An operation with its arguments: the inputs of each rank, weft's computation and the single-process reference.
struct Case {
  std::string name;
  std::function<Shape(std::int64_t rank)> shape;
  std::function<Tensor(const Tensor& x)> run;
  std::function<Tensors(const Tensors& xs)> reference;
  bool linear = true;
  bool complex = true;  // supports complex numbers
};

Tensor reduced(const Tensors& xs, ReduceOp op) {
  const Tensor all = at::stack(xs);
  switch (op) {
    case ReduceOp::kMean:
      return all.mean(0);
    case ReduceOp::kProd:
      return all.prod(0);
    case ReduceOp::kMin:
      return at::amin(all, 0);
    case ReduceOp::kMax:
      return at::amax(all, 0);
    default:
      return all.sum(0);
  }
}

Tensors everywhere(const Tensor& y) { return Tensors(static_cast<std::size_t>(size()), y); }

// y on the root, a constant on other ranks.
Tensors only_on(std::int64_t root, const Tensor& y, const Tensor& elsewhere) {
  Tensors ys(static_cast<std::size_t>(size()), elsewhere);
  ys[static_cast<std::size_t>(root)] = y;
  return ys;
}

// Pieces of different sizes; with three or more ranks, one of them is empty.
Shape uneven() {
  Shape sizes;
  for (std::int64_t r = 0; r < size(); ++r) sizes.push_back((r + 1) % 3);
  return sizes;
}

std::int64_t total(const Shape& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

// A balanced split, larger pieces first.
Shape even_split(std::int64_t total) {
  Shape sizes;
  for (std::int64_t r = 0; r < size(); ++r) sizes.push_back(total / size() + (r < total % size() ? 1 : 0));
  return sizes;
}

Tensors scanned(const Tensors& xs, ReduceOp op, bool exclusive, bool reverse) {
  Tensors ys;
  for (std::int64_t r = 0; r < size(); ++r) {
    const auto at = [&](std::int64_t i) { return xs.begin() + i; };
    const Tensors part =
        reverse ? Tensors(at(r + (exclusive ? 1 : 0)), xs.end()) : Tensors(xs.begin(), at(r + (exclusive ? 0 : 1)));
    const double nothing = op == ReduceOp::kProd ? 1 : 0;  // the case masks infinities
    ys.push_back(part.empty() ? at::zeros_like(xs[0].detach()).add(nothing) : reduced(part, op));
  }
  return ys;
}

// The result of rank j: piece j of every rank's tensor, concatenated.
Tensors exchanged(const Tensors& xs, std::int64_t split_dim, std::int64_t concat_dim,
                  const std::function<Shape(std::int64_t rank)>& sizes) {
  std::vector<Tensors> arriving(static_cast<std::size_t>(size()));
  for (std::int64_t i = 0; i < size(); ++i) {
    const auto pieces = xs[static_cast<std::size_t>(i)].split_with_sizes(sizes(i), split_dim);
    for (std::size_t j = 0; j < pieces.size(); ++j) arriving[j].push_back(pieces[j]);
  }
  Tensors ys;
  for (const auto& parts : arriving) ys.push_back(at::cat(parts, concat_dim));
  return ys;
}

Tensor without_infinities(const Tensor& y) { return y.masked_fill(y.isinf(), 0); }

bool is_order(ReduceOp op) { return op == ReduceOp::kMin || op == ReduceOp::kMax; }

std::function<Shape(std::int64_t)> same(Shape shape) {
  return [shape](std::int64_t) { return shape; };
}

constexpr ReduceOp kDifferentiable[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kProd, ReduceOp::kMin,
                                        ReduceOp::kMax};

void add_reductions(std::vector<Case>& cases) {
  for (const ReduceOp op : kDifferentiable) {
    const std::string name(mpi::name_of(op));
    const bool linear = op <= ReduceOp::kMean;
    cases.push_back({"all_reduce_" + name, same({3, 2}), [op](const Tensor& x) { return all_reduce(x, comm(), op); },
                     [op](const Tensors& xs) { return everywhere(reduced(xs, op)); }, linear, !is_order(op)});
    cases.push_back({"reduce_" + name, same({3, 2}),
                     [op](const Tensor& x) { return reduce(x, comm(), op, size() - 1); },
                     [op](const Tensors& xs) { return only_on(size() - 1, reduced(xs, op), at::zeros_like(xs[0])); },
                     linear, !is_order(op)});
    cases.push_back({"reduce_scatter_" + name, same({2, 5}),
                     [op](const Tensor& x) { return reduce_scatter(x, comm(), op, -1); },
                     [op](const Tensors& xs) { return reduced(xs, op).split_with_sizes(even_split(5), 1); }, linear,
                     !is_order(op)});
    for (const bool exclusive : {false, true}) {
      for (const bool reverse : {false, true}) {
        cases.push_back({(exclusive ? "exscan_" : "scan_") + name + (reverse ? "_reverse" : ""), same({2, 2}),
                         [=](const Tensor& x) {
                           const Tensor y = (exclusive ? &exscan : &scan)(x, comm(), op, reverse, {});
                           return is_order(op) ? without_infinities(y) : y;
                         },
                         [=](const Tensors& xs) { return scanned(xs, op, exclusive, reverse); }, linear,
                         !is_order(op)});
      }
    }
  }
}

void add_gathers(std::vector<Case>& cases) {
  const auto along = [](std::int64_t dim) {  // different sizes along one of two dimensions
    return [dim](std::int64_t r) {
      const std::int64_t mine = uneven()[static_cast<std::size_t>(r)];
      return dim == 0 ? Shape{mine, 2} : Shape{2, mine};
    };
  };
  cases.push_back({"all_gather", same({2, 3}), [](const Tensor& x) { return all_gather(x, comm()); },
                   [](const Tensors& xs) { return everywhere(at::cat(xs)); }});
  cases.push_back({"all_gather_uneven_last", along(1), [](const Tensor& x) { return all_gather(x, comm(), -1); },
                   [](const Tensors& xs) { return everywhere(at::cat(xs, 1)); }});
  cases.push_back({"all_gather_of_nothing", same({0, 3}), [](const Tensor& x) { return all_gather(x, comm()); },
                   [](const Tensors& xs) { return everywhere(at::cat(xs)); }});
  cases.push_back({"all_gather_scalars", same({}), [](const Tensor& x) { return all_gather(x, comm()); },
                   [](const Tensors& xs) { return everywhere(at::stack(xs)); }});
  cases.push_back(
      {"gather_to_last", along(0), [](const Tensor& x) { return gather(x, comm(), 0, size() - 1); },
       [](const Tensors& xs) { return only_on(size() - 1, at::cat(xs), at::zeros({0, 2}, xs[0].options())); }});
  cases.push_back({"gather_last_dim", along(1), [](const Tensor& x) { return gather(x, comm(), -1); },
                   [](const Tensors& xs) { return only_on(0, at::cat(xs, 1), at::zeros({2, 0}, xs[0].options())); }});
  cases.push_back({"gather_scalars", same({}), [](const Tensor& x) { return gather(x, comm()); },
                   [](const Tensors& xs) { return only_on(0, at::stack(xs), at::zeros({0}, xs[0].options())); }});
  cases.push_back({"broadcast", same({2, 3}), [](const Tensor& x) { return broadcast(x, comm(), size() - 1); },
                   [](const Tensors& xs) { return everywhere(xs.back()); }});
  cases.push_back({"broadcast_scalar", same({}), [](const Tensor& x) { return broadcast(x, comm()); },
                   [](const Tensors& xs) { return everywhere(xs.front()); }});
}

void add_scatters(std::vector<Case>& cases) {
  cases.push_back({"scatter", same({5, 2}), [](const Tensor& x) { return scatter(x, comm()); },
                   [](const Tensors& xs) { return xs[0].split_with_sizes(even_split(5)); }});
  // Other ranks pass a different shape; only the root's counts.
  cases.push_back({"scatter_uneven_from_last",
                   [](std::int64_t r) { return r == size() - 1 ? Shape{2, total(uneven())} : Shape{3}; },
                   [](const Tensor& x) { return scatter(x, comm(), -1, size() - 1, uneven()); },
                   [](const Tensors& xs) { return xs.back().split_with_sizes(uneven(), 1); }});
  cases.push_back({"reduce_scatter_uneven", [](std::int64_t) { return Shape{total(uneven()), 2}; },
                   [](const Tensor& x) { return reduce_scatter(x, comm(), ReduceOp::kSum, 0, uneven()); },
                   [](const Tensors& xs) { return reduced(xs, ReduceOp::kSum).split_with_sizes(uneven()); }});
  cases.push_back({"reduce_scatter_uneven_prod", [](std::int64_t) { return Shape{2, total(uneven())}; },
                   [](const Tensor& x) { return reduce_scatter(x, comm(), ReduceOp::kProd, 1, uneven()); },
                   [](const Tensors& xs) { return reduced(xs, ReduceOp::kProd).split_with_sizes(uneven(), 1); },
                   /*linear=*/false});
}

void add_exchanges(std::vector<Case>& cases) {
  const auto even = [](std::int64_t total) { return [total](std::int64_t) { return even_split(total); }; };
  // Rank i sends (i + j) % 3 to rank j.
  const auto mixed = [](std::int64_t i) {
    Shape sizes;
    for (std::int64_t j = 0; j < size(); ++j) sizes.push_back((i + j) % 3);
    return sizes;
  };
  cases.push_back({"all_to_all", same({5, 2}), [](const Tensor& x) { return all_to_all(x, comm()); },
                   [=](const Tensors& xs) { return exchanged(xs, 0, 0, even(5)); }});
  cases.push_back({"all_to_all_transposing", same({2, 5}), [](const Tensor& x) { return all_to_all(x, comm(), 1, 0); },
                   [=](const Tensors& xs) { return exchanged(xs, 1, 0, even(5)); }});
  cases.push_back({"all_to_all_negative_dims", [](std::int64_t r) { return Shape{r, 3, 5}; },
                   [](const Tensor& x) { return all_to_all(x, comm(), -1, -3); },
                   [=](const Tensors& xs) { return exchanged(xs, 2, 0, even(5)); }});
  cases.push_back({"all_to_all_uneven", [=](std::int64_t r) { return Shape{2, total(mixed(r))}; },
                   [=](const Tensor& x) { return all_to_all(x, comm(), 1, 1, mixed(rank())); },
                   [=](const Tensors& xs) { return exchanged(xs, 1, 1, mixed); }});
}

// Created at run time, when the number of ranks is known.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> cases;
    add_reductions(cases);
    add_gathers(cases);
    add_scatters(cases);
    add_exchanges(cases);
    return cases;
  }();
  return all;
}

Tensors inputs_of_all(const Case& c, at::ScalarType type) {
  Tensors xs;
  for (std::int64_t r = 0; r < size(); ++r) xs.push_back(leaf(values(c.shape(r), r, type)));
  return xs;
}

// The sum of all ranks' losses. A zero term connects every input, so that its gradient exists.
Tensor total_loss(const Tensors& ys, const Tensors& xs) {
  Tensor sum;
  for (std::size_t r = 0; r < ys.size(); ++r) {
    const Tensor term = cubic_loss(ys[r], static_cast<std::int64_t>(r)) + real_dot(xs[r], xs[r]) * 0;
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

// The same values in non-contiguous memory.
Tensor scattered_in_memory(const Tensor& x) {
  return x.dim() < 2 ? x : x.transpose(0, -1).contiguous().transpose(0, -1);
}

void check_value_and_gradient(const Case& c, at::ScalarType type, double tolerance, bool contiguous = true) {
  const std::string what = c.name + " of " + c10::toString(type);
  const auto me = static_cast<std::size_t>(rank());
  const Tensors xs = inputs_of_all(c, type);
  const Tensors ys = c.reference(xs);
  const auto expected = torch::autograd::grad({total_loss(ys, xs)}, xs);

  const Tensor x = leaf(contiguous ? xs[me] : scattered_in_memory(xs[me].detach()));
  const Tensor y = c.run(x);
  expect_close(y, ys[me], what + ": value", tolerance);
  backward(cubic_loss(y, rank()));
  expect_close(grad_of(x), expected[me], what + ": gradient", tolerance);
  EXPECT_EQ(Tape::current().length(), 0) << what;
}

void check_double_backward(const Case& c) {
  const auto me = static_cast<std::size_t>(rank());
  const Tensors xs = inputs_of_all(c, at::kDouble);
  const Tensors first = torch::autograd::grad({total_loss(c.reference(xs), xs)}, xs, {}, true, /*create_graph=*/true);
  const auto second = torch::autograd::grad({total_loss(first, xs)}, xs);

  const Tensor x = leaf(xs[me]);
  const Tensor gradient = grad(cubic_loss(c.run(x), rank()), {x}, std::nullopt, true, /*create_graph=*/true)[0];
  expect_close(gradient, first[me], c.name + ": gradient");
  backward(cubic_loss(gradient, rank()));
  expect_close(grad_of(x), second[me], c.name + ": second derivative");
}

double sum_over_ranks(double mine) {
  double sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

void check_adjoint_identity(const Case& c, at::ScalarType type) {
  const Tensor x = leaf(values(c.shape(rank()), rank(), type));
  const Tensor y = c.run(x);
  const Tensor v = values(y.sizes(), 50 + rank(), type);
  const Tensor back = grad(y, {x}, v)[0];
  const double forward = sum_over_ranks(real_dot(v, y).item<double>());
  const double backward = sum_over_ranks(real_dot(back, x).item<double>());
  EXPECT_NEAR(forward, backward, 1e-12 * std::max(1.0, std::abs(forward))) << c.name << " of " << c10::toString(type);
}

TEST(Collectives, ValuesAndGradients) {
  for (const Case& c : cases()) check_value_and_gradient(c, at::kDouble, 1e-12);
}

TEST(Collectives, AcceptNonContiguousInputs) {
  for (const Case& c : cases()) check_value_and_gradient(c, at::kDouble, 1e-12, /*contiguous=*/false);
}

TEST(Collectives, ComplexValuesAndGradients) {
  for (const Case& c : cases()) {
    if (!c.complex) continue;
    check_value_and_gradient(c, at::kComplexDouble, 1e-12);
    check_value_and_gradient(c, at::kComplexFloat, 1e-4, /*contiguous=*/false);
  }
}

TEST(Collectives, LowPrecisionValuesAndGradients) {
  for (const Case& c : cases()) {
    check_value_and_gradient(c, at::kFloat, 1e-5);
    check_value_and_gradient(c, at::kHalf, 2e-2);
    check_value_and_gradient(c, at::kBFloat16, 1e-1);
  }
}

TEST(Collectives, SecondDerivatives) {
  for (const Case& c : cases()) check_double_backward(c);
}

TEST(Collectives, AdjointIdentity) {
  for (const Case& c : cases()) {
    if (!c.linear) continue;
    check_adjoint_identity(c, at::kDouble);
    check_adjoint_identity(c, at::kComplexDouble);
  }
}

TEST(Collectives, AcceptLazilyConjugatedInputs) {
  const Tensor x = values({2, 3}, rank(), at::kComplexDouble);
  Tensors all;
  for (std::int64_t r = 0; r < size(); ++r) all.push_back(values({2, 3}, r, at::kComplexDouble).conj().resolve_conj());
  expect_close(all_gather(x.conj(), comm()), at::cat(all));
  expect_close(all_reduce(x.conj(), comm()), reduced(all, ReduceOp::kSum));
  expect_close(broadcast(x.conj(), comm()), all[0]);
}

TEST(Collectives, ExscanReturnsTheNeutralElementOnTheFirstRank) {
  const Tensor x = values({2}, rank());
  const double infinity = std::numeric_limits<double>::infinity();
  const std::pair<ReduceOp, double> expected[] = {
      {ReduceOp::kSum, 0}, {ReduceOp::kProd, 1}, {ReduceOp::kMin, infinity}, {ReduceOp::kMax, -infinity}};
  for (const auto& [op, neutral] : expected) {
    const Tensor y = exscan(x, comm(), op);
    const Tensor z = exscan(x, comm(), op, /*reverse=*/true);
    EXPECT_TRUE(rank() != 0 || y.eq(neutral).all().item<bool>()) << mpi::name_of(op);
    EXPECT_TRUE(rank() != size() - 1 || z.eq(neutral).all().item<bool>()) << mpi::name_of(op);
  }
  const Tensor bits = exscan(at::full({2}, 6, at::kByte), comm(), ReduceOp::kBitAnd);
  EXPECT_EQ(bits[0].item<int>(), rank() == 0 ? 255 : 6);
}

// Derivatives of reductions at zeros, ties and NaN.

TEST(Derivatives, ProductsWithZerosHaveCorrectGradients) {
  // Column 0: no zeros, column 1: one rank's value is zero, column 2: all values are zero.
  Tensors xs;
  for (std::int64_t r = 0; r < size(); ++r) {
    xs.push_back(leaf(at::tensor({2.0 + static_cast<double>(r), r == 0 ? 0.0 : 3.0, 0.0})));
  }
  const auto all = reduced(xs, ReduceOp::kProd);
  const auto expected = torch::autograd::grad({all.sum() * size()}, xs);
  for (const auto& run : {std::function([](const Tensor& x) { return all_reduce(x, comm(), ReduceOp::kProd); }),
                          std::function([](const Tensor& x) { return reduce(x, comm(), ReduceOp::kProd) * size(); })}) {
    const Tensor x = leaf(xs[static_cast<std::size_t>(rank())]);
    const Tensor y = run(x);
    backward(y.sum());
    expect_close(x.grad(), expected[static_cast<std::size_t>(rank())]);
  }
}

TEST(Derivatives, TiesShareTheGradientEqually) {
  const Tensor x = leaf(at::tensor({1.0, rank() == 0 ? 5.0 : 4.0, rank() == 0 ? 0.0 : 2.0}));
  const auto n = static_cast<double>(size());
  backward(all_reduce(x, comm(), ReduceOp::kMax).sum() / n);
  // Column 0: all ranks tie. Column 1: rank 0 holds the extremum. Column 2: the other ranks tie.
  const double others = size() == 1 ? 0 : 1 / (n - 1);
  const Tensor expected =
      rank() == 0 ? at::tensor({1 / n, 1.0, size() == 1 ? 1.0 : 0.0}) : at::tensor({1 / n, 0.0, others});
  expect_close(x.grad(), expected);
}

TEST(Derivatives, NanGetsTheGradient) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = leaf(at::tensor({rank() == size() - 1 ? nan : 1.0}));
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    x.mutable_grad() = Tensor();
    const Tensor y = all_reduce(x, comm(), op);
    EXPECT_TRUE(y.isnan().item<bool>());
    backward(y.sum());
    EXPECT_DOUBLE_EQ(x.grad().item<double>(), rank() == size() - 1 ? static_cast<double>(size()) : 0);
  }
}

TEST(Derivatives, BackwardWorksIfOnlyRankZeroRequiresGrad) {
  // The inputs of other ranks do not require grad, but those ranks take part in backward.
  const Tensor x = values({3}, rank()).set_requires_grad(rank() == 0);
  const Tensor y = all_reduce(x, comm());
  EXPECT_TRUE(y.requires_grad());
  EXPECT_EQ(Tape::current().length(), 1);
  backward(y.sum());
  if (rank() == 0) expect_close(x.grad(), at::full({3}, static_cast<double>(size()), at::kDouble));
  EXPECT_EQ(x.grad().defined(), rank() == 0);
}

TEST(Derivatives, NothingIsRecordedWithoutRequiresGrad) {
  const Tensor y = all_reduce(values({3}, rank()), comm());
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(Tape::current().length(), 0);
}

// All types. References are computed in int64 or double, which ATen supports for all operations.

constexpr at::ScalarType kIntegers[] = {at::kByte, at::kChar,   at::kShort, at::kUInt16,
                                        at::kInt,  at::kUInt32, at::kLong,  at::kUInt64};

Tensor folded(const Tensors& xs, ReduceOp op) {
  const auto flag = [](const Tensor& x) { return x.ne(0); };
  const bool logical = op >= ReduceOp::kLogicalAnd && op <= ReduceOp::kLogicalXor;
  Tensor y = logical ? flag(xs[0]).to(xs[0].scalar_type()) : xs[0];  // 0 or 1 also for a single contribution
  for (std::size_t i = 1; i < xs.size(); ++i) {
    switch (op) {
      case ReduceOp::kProd:
        y = y * xs[i];
        break;
      case ReduceOp::kMin:
        y = at::minimum(y, xs[i]);
        break;
      case ReduceOp::kMax:
        y = at::maximum(y, xs[i]);
        break;
      case ReduceOp::kLogicalAnd:
        y = flag(y).logical_and(flag(xs[i])).to(y.scalar_type());
        break;
      case ReduceOp::kLogicalOr:
        y = flag(y).logical_or(flag(xs[i])).to(y.scalar_type());
        break;
      case ReduceOp::kLogicalXor:
        y = flag(y).logical_xor(flag(xs[i])).to(y.scalar_type());
        break;
      case ReduceOp::kBitAnd:
        y = y.bitwise_and(xs[i]);
        break;
      case ReduceOp::kBitOr:
        y = y.bitwise_or(xs[i]);
        break;
      case ReduceOp::kBitXor:
        y = y.bitwise_xor(xs[i]);
        break;
      default:
        y = y + xs[i];
    }
  }
  return y;
}

constexpr ReduceOp kAllButMean[] = {
    ReduceOp::kSum,       ReduceOp::kProd,       ReduceOp::kMin,    ReduceOp::kMax,   ReduceOp::kLogicalAnd,
    ReduceOp::kLogicalOr, ReduceOp::kLogicalXor, ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor};

// Integers from 0 to 3, so that results are exact in every type.
Tensors small_numbers(at::ScalarType type) {
  Tensors xs;
  for (std::int64_t r = 0; r < size(); ++r) {
    xs.push_back(at::arange(8).add(r).mul(5 + r).remainder(4).to(at::kLong).to(type).to(at::kLong));
  }
  return xs;
}

TEST(Types, IntegersAndBoolsSupportAllReductions) {
  for (const at::ScalarType type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kUInt16, at::kInt, at::kUInt32, at::kLong, at::kUInt64}) {
    const Tensors xs = small_numbers(type);
    const Tensor mine = xs[static_cast<std::size_t>(rank())].to(type);
    for (const ReduceOp op : kAllButMean) {
      SCOPED_TRACE(std::string(mpi::name_of(op)) + " of " + c10::toString(type));
      const Tensor expected = folded(xs, op).to(type).to(at::kLong);
      const Tensor y = all_reduce(mine, comm(), op);
      EXPECT_EQ(y.scalar_type(), type);
      expect_close(y.to(at::kLong), expected, "all_reduce");
      expect_close(scan(mine, comm(), op, /*reverse=*/rank() < 0).to(at::kLong),
                   folded({xs.begin(), xs.begin() + rank() + 1}, op).to(type).to(at::kLong), "scan");
      expect_close(reduce_scatter(mine, comm(), op).to(at::kLong),
                   expected.split_with_sizes(even_split(8))[static_cast<std::size_t>(rank())], "reduce_scatter");
      const Tensor rooted = reduce(mine, comm(), op).to(at::kLong);
      expect_close(rooted, rank() == 0 ? expected : at::zeros_like(expected), "reduce");
    }
  }
}

TEST(Types, FloatsSupportAllReductions) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const Tensors xs = small_numbers(type);
    const Tensor mine = xs[static_cast<std::size_t>(rank())].to(type);
    for (const ReduceOp op : kAllButMean) {
      if (op >= ReduceOp::kBitAnd) continue;
      SCOPED_TRACE(std::string(mpi::name_of(op)) + " of " + c10::toString(type));
      expect_close(all_reduce(mine, comm(), op), folded(xs, op).to(type));
    }
  }
}

TEST(Types, AllMovingOperationsSupportAllTypes) {
  std::vector<at::ScalarType> types(std::begin(kIntegers), std::end(kIntegers));
  types.insert(types.end(),
               {at::kBool, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble});
  for (const at::ScalarType type : types) {
    SCOPED_TRACE(c10::toString(type));
    const Tensors xs = small_numbers(type);
    const auto me = static_cast<std::size_t>(rank());
    const Tensor mine = xs[me].to(type);
    const auto expect = [&](const Tensor& y, const Tensor& expected, const char* what) {
      EXPECT_EQ(y.scalar_type(), type) << what;
      expect_close((y.is_complex() ? at::real(y) : y).to(at::kLong), expected, what);
    };
    expect(all_gather(mine, comm()), at::cat(xs), "all_gather");
    expect(broadcast(mine, comm()), xs[0], "broadcast");
    expect(scatter(mine, comm()), xs[0].split_with_sizes(even_split(8))[me], "scatter");
    expect(all_to_all(mine, comm()), exchanged(xs, 0, 0, [](std::int64_t) { return even_split(8); })[me], "all_to_all");
    const Tensor gathered = gather(mine, comm());
    if (rank() == 0) expect(gathered, at::cat(xs), "gather");
  }
}

TEST(Types, ScatterUsesTheTypeAndShapeOfTheRoot) {
  const Tensor x = rank() == 0 ? at::arange(2 * size()).to(at::kShort) : at::zeros({0}, at::kFloat);
  const Tensor y = scatter(x, comm());
  EXPECT_EQ(y.scalar_type(), at::kShort);
  expect_close(y, at::arange(2 * size()).to(at::kShort).narrow(0, 2 * rank(), 2));
}

TEST(OtherCommunicators, SplitsAndDuplicatesAreIndependent) {
  // Odd and even ranks reduce separately, interleaved with operations of the world communicator.
  const CommunicatorPtr half = Communicator::adopt(comm()->origin().split(comm()->rank() % 2, comm()->rank()));
  const Tensor x = leaf(values({3}, rank()));
  const Tensor mine = all_reduce(x, half);
  const Tensor all = all_reduce(mine, comm());
  backward((all * all).sum());

  Tensors xs;
  for (std::int64_t r = 0; r < size(); ++r) xs.push_back(leaf(values({3}, r)));
  Tensor sum;
  for (std::int64_t r = 0; r < size(); ++r) {
    for (std::int64_t peer = r % 2; peer < size(); peer += 2) {
      sum = sum.defined() ? sum + xs[static_cast<std::size_t>(peer)] : xs[static_cast<std::size_t>(peer)];
    }
  }
  expect_close(all, sum);
  const auto expected = torch::autograd::grad({(sum * sum).sum() * size()}, xs);
  expect_close(x.grad(), expected[static_cast<std::size_t>(rank())]);
}

TEST(Chain, ManyOperationsInOneProgram) {
  // x -> all_gather -> reduce_scatter -> broadcast -> scan -> all_to_all, interleaved with arithmetic.
  const auto program = [](const Tensors& xs) {
    const Tensor gathered = at::cat(xs).sin();
    Tensors ys = (gathered * size()).split_with_sizes(Shape(static_cast<std::size_t>(size()), size()));
    const Tensor first = ys[0];
    for (auto& y : ys) y = y * first;
    ys = scanned(ys, ReduceOp::kSum, false, false);
    return exchanged(ys, 0, 0, [](std::int64_t) { return even_split(size()); });
  };
  Tensors xs;
  for (std::int64_t r = 0; r < size(); ++r) xs.push_back(leaf(values({size(), 2}, r)));
  const Tensors ys = program(xs);
  const auto expected = torch::autograd::grad({total_loss(ys, xs)}, xs);

  const auto me = static_cast<std::size_t>(rank());
  const Tensor x = leaf(xs[me]);
  Tensor y = reduce_scatter(all_gather(x, comm()).sin(), comm());
  y = y * broadcast(y, comm());
  y = all_to_all(scan(y, comm()), comm());
  expect_close(y, ys[me]);
  backward(cubic_loss(y, rank()));
  expect_close(x.grad(), expected[me], "", 1e-11);
}

}  // namespace
}  // namespace weft::collective
