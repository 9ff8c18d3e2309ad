#include "weft/collective/traced.h"

#include <c10/util/Exception.h>

#include <string>

#include "weft/collective/call.h"
#include "weft/collective/operator.h"
#include "weft/collective/tensor.h"

namespace weft::collective {
namespace {

thread_local int t_shapes_only = 0;

}  // namespace

void enter_shapes_only() noexcept { ++t_shapes_only; }
void leave_shapes_only() noexcept { --t_shapes_only; }

void refuse_without_data(const at::Tensor& x, std::int64_t comm) {
  // Tracers' tensors are handled by Python, also where they pretend to be on the device "meta".
  if (x.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python) || t_shapes_only > 0) return;
  Negotiation talk("communication", comm);
  talk.check([&] {
    TORCH_CHECK(false, "weft: expected a tensor with data, got ", describe(x),
                ". Tensors of that device have a shape only; give one of cpu or cuda");
  });
  talk.agree(Signature("meta"), 0, [] { return std::string("communication"); });
}

}  // namespace weft::collective
