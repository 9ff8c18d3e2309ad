#include <ATen/core/Tensor.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "weft/collective/autograd/reduction.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/message/exchange.h"
#include "weft/process_group/mpi/buffers.h"
#include "weft/process_group/mpi/group.h"

namespace weft::process_group {
namespace {

// A completed operation, for a call that has already communicated.
class CompletedOperation final : public mpi::Operation {
 public:
  bool advance() override { return true; }
};

// The number of entries, which may differ between ranks, and the properties that must be equal.
at::Tensor outline_of(const at::Tensor& x) {
  std::vector<std::int64_t> numbers{x._nnz(), static_cast<std::int64_t>(x.scalar_type()), x.sparse_dim(), x.dim()};
  numbers.resize(16, 0);
  std::uint64_t hash = 14695981039346656037U;
  for (const std::int64_t size : x.sizes()) hash = (hash ^ static_cast<std::uint64_t>(size)) * 1099511628211U;
  numbers[4] = static_cast<std::int64_t>(hash >> 1);
  return at::tensor(numbers, at::kLong);
}

}  // namespace

// For gradients of embeddings: gathers the entries of all ranks and sums them, blocking in the caller's thread.
MpiGroup::WorkPtr MpiGroup::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1 && tensors.front().layout() == at::kSparse,
              "weft: a sparse all_reduce expects one tensor of layout sparse_coo");
  TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM || opts.reduceOp == c10d::ReduceOp::AVG,
              "weft: sparse tensors support only SUM and AVG");
  TORCH_CHECK(tensors.front().device().is_cpu(), "weft: sparse tensors are reduced on the CPU only");
  const c10::AutoGradMode no_grad(false);
  const at::Tensor mine = tensors.front().detach().coalesce();
  static_cast<void>(collective::datatype_of(mine.scalar_type()));
  const auto call = settings(c10d::OpType::_ALLREDUCE_SPARSE, "weft:sparse_all_reduce", opts);
  const auto gather_from_all = [&](const Tensors& outputs, const at::Tensor& input) {
    const Task task = all_gather_task(outputs, input);
    std::unique_ptr<mpi::Operation> operation;
    {
      const std::lock_guard order(communicators_->order());
      communicators_->require_usable();
      operation = task.start();
    }
    complete(*operation, "sparse all_reduce", call.timeout);
    task.deliver();
  };

  const at::Tensor outline = outline_of(mine);
  Tensors outlines;
  for (int rank = 0; rank < size_; ++rank) outlines.push_back(at::empty_like(outline));
  gather_from_all(outlines, outline);
  Tensors indices;
  Tensors values;
  for (int rank = 0; rank < size_; ++rank) {
    const at::Tensor& theirs = outlines[static_cast<std::size_t>(rank)];
    TORCH_CHECK(theirs.slice(0, 1).equal(outline.slice(0, 1)),
                "weft: a sparse all_reduce expects the same type, shape and sparse dimensions on all ranks; rank ",
                rank, "'s differ from those of rank ", rank_);
    const auto entries = theirs[0].item<std::int64_t>();
    indices.push_back(at::empty({mine.sparse_dim(), entries}, mine._indices().options()));
    auto shape = mine._values().sizes().vec();
    shape[0] = entries;
    values.push_back(at::empty(shape, mine._values().options()));
  }
  gather_from_all(indices, mine._indices().contiguous());
  gather_from_all(values, mine._values().contiguous());

  const bool mean = opts.reduceOp == c10d::ReduceOp::AVG;
  const at::Tensor entries =
      collective::to_communication_type(at::cat(values, 0), mean ? mpi::ReduceOp::kMean : mpi::ReduceOp::kSum);
  at::Tensor sum = at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), entries, mine.sizes()).coalesce();
  if (mean) sum._values().div_(size_);
  // copy_ replaces the parts of a sparse tensor, so a copy into a detached alias would not reach the caller's tensor.
  tensors.front().copy_(sum.to(mine.scalar_type()));
  return launch(call, [&] {
    Task task;
    task.start = [] { return std::make_unique<CompletedOperation>(); };
    task.inputs = tensors;
    task.outputs = tensors;
    return task;
  });
}

}  // namespace weft::process_group
