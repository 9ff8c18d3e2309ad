// Compares every reduction on every element type with a loop over the input of each rank.
#include "weft/mpi/reduce_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <stdexcept>
#include <vector>

#include "weft/mpi/comm.h"
#include "weft/numeric/half.h"

namespace weft::mpi {

using numeric::BFloat16;
using numeric::Float16;

namespace {

constexpr int kLength = 24;
const ReduceOp kOps[] = {ReduceOp::kSum,    ReduceOp::kMean,       ReduceOp::kProd,      ReduceOp::kMin,
                         ReduceOp::kMax,    ReduceOp::kLogicalAnd, ReduceOp::kLogicalOr, ReduceOp::kLogicalXor,
                         ReduceOp::kBitAnd, ReduceOp::kBitOr,      ReduceOp::kBitXor};

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <class T>
constexpr bool kIsComplex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// The type in which the expected value is computed.
template <class T>
using Wide = std::conditional_t<kIsComplex<T>, std::complex<double>,
                                std::conditional_t<std::is_integral_v<T>, std::int64_t, double>>;

template <class T>
Wide<T> widen(T value) {
  if constexpr (kIsHalf<T>)
    return value.to_float();
  else
    return static_cast<Wide<T>>(value);
}
template <class T>
T narrow(Wide<T> value) {
  if constexpr (kIsHalf<T>)
    return T::from_float(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

// Small integers: no reduction of them rounds or overflows, in any type and order.
template <class T>
T input(int rank, int i) {
  const int number = (3 * i + 5 * rank + i * rank) % 4;
  if constexpr (std::is_same_v<T, bool>)
    return number == 0 || (i < 4 && number < 3);
  else if constexpr (kIsComplex<T>)
    return T(static_cast<float>(number - 1), static_cast<float>((i + rank) % 3 - 1));
  else if constexpr (std::is_unsigned_v<T>)
    return static_cast<T>(number);
  else
    return narrow<T>(static_cast<Wide<T>>(number - 1));
}

template <class W>
W fold(ReduceOp op, W a, W b) {
  if (op == ReduceOp::kSum || op == ReduceOp::kMean) return a + b;
  if (op == ReduceOp::kProd) return a * b;
  if (op == ReduceOp::kLogicalAnd) return a != W(0) && b != W(0) ? W(1) : W(0);
  if (op == ReduceOp::kLogicalOr) return a != W(0) || b != W(0) ? W(1) : W(0);
  if (op == ReduceOp::kLogicalXor) return (a != W(0)) != (b != W(0)) ? W(1) : W(0);
  if constexpr (!std::is_same_v<W, std::complex<double>>) {
    if (op == ReduceOp::kMin) return b < a ? b : a;
    if (op == ReduceOp::kMax) return b > a ? b : a;
  }
  if constexpr (std::is_integral_v<W>) {
    if (op == ReduceOp::kBitAnd) return a & b;
    if (op == ReduceOp::kBitOr) return a | b;
    if (op == ReduceOp::kBitXor) return a ^ b;
  }
  throw std::logic_error("the test has no such reduction");
}

template <class T>
void expect_reduces(ReduceOp op, Datatype type) {
  const auto world = CommView::world();
  std::unique_ptr<T[]> in(new T[kLength]);  // not std::vector, which packs bool
  std::unique_ptr<T[]> out(new T[kLength]);
  for (int i = 0; i < kLength; ++i) in[i] = input<T>(world.rank(), i);
  ASSERT_EQ(MPI_Allreduce(in.get(), out.get(), kLength, handle_of(type), handle_of(op, type), world.handle()),
            MPI_SUCCESS);
  for (int i = 0; i < kLength; ++i) {
    Wide<T> expected = widen(input<T>(0, i));
    // On one rank there is nothing to combine, so even logical operations keep the number.
    for (int rank = 1; rank < world.size(); ++rank) expected = fold(op, expected, widen(input<T>(rank, i)));
    EXPECT_EQ(widen(out[i]), widen(narrow<T>(expected))) << name_of(op) << " " << name_of(type) << " at " << i;
  }
}

// The combinations that the documentation lists as defined.
bool should_work(ReduceOp op, Datatype type) {
  const bool is_float = type >= Datatype::kFloat16 && type <= Datatype::kFloat64;
  const bool is_complex_number = type == Datatype::kComplex64 || type == Datatype::kComplex128;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
      return true;
    case ReduceOp::kMean:
      return is_float || is_complex_number;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return !is_float && !is_complex_number;
    default:
      return !is_complex_number;
  }
}

template <class T>
void expect_all_ops(Datatype type) {
  for (const ReduceOp op : kOps) {
    EXPECT_EQ(supports(op, type), should_work(op, type)) << name_of(op) << " " << name_of(type);
    if (should_work(op, type)) {
      expect_reduces<T>(op, type);
      continue;
    }
    try {
      static_cast<void>(handle_of(op, type));
      ADD_FAILURE() << name_of(op) << " of " << name_of(type) << " should be rejected";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("'" + std::string(name_of(op)) + "'"));
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string(name_of(type))));
    }
  }
}

