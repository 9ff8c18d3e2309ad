#include "weft/collective/tensor.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "weft/collective/device.h"
#include "weft/collective/pool.h"

namespace weft::collective {
namespace {

const char* kAllowed =
    "bool, uint8, int8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64, complex64 "
    "and complex128";

}  // namespace

mpi::Datatype datatype_of(at::ScalarType type) {
  using mpi::Datatype;
  switch (type) {
    case at::kBool:
      return Datatype::kBool;
    case at::kByte:
      return Datatype::kUInt8;
    case at::kChar:
      return Datatype::kInt8;
    case at::kShort:
      return Datatype::kInt16;
    case at::kUInt16:
      return Datatype::kUInt16;
    case at::kInt:
      return Datatype::kInt32;
    case at::kUInt32:
      return Datatype::kUInt32;
    case at::kLong:
      return Datatype::kInt64;
    case at::kUInt64:
      return Datatype::kUInt64;
    case at::kHalf:
      return Datatype::kFloat16;
    case at::kBFloat16:
      return Datatype::kBFloat16;
    case at::kFloat:
      return Datatype::kFloat32;
    case at::kDouble:
      return Datatype::kFloat64;
    case at::kComplexFloat:
      return Datatype::kComplex64;
    case at::kComplexDouble:
      return Datatype::kComplex128;
    default:
      TORCH_CHECK(false, "weft: ", type, " cannot be communicated; expected one of ", kAllowed);
  }
}

at::ScalarType scalar_type_of(mpi::Datatype type) {
  constexpr at::ScalarType kTypes[] = {at::kBool,     at::kByte,   at::kChar,   at::kShort,        at::kUInt16,
                                       at::kInt,      at::kUInt32, at::kLong,   at::kUInt64,       at::kHalf,
                                       at::kBFloat16, at::kFloat,  at::kDouble, at::kComplexFloat, at::kComplexDouble};
  return kTypes[static_cast<std::size_t>(type)];
}

void require_communicable(const Tensor& x) {
  TORCH_CHECK(x.defined(), "weft: expected a tensor, got an undefined tensor");
  TORCH_CHECK(x.layout() == at::kStrided, "weft: expected a dense (strided) tensor, got layout ", x.layout(),
              "; convert it with to_dense()");
  TORCH_CHECK(!x.is_meta(), "weft: expected a tensor with data, got one on the meta device");
  static_cast<void>(datatype_of(x.scalar_type()));
}

std::string describe(const Tensor& x) {
  if (!x.defined()) return "no tensor";
  std::ostringstream text;
  text << c10::toString(x.scalar_type()) << x.sizes();
  if (!x.device().is_cpu()) text << " on " << x.device();
  if (x.layout() != at::kStrided) text << " (" << x.layout() << ")";
  return text.str();
}

Tensor readable(const Tensor& x) {
  if (x.device().is_cpu() && x.is_contiguous() && !x.is_conj() && !x.is_neg()) return x;
  const Tensor plain = x.resolve_conj().resolve_neg().contiguous();
  return mpi_reads(plain.device()) ? plain : plain.to(at::kCPU);
}

Tensor writable(at::IntArrayRef sizes, const Tensor& like) {
  if (!like.device().is_cpu() && mpi_reads(like.device())) return at::empty(sizes, like.options());
  return pooled_empty(sizes, like.scalar_type());
}

Tensor to_device_of(Tensor result, const Tensor& like) {
  return result.device() == like.device() ? result : result.to(like.device());
}

std::shared_ptr<void> keep_alive(Tensor x, Tensor y) {
  return std::make_shared<std::pair<Tensor, Tensor>>(std::move(x), std::move(y));
}

std::int64_t wrap_dim(const Tensor& x, std::int64_t dim) {
  const std::int64_t dims = std::max<std::int64_t>(x.dim(), 1);
  TORCH_CHECK_INDEX(dim >= -dims && dim < dims, "weft: expected a dimension in [", -dims, ", ", dims - 1,
                    "] for a tensor of ", x.dim(), " dimensions, got ", dim);
  return dim < 0 ? dim + dims : dim;
}

Tensor to_front(const Tensor& x, std::int64_t dim) {
  if (x.dim() == 0) return x.reshape({1});
  return dim == 0 ? x : x.movedim(dim, 0);
}

Tensor from_front(const Tensor& x, std::int64_t dim) { return dim == 0 ? x : x.movedim(0, dim).contiguous(); }

}  // namespace weft::collective
