#include "weft/node/reduction.h"

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstring>

#include "weft/mpi/chunks.h"
#include "weft/mpi/combine.h"
#include "weft/numeric/half.h"
#include "weft/numeric/processor.h"

namespace weft::node {
namespace {

using Loop = void (*)(const void* a, const void* b, void* out, std::int64_t count);

template <ReduceOp op, class T>
[[gnu::always_inline]] inline void combine_loop(const void* a, const void* b, void* out, std::int64_t count) {
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(out);
  // `out` overlaps a source only if they are equal, so the iterations are independent.
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    z[i] = mpi::store<T>(mpi::combine<op>(mpi::load(x[i]), mpi::load(y[i])));
  }
}

// Each loop is compiled twice: for any x86-64 and for AVX2.
template <ReduceOp op, class T>
void combine_plain(const void* a, const void* b, void* out, std::int64_t count) {
  combine_loop<op, T>(a, b, out, count);
}
template <ReduceOp op, class T>
WEFT_AVX2 void combine_avx2(const void* a, const void* b, void* out, std::int64_t count) {
  combine_loop<op, T>(a, b, out, count);
}

template <ReduceOp op, class T>
Loop loop_of() {
  return numeric::has_avx2() ? &combine_avx2<op, T> : &combine_plain<op, T>;
}

template <class T>
Loop arithmetic_loop(ReduceOp op) {
  return op == ReduceOp::kProd ? loop_of<ReduceOp::kProd, T>() : loop_of<ReduceOp::kSum, T>();
}

template <class T>
Loop ordered_loop(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return loop_of<ReduceOp::kMin, T>();
    case ReduceOp::kMax:
      return loop_of<ReduceOp::kMax, T>();
    case ReduceOp::kLogicalAnd:
      return loop_of<ReduceOp::kLogicalAnd, T>();
    case ReduceOp::kLogicalOr:
      return loop_of<ReduceOp::kLogicalOr, T>();
    case ReduceOp::kLogicalXor:
      return loop_of<ReduceOp::kLogicalXor, T>();
    default:
      return arithmetic_loop<T>(op);
  }
}

template <class T>
Loop integer_loop(ReduceOp op) {
  switch (op) {
    case ReduceOp::kBitAnd:
      return loop_of<ReduceOp::kBitAnd, T>();
    case ReduceOp::kBitOr:
      return loop_of<ReduceOp::kBitOr, T>();
    case ReduceOp::kBitXor:
      return loop_of<ReduceOp::kBitXor, T>();
    default:
      return ordered_loop<T>(op);
  }
}

Loop loop_for(Datatype type, ReduceOp op) {
  switch (type) {
    case Datatype::kBool:
      return integer_loop<std::uint8_t>(mpi::on_bool(op));
    case Datatype::kUInt8:
      return integer_loop<std::uint8_t>(op);
    case Datatype::kInt8:
      return integer_loop<std::int8_t>(op);
    case Datatype::kInt16:
      return integer_loop<std::int16_t>(op);
    case Datatype::kUInt16:
      return integer_loop<std::uint16_t>(op);
    case Datatype::kInt32:
      return integer_loop<std::int32_t>(op);
    case Datatype::kUInt32:
      return integer_loop<std::uint32_t>(op);
    case Datatype::kInt64:
      return integer_loop<std::int64_t>(op);
    case Datatype::kUInt64:
      return integer_loop<std::uint64_t>(op);
    case Datatype::kFloat16:
      return ordered_loop<numeric::Float16>(op);
    case Datatype::kBFloat16:
      return ordered_loop<numeric::BFloat16>(op);
    case Datatype::kFloat32:
      return ordered_loop<float>(op);
    case Datatype::kFloat64:
      return ordered_loop<double>(op);
    case Datatype::kComplex64:
      return arithmetic_loop<std::complex<float>>(op);
    case Datatype::kComplex128:
      return arithmetic_loop<std::complex<double>>(op);
  }
  return nullptr;
}

// Intermediate results stay in the first-level cache, and `out` may be any of the sources.
constexpr std::int64_t kTileBytes = 4096;
struct alignas(64) Tile {
  std::array<std::byte, kTileBytes> bytes;
};

void reduce_tiles(std::span<const void* const> sources, void* out, std::int64_t count, std::int64_t size, Loop loop) {
  Tile tile;
  const std::int64_t per_tile = kTileBytes / size;
  for (std::int64_t first = 0; first < count; first += per_tile) {
    const std::int64_t n = std::min(per_tile, count - first);
    const void* sum = mpi::at(sources[0], first, size);
    for (std::size_t k = 1; k + 1 < sources.size(); ++k) {
      loop(sum, mpi::at(sources[k], first, size), tile.bytes.data(), n);
      sum = tile.bytes.data();
    }
    loop(sum, mpi::at(sources.back(), first, size), mpi::at(out, first, size), n);
  }
}

void reduce_in_float32(std::span<const void* const> sources, void* out, std::int64_t count, Datatype type, Loop loop) {
  constexpr std::int64_t kPerTile = kTileBytes / sizeof(float);
  alignas(64) std::array<float, kPerTile> sum;
  alignas(64) std::array<float, kPerTile> next;
  const std::int64_t size = mpi::size_of(type);
  for (std::int64_t first = 0; first < count; first += kPerTile) {
    const std::int64_t n = std::min(kPerTile, count - first);
    mpi::widen(mpi::at(sources[0], first, size), type, n, sum.data());
    for (const void* source : sources.subspan(1)) {
      mpi::widen(mpi::at(source, first, size), type, n, next.data());
      loop(sum.data(), next.data(), sum.data(), n);
    }
    mpi::narrow(sum.data(), n, type, mpi::at(out, first, size));
  }
}

}  // namespace

void reduce_in_order(std::span<const void* const> sources, void* out, std::int64_t count, Datatype type,
                     ReduceOp op) noexcept {
  const std::int64_t size = mpi::size_of(type);
  if (count == 0) return;
  if (sources.size() == 1) {
    if (out != sources[0]) std::memmove(out, sources[0], static_cast<std::size_t>(count * size));
  } else if (mpi::accumulates_in_float32(op, type)) {
    reduce_in_float32(sources, out, count, type, loop_for(Datatype::kFloat32, op));
  } else if (sources.size() == 2) {
    loop_for(type, op)(sources[0], sources[1], out, count);
  } else {
    reduce_tiles(sources, out, count, size, loop_for(type, op));
  }
}

}  // namespace weft::node
