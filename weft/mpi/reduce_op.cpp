#include "weft/mpi/reduce_op.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "weft/mpi/combine.h"
#include "weft/mpi/error.h"
#include "weft/numeric/half.h"
#include "weft/numeric/processor.h"

namespace weft::mpi {

using numeric::BFloat16;
using numeric::Float16;

namespace {

constexpr std::array<std::string_view, kReduceOpCount> kNames{"sum", "mean", "prod", "min", "max", "land",
                                                              "lor", "lxor", "band", "bor", "bxor"};

template <ReduceOp op, class T>
void apply(void* in, void* inout, int* length, MPI_Datatype* /*type*/) {
  const auto* a = static_cast<const T*>(in);
  auto* b = static_cast<T*>(inout);
  for (int i = 0; i < *length; ++i) b[i] = store<T>(combine<op>(load(a[i]), load(b[i])));
}

template <class T>
MPI_User_function* function_for(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return &apply<ReduceOp::kSum, T>;
    case ReduceOp::kProd:
      return &apply<ReduceOp::kProd, T>;
    case ReduceOp::kMin:
      return &apply<ReduceOp::kMin, T>;
    case ReduceOp::kMax:
      return &apply<ReduceOp::kMax, T>;
    case ReduceOp::kLogicalAnd:
      return &apply<ReduceOp::kLogicalAnd, T>;
    case ReduceOp::kLogicalOr:
      return &apply<ReduceOp::kLogicalOr, T>;
    default:
      return &apply<ReduceOp::kLogicalXor, T>;
  }
}

MPI_User_function* user_function(ReduceOp op, Datatype type) {
  switch (type) {
    case Datatype::kFloat16:
      return function_for<Float16>(op);
    case Datatype::kBFloat16:
      return function_for<BFloat16>(op);
    case Datatype::kFloat32:
      return function_for<float>(op);
    default:
      return function_for<double>(op);
  }
}

// Each MPI_Op is created once per process and never freed: there is no safe point before MPI is finalised.
MPI_Op user_op(ReduceOp op, Datatype type) {
  static std::mutex mutex;
  static std::array<std::array<std::optional<MPI_Op>, kDatatypeCount>, kReduceOpCount> cache;
  const std::lock_guard lock(mutex);
  auto& slot = cache[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
  if (!slot) {
    MPI_Op created = MPI_OP_NULL;
    check(MPI_Op_create(user_function(op, type), /*commute=*/1, &created), "MPI_Op_create");
    slot = created;
  }
  return *slot;
}

MPI_Op builtin_op(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::kProd:
      return MPI_PROD;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kLogicalAnd:
      return MPI_LAND;
    case ReduceOp::kLogicalOr:
      return MPI_LOR;
    case ReduceOp::kLogicalXor:
      return MPI_LXOR;
    case ReduceOp::kBitAnd:
      return MPI_BAND;
    case ReduceOp::kBitOr:
      return MPI_BOR;
    case ReduceOp::kBitXor:
      return MPI_BXOR;
    default:
      return MPI_SUM;
  }
}

bool is_half(Datatype type) noexcept { return type == Datatype::kFloat16 || type == Datatype::kBFloat16; }

bool has_builtin(ReduceOp op, Datatype type) noexcept {
  if (!is_floating(type)) return true;
  if (is_half(type)) return false;
  return op == ReduceOp::kSum || op == ReduceOp::kMean || op == ReduceOp::kProd;
}

template <class T>
void widen_loop(const T* from, std::int64_t count, float* to) noexcept {
  std::transform(from, from + count, to, [](T x) { return x.to_float(); });
}
template <class T>
void narrow_loop(const float* from, std::int64_t count, T* to) noexcept {
  std::transform(from, from + count, to, &T::from_float);
}

#if defined(__x86_64__)
WEFT_AVX2 void widen_f16c(const Float16* from, std::int64_t count, float* to) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  widen_loop(from + i, count - i, to + i);
}
WEFT_AVX2 void narrow_f16c(const float* from, std::int64_t count, Float16* to) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
  narrow_loop(from + i, count - i, to + i);
}
#else
void widen_f16c(const Float16* from, std::int64_t count, float* to) noexcept { widen_loop(from, count, to); }
void narrow_f16c(const float* from, std::int64_t count, Float16* to) noexcept { narrow_loop(from, count, to); }
#endif

}  // namespace

std::string_view name_of(ReduceOp op) noexcept { return kNames[static_cast<std::size_t>(op)]; }

std::optional<ReduceOp> reduce_op_from(std::string_view name) noexcept {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<ReduceOp>(found - kNames.begin());
}

bool supports(ReduceOp op, Datatype type) noexcept {
  if (op == ReduceOp::kSum || op == ReduceOp::kProd) return true;
  if (is_complex(type)) return op == ReduceOp::kMean;
  if (op == ReduceOp::kMean) return is_floating(type);
  return op < ReduceOp::kBitAnd || !is_floating(type);
}

MPI_Op handle_of(ReduceOp op, Datatype type) {
  if (!supports(op, type)) {
    throw std::invalid_argument("weft: reduction '" + std::string(name_of(op)) + "' is not defined on " +
                                std::string(name_of(type)));
  }
  if (type == Datatype::kBool) return builtin_op(on_bool(op));
  return has_builtin(op, type) ? builtin_op(op) : user_op(op, type);
}

bool accumulates_in_float32(ReduceOp op, Datatype type) noexcept {
  return is_half(type) && (op == ReduceOp::kSum || op == ReduceOp::kMean || op == ReduceOp::kProd);
}

void widen(const void* from, Datatype type, std::int64_t count, float* to) noexcept {
  if (type == Datatype::kBFloat16) return widen_loop(static_cast<const BFloat16*>(from), count, to);
  numeric::has_avx2() ? widen_f16c(static_cast<const Float16*>(from), count, to)
                      : widen_loop(static_cast<const Float16*>(from), count, to);
}

void narrow(const float* from, std::int64_t count, Datatype type, void* to) noexcept {
  if (type == Datatype::kBFloat16) return narrow_loop(from, count, static_cast<BFloat16*>(to));
  numeric::has_avx2() ? narrow_f16c(from, count, static_cast<Float16*>(to))
                      : narrow_loop(from, count, static_cast<Float16*>(to));
}

}  // namespace weft::mpi
