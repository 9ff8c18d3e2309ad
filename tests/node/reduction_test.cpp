// Compares reduce_in_order() with MPI's own operations for every type and reduction.
#include "weft/node/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <random>
#include <vector>

#include "weft/mpi/error.h"
#include "weft/numeric/half.h"

namespace weft::node {
namespace {

using Bytes = std::vector<std::byte>;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T, class Make>
Bytes fill(std::int64_t count, Make&& make) {
  Bytes bytes(index(count) * sizeof(T));
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = make();
    std::memcpy(bytes.data() + index(i) * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// Random values. Sums of five float16, int8 or int16 do not overflow: Open MPI saturates such sums of integers, whereas
// weft wraps around, like torch.
Bytes random_values(Datatype type, ReduceOp op, std::int64_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> real(-4, 4);
  std::uniform_int_distribution<int> integer(0, mpi::size_of(type) <= 2 && op == ReduceOp::kSum ? 25 : 255);
  switch (type) {
    case Datatype::kBool:
      return fill<std::uint8_t>(count, [&] { return static_cast<std::uint8_t>(integer(random) & 1); });
    case Datatype::kFloat16:
      return fill<numeric::Float16>(count, [&] { return numeric::Float16::from_float(real(random)); });
    case Datatype::kBFloat16:
      return fill<numeric::BFloat16>(count, [&] { return numeric::BFloat16::from_float(real(random)); });
    case Datatype::kFloat32:
    case Datatype::kComplex64:
      return fill<float>(type == Datatype::kFloat32 ? count : 2 * count, [&] { return real(random); });
    case Datatype::kFloat64:
    case Datatype::kComplex128:
      return fill<double>(type == Datatype::kFloat64 ? count : 2 * count, [&] { return double{real(random)}; });
    default:
      return fill<std::uint8_t>(count * mpi::size_of(type), [&] { return static_cast<std::uint8_t>(integer(random)); });
  }
}

Bytes widened(const Bytes& narrow, Datatype type, std::int64_t count) {
  Bytes wide(index(count) * sizeof(float));
  mpi::widen(narrow.data(), type, count, reinterpret_cast<float*>(wide.data()));
  return wide;
}

// The reduction in rank order with MPI_Reduce_local, which computes inout = in op inout.
Bytes expected(std::vector<Bytes> values, std::int64_t count, Datatype type, ReduceOp op) {
  const bool wide = mpi::accumulates_in_float32(op, type);
  const Datatype arithmetic = wide ? Datatype::kFloat32 : type;
  if (wide) {
    for (Bytes& bytes : values) bytes = widened(bytes, type, count);
  }
  Bytes sum = values[0];
  for (std::size_t k = 1; k < values.size(); ++k) {
    Bytes next = values[k];
    mpi::check(MPI_Reduce_local(sum.data(), next.data(), static_cast<int>(count), mpi::handle_of(arithmetic),
                                mpi::handle_of(op, arithmetic)),
               "MPI_Reduce_local");
    sum = std::move(next);
  }
  if (!wide) return sum;
  Bytes narrow(index(count) * index(mpi::size_of(type)));
  mpi::narrow(reinterpret_cast<const float*>(sum.data()), count, type, narrow.data());
  return narrow;
}

TEST(Reduction, EqualsMpiForEveryTypeAndOperation) {
  std::mt19937 random(7);
  for (int t = 0; t < mpi::kDatatypeCount; ++t) {
    for (int o = 0; o < mpi::kReduceOpCount; ++o) {
      const auto type = static_cast<Datatype>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!mpi::supports(op, type)) continue;
      // MPI libraries may fuse or reorder the four products of a complex multiplication.
      if (op == ReduceOp::kProd && mpi::is_complex(type)) continue;
      for (const std::size_t ranks : {2, 3, 5}) {
        for (const std::int64_t count : {0, 1, 7, 4099}) {
          std::vector<Bytes> values;
          std::vector<const void*> sources;
          for (std::size_t rank = 0; rank < ranks; ++rank) values.push_back(random_values(type, op, count, random));
          for (const Bytes& bytes : values) sources.push_back(bytes.data());
          const Bytes wanted = expected(values, count, type, op);
          Bytes out(wanted.size());
          reduce_in_order(sources, out.data(), count, type, op);
          EXPECT_EQ(out, wanted) << mpi::name_of(op) << " of " << count << " " << mpi::name_of(type);
          for (Bytes& in_place : values) {  // `out` may be any of the sources
            const Bytes before = in_place;
            reduce_in_order(sources, in_place.data(), count, type, op);
            EXPECT_EQ(in_place, wanted) << mpi::name_of(op) << " in place";
            in_place = before;
          }
        }
      }
    }
  }
}

TEST(Reduction, IntegersWrapAround) {
  const std::vector<std::int8_t> a(40, 100), b(40, 100);
  std::vector<std::int8_t> out(40);
  const std::vector<const void*> sources{a.data(), b.data()};
  reduce_in_order(sources, out.data(), 40, Datatype::kInt8, ReduceOp::kSum);
  EXPECT_EQ(out, std::vector<std::int8_t>(40, -56));
}

TEST(Reduction, MultipliesComplexNumbers) {
  const std::vector<std::complex<double>> a{{1, 2}, {0, -3}}, b{{3, -1}, {2, 2}}, c{{0, 1}, {1, 0}};
  std::vector<std::complex<double>> out(2);
  const std::vector<const void*> sources{a.data(), b.data(), c.data()};
  reduce_in_order(sources, out.data(), 2, Datatype::kComplex128, ReduceOp::kProd);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(out[i], a[i] * b[i] * c[i]);
}

TEST(Reduction, MinimumAndMaximumKeepNaN) {
  const std::vector<float> a{NAN, 1, 2}, b{1, NAN, 3};
  std::vector<float> out(3);
  const std::vector<const void*> sources{a.data(), b.data()};
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    reduce_in_order(sources, out.data(), 3, Datatype::kFloat32, op);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
    EXPECT_EQ(out[2], op == ReduceOp::kMin ? 2 : 3);
  }
}

// 256 + 1 is 256 in bfloat16, so rounding after each addition would lose the small values.
TEST(Reduction, RoundsHalfPrecisionOnce) {
  const auto bits = [](float value) { return numeric::BFloat16::from_float(value).bits; };
  const std::vector<std::uint16_t> large(100, bits(256)), one(100, bits(1));
  std::vector<std::uint16_t> out(100);
  const std::vector<const void*> sources{large.data(), one.data(), one.data()};
  reduce_in_order(sources, out.data(), 100, Datatype::kBFloat16, ReduceOp::kSum);
  EXPECT_EQ(out, std::vector<std::uint16_t>(100, bits(258)));
}

}  // namespace
}  // namespace weft::node
