// Element types that travel: every torch dtype the upper folders use, with its size and MPI handle.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string_view>

namespace weft::mpi {

enum class Datatype : std::int8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};
inline constexpr int kDatatypeCount = 15;

[[nodiscard]] std::int64_t size_of(Datatype type) noexcept;
[[nodiscard]] std::string_view name_of(Datatype type) noexcept;
// Half, bfloat16 and bool travel as integers of their size; reductions on them bring their own MPI_Op.
[[nodiscard]] MPI_Datatype handle_of(Datatype type) noexcept;

[[nodiscard]] constexpr bool is_floating(Datatype type) noexcept {
  return type >= Datatype::kFloat16 && type <= Datatype::kFloat64;
}
[[nodiscard]] constexpr bool is_complex(Datatype type) noexcept { return type >= Datatype::kComplex64; }

}  // namespace weft::mpi
