#include "weft/collective/autograd/fake_kernel.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <string>

#include "weft/collective/autograd/call.h"
#include "weft/collective/tensor.h"

namespace weft::collective {
namespace {

thread_local int t_shapes_only = 0;

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("enter_shapes_only() -> ()", [] { enter_shapes_only(); });
  m.def("leave_shapes_only() -> ()", [] { leave_shapes_only(); });
}

}  // namespace

void enter_shapes_only() noexcept { ++t_shapes_only; }
void leave_shapes_only() noexcept { --t_shapes_only; }

void reject_meta_tensor(const at::Tensor& x, std::int64_t comm) {
  // Tensors of a tracer have the Python key, even if their device is "meta".
  if (x.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python) || t_shapes_only > 0) return;
  CollectiveCall call("communication", comm);
  call.check([&] {
    TORCH_CHECK(false, "weft: expected a tensor with data, got ", describe(x),
                "; tensors on the meta device have only a shape. Pass a tensor on cpu or cuda");
  });
  call.agree(Signature("meta"), 0, [] { return std::string("communication"); });
}

}  // namespace weft::collective
