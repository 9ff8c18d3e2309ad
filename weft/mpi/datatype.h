// Element types of messages: one per torch dtype that weft communicates, with its size and MPI handle.
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
// Half, bfloat16 and bool are sent as integers of the same size; reductions on them use a custom MPI_Op.
[[nodiscard]] MPI_Datatype handle_of(Datatype type) noexcept;

[[nodiscard]] constexpr bool is_floating(Datatype type) noexcept {
  return type >= Datatype::kFloat16 && type <= Datatype::kFloat64;
}
[[nodiscard]] constexpr bool is_complex(Datatype type) noexcept { return type >= Datatype::kComplex64; }

}  // namespace weft::mpi
