// Compares the table of element types with the sizes in C++ and MPI.
#include "weft/mpi/datatype.h"

#include <gtest/gtest.h>

#include <complex>
#include <set>
#include <string>

namespace weft::mpi {
namespace {

struct Expected {
  Datatype type;
  std::size_t size;
  const char* name;
  bool floating, complex;
};

const Expected kExpected[] = {
    {Datatype::kBool, sizeof(bool), "bool", false, false},
    {Datatype::kUInt8, sizeof(std::uint8_t), "uint8", false, false},
    {Datatype::kInt8, sizeof(std::int8_t), "int8", false, false},
    {Datatype::kInt16, sizeof(std::int16_t), "int16", false, false},
    {Datatype::kUInt16, sizeof(std::uint16_t), "uint16", false, false},
    {Datatype::kInt32, sizeof(std::int32_t), "int32", false, false},
    {Datatype::kUInt32, sizeof(std::uint32_t), "uint32", false, false},
    {Datatype::kInt64, sizeof(std::int64_t), "int64", false, false},
    {Datatype::kUInt64, sizeof(std::uint64_t), "uint64", false, false},
    {Datatype::kFloat16, 2, "float16", true, false},
    {Datatype::kBFloat16, 2, "bfloat16", true, false},
    {Datatype::kFloat32, sizeof(float), "float32", true, false},
    {Datatype::kFloat64, sizeof(double), "float64", true, false},
    {Datatype::kComplex64, sizeof(std::complex<float>), "complex64", false, true},
    {Datatype::kComplex128, sizeof(std::complex<double>), "complex128", false, true},
};

TEST(Datatype, HasSizeAndName) {
  std::set<Datatype> seen;
  for (const auto& expected : kExpected) {
    EXPECT_EQ(size_of(expected.type), static_cast<std::int64_t>(expected.size)) << expected.name;
    EXPECT_EQ(name_of(expected.type), expected.name);
    EXPECT_EQ(is_floating(expected.type), expected.floating) << expected.name;
    EXPECT_EQ(is_complex(expected.type), expected.complex) << expected.name;
    seen.insert(expected.type);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kDatatypeCount));
}

TEST(Datatype, SizeMatchesMpi) {
  for (const auto& expected : kExpected) {
    int size = 0;
    MPI_Type_size(handle_of(expected.type), &size);
    EXPECT_EQ(size, static_cast<int>(expected.size)) << expected.name;
  }
}

}  // namespace
}  // namespace weft::mpi
