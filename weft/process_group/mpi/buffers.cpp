#include "weft/process_group/mpi/buffers.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <optional>

#include "weft/collective/autograd/reduction.h"
#include "weft/collective/tensor.h"

namespace weft::process_group {
namespace {

// Enables inference mode to change a tensor that was created in it; torch forbids the change otherwise. The thread that
// delivers is often not the caller's and has its own mode.
class InferenceModeOf {
 public:
  explicit InferenceModeOf(const at::Tensor& tensor) {
    if (tensor.is_inference()) mode_.emplace();
  }

 private:
  std::optional<c10::InferenceMode> mode_;
};

// torch rejects the copy of a result to such a tensor, but only after the communication.
void require_writable(const at::Tensor& tensor) {
  TORCH_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
              "weft: several elements of the output share memory (shape ", tensor.sizes(), ", strides ",
              tensor.strides(), "), for example after expand(); pass a clone() of the tensor");
}

bool is_plain(const at::Tensor& x) { return x.device().is_cpu() && x.is_contiguous() && !x.is_conj() && !x.is_neg(); }

mpi::ReduceOp translated(const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return mpi::ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return mpi::ReduceOp::kMean;
    case c10d::ReduceOp::PRODUCT:
      return mpi::ReduceOp::kProd;
    case c10d::ReduceOp::MIN:
      return mpi::ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return mpi::ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return mpi::ReduceOp::kBitAnd;
    case c10d::ReduceOp::BOR:
      return mpi::ReduceOp::kBitOr;
    case c10d::ReduceOp::BXOR:
      return mpi::ReduceOp::kBitXor;
    default:
      TORCH_CHECK(false, "weft: unknown reduce op");
  }
}

at::Tensor factor_of(const c10d::ReduceOp& op) {
  if (op != c10d::ReduceOp::PREMUL_SUM) return {};
  const auto* supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "weft: PREMUL_SUM requires a factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor
                                             : at::scalar_tensor(supplement->double_factor, at::kDouble);
}

}  // namespace

at::Tensor input_buffer(const at::Tensor& tensor) { return collective::readable(tensor.detach()); }

OutputBuffer output_buffer(const at::Tensor& tensor) {
  require_writable(tensor);
  const at::Tensor detached = tensor.detach();
  return {detached, is_plain(detached) ? detached : collective::writable(detached.sizes(), detached)};
}

OutputBuffer output_buffer(const at::Tensor& tensor, at::ScalarType type) {
  if (type == tensor.scalar_type()) return output_buffer(tensor);
  require_writable(tensor);
  return {tensor.detach(), at::empty(tensor.sizes(), tensor.options().dtype(type).device(at::kCPU))};
}

OutputBuffer in_place_buffer(const at::Tensor& tensor) { return in_place_buffer(tensor, tensor.scalar_type()); }

OutputBuffer in_place_buffer(const at::Tensor& tensor, at::ScalarType type) {
  OutputBuffer target = output_buffer(tensor, type);
  if (!target.memory.is_same(target.tensor)) target.memory.copy_(target.tensor);
  return target;
}

void OutputBuffer::deliver() const {
  if (memory.is_same(tensor)) return;
  const InferenceModeOf mode(tensor);
  tensor.copy_(memory);
}

void divide(const at::Tensor& memory, int ranks) {
  const InferenceModeOf mode(memory);
  memory.div_(ranks);
}

void deliver_all(const std::vector<OutputBuffer>& targets) {
  for (const OutputBuffer& target : targets) target.deliver();
}

// Direct reductions accumulate half precision in float32 themselves; only a mean is sent in float32, because its sum
// may overflow although the mean does not.
Reduction::Reduction(const c10d::ReduceOp& op, const at::Tensor& like, int ranks, Algorithm algorithm)
    : op_(translated(op)),
      type_(algorithm == Algorithm::kDirect && op_ != mpi::ReduceOp::kMean
                ? like.scalar_type()
                : collective::communication_type(like.scalar_type(), op_)),
      ranks_(ranks),
      factor_(factor_of(op)) {
  collective::require_reducible(like, op_);
}

void Reduction::prepare(const at::Tensor& memory) const {
  if (!scales()) return;
  const InferenceModeOf mode(memory);
  memory.mul_(factor_.to(memory.device()));
}

void Reduction::finish(const at::Tensor& memory) const {
  if (op_ == mpi::ReduceOp::kMean) divide(memory, ranks_);
}

at::Tensor Reduction::prepared(const at::Tensor& input) const {
  at::Tensor memory = input_buffer(input.to(type_));
  if (!scales()) return memory;
  memory = memory.clone();
  prepare(memory);
  return memory;
}

std::function<void()> delivery(Reduction reduction, OutputBuffer target) {
  return [reduction = std::move(reduction), target = std::move(target)] {
    reduction.finish(target.memory);
    target.deliver();
  };
}

std::vector<at::Tensor> parts_of(const at::Tensor& whole, const std::vector<std::int64_t>& sizes) {
  std::vector<at::Tensor> parts;
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(whole.narrow(0, first, size));
    first += size;
  }
  return parts;
}

std::vector<at::Tensor> equal_parts(const at::Tensor& whole, int parts) {
  const at::Tensor flat = whole.view({-1});
  return parts_of(flat, std::vector<std::int64_t>(static_cast<std::size_t>(parts), flat.numel() / parts));
}

void require_one_each(const std::vector<at::Tensor>& tensors, int ranks, const char* what) {
  TORCH_CHECK(static_cast<int>(tensors.size()) == ranks, "weft: ", what, " expects one tensor for each of ", ranks,
              " ranks, got ", tensors.size());
  for (const at::Tensor& tensor : tensors) {
    collective::require_communicable(tensor);
    require_same_type(tensor, tensors.front(), what);
  }
}

void require_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, const char* what) {
  TORCH_CHECK(outputs.size() == inputs.size(), "weft: ", what, " expects one output per input, got ", outputs.size(),
              " and ", inputs.size());
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK(tensors.size() == 1, "weft: ", what, " expects one tensor per rank, got ", tensors.size());
  collective::require_communicable(tensors.front());
  return tensors.front();
}

void require_same_type(const at::Tensor& a, const at::Tensor& b, const char* what) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "weft: ", what, " expects tensors of one type, got ", a.scalar_type(),
              " and ", b.scalar_type());
}

}  // namespace weft::process_group
