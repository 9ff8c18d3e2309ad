#include "weft/mpi/datatype.h"

#include <array>

namespace weft::mpi {
namespace {

struct Entry {
  std::int64_t size;
  std::string_view name;
};

constexpr std::array<Entry, kDatatypeCount> kEntries{{
    {1, "bool"},
    {1, "uint8"},
    {1, "int8"},
    {2, "int16"},
    {2, "uint16"},
    {4, "int32"},
    {4, "uint32"},
    {8, "int64"},
    {8, "uint64"},
    {2, "float16"},
    {2, "bfloat16"},
    {4, "float32"},
    {8, "float64"},
    {8, "complex64"},
    {16, "complex128"},
}};

const Entry& entry(Datatype type) noexcept { return kEntries[static_cast<std::size_t>(type)]; }

}  // namespace

std::int64_t size_of(Datatype type) noexcept { return entry(type).size; }

std::string_view name_of(Datatype type) noexcept { return entry(type).name; }

MPI_Datatype handle_of(Datatype type) noexcept {
  switch (type) {
    case Datatype::kBool:
    case Datatype::kUInt8:
      return MPI_UINT8_T;
    case Datatype::kInt8:
      return MPI_INT8_T;
    case Datatype::kInt16:
      return MPI_INT16_T;
    case Datatype::kFloat16:
    case Datatype::kBFloat16:
    case Datatype::kUInt16:
      return MPI_UINT16_T;
    case Datatype::kInt32:
      return MPI_INT32_T;
    case Datatype::kUInt32:
      return MPI_UINT32_T;
    case Datatype::kInt64:
      return MPI_INT64_T;
    case Datatype::kUInt64:
      return MPI_UINT64_T;
    case Datatype::kFloat32:
      return MPI_FLOAT;
    case Datatype::kFloat64:
      return MPI_DOUBLE;
    case Datatype::kComplex64:
      return MPI_C_FLOAT_COMPLEX;
    case Datatype::kComplex128:
      return MPI_C_DOUBLE_COMPLEX;
  }
  return MPI_DATATYPE_NULL;
}

}  // namespace weft::mpi