TEST(ReduceOp, BoolMatchesTheReference) { expect_all_ops<bool>(Datatype::kBool); }
TEST(ReduceOp, UInt8MatchesTheReference) { expect_all_ops<std::uint8_t>(Datatype::kUInt8); }
TEST(ReduceOp, Int8MatchesTheReference) { expect_all_ops<std::int8_t>(Datatype::kInt8); }
TEST(ReduceOp, Int16MatchesTheReference) { expect_all_ops<std::int16_t>(Datatype::kInt16); }
TEST(ReduceOp, UInt16MatchesTheReference) { expect_all_ops<std::uint16_t>(Datatype::kUInt16); }
TEST(ReduceOp, Int32MatchesTheReference) { expect_all_ops<std::int32_t>(Datatype::kInt32); }
TEST(ReduceOp, UInt32MatchesTheReference) { expect_all_ops<std::uint32_t>(Datatype::kUInt32); }
TEST(ReduceOp, Int64MatchesTheReference) { expect_all_ops<std::int64_t>(Datatype::kInt64); }
TEST(ReduceOp, UInt64MatchesTheReference) { expect_all_ops<std::uint64_t>(Datatype::kUInt64); }
TEST(ReduceOp, HalfMatchesTheReference) { expect_all_ops<Float16>(Datatype::kFloat16); }
TEST(ReduceOp, BrainFloatMatchesTheReference) { expect_all_ops<BFloat16>(Datatype::kBFloat16); }
TEST(ReduceOp, FloatMatchesTheReference) { expect_all_ops<float>(Datatype::kFloat32); }
TEST(ReduceOp, DoubleMatchesTheReference) { expect_all_ops<double>(Datatype::kFloat64); }
TEST(ReduceOp, ComplexFloatMatchesTheReference) { expect_all_ops<std::complex<float>>(Datatype::kComplex64); }
TEST(ReduceOp, ComplexDoubleMatchesTheReference) { expect_all_ops<std::complex<double>>(Datatype::kComplex128); }

TEST(ReduceOp, NamesRoundTrip) {
  const char* names[] = {"sum", "mean", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor"};
  for (int i = 0; i < kReduceOpCount; ++i) {
    EXPECT_EQ(name_of(kOps[i]), names[i]);
    EXPECT_EQ(reduce_op_from(names[i]), kOps[i]);
  }
  EXPECT_EQ(reduce_op_from("average"), std::nullopt);
  EXPECT_EQ(reduce_op_from(""), std::nullopt);
}

// Element r is NaN on rank r and a number on the others. The last element is a number on all ranks.
template <class T>
void expect_nan_wins(Datatype type) {
  const auto world = CommView::world();
  const int size = world.size();
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
    std::vector<T> data(static_cast<std::size_t>(size) + 1, narrow<T>(world.rank() + 1));
    data[static_cast<std::size_t>(world.rank())] = narrow<T>(std::nan(""));
    MPI_Allreduce(MPI_IN_PLACE, data.data(), size + 1, handle_of(type), handle_of(op, type), world.handle());
    for (int i = 0; i <= size; ++i) {
      EXPECT_EQ(std::isnan(widen(data[static_cast<std::size_t>(i)])), i < size) << name_of(op) << " " << name_of(type);
    }
  }
}

TEST(ReduceOp, NaNOfAnyRankIsTheResult) {
  expect_nan_wins<Float16>(Datatype::kFloat16);
  expect_nan_wins<BFloat16>(Datatype::kBFloat16);
  expect_nan_wins<float>(Datatype::kFloat32);
  expect_nan_wins<double>(Datatype::kFloat64);
}

// The error of a sum of n numbers, rounded after every addition, is at most n half-steps of the partial sums.
template <class T>
void expect_sum_within(Datatype type, double unit_roundoff) {
  const auto world = CommView::world();
  const auto value = [](int rank, int i) { return narrow<T>(1 + 0.37 * rank + (rank % 2 == 0 ? 0.013 : -0.013) * i); };
  std::vector<T> data(kLength);
  for (int i = 0; i < kLength; ++i) data[static_cast<std::size_t>(i)] = value(world.rank(), i);
  MPI_Allreduce(MPI_IN_PLACE, data.data(), kLength, handle_of(type), handle_of(ReduceOp::kSum, type), world.handle());
  for (int i = 0; i < kLength; ++i) {
    double exact = 0;
    for (int rank = 0; rank < world.size(); ++rank) exact += widen(value(rank, i));
    EXPECT_NEAR(widen(data[static_cast<std::size_t>(i)]), exact, world.size() * unit_roundoff * exact);
  }
}

template <class T>
void expect_ties_to_even(Datatype type, float even) {
  const auto world = CommView::world();
  // Rank 0 has a number above which the format counts in steps of 2, and rank 1 adds half a step; then vice versa.
  T data[2] = {T::from_float(world.rank() == 0 ? even : 1), T::from_float(world.rank() == 0 ? 1 : even + 2)};
  MPI_Allreduce(MPI_IN_PLACE, data, 2, handle_of(type), handle_of(ReduceOp::kSum, type), world.handle());
  EXPECT_EQ(data[0].to_float(), even);
  EXPECT_EQ(data[1].to_float(), even + 4);
}

TEST(ReduceOp, HalvesAreAddedInFloatAndRoundedToEven) {
  expect_sum_within<Float16>(Datatype::kFloat16, 0x1p-11);
  expect_sum_within<BFloat16>(Datatype::kBFloat16, 0x1p-8);
  if (CommView::world().size() != 2) return;
  expect_ties_to_even<Float16>(Datatype::kFloat16, 2048);
  expect_ties_to_even<BFloat16>(Datatype::kBFloat16, 256);
}

}  // namespace
}  // namespace weft::mpi
