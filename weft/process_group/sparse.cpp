#include <ATen/core/Tensor.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "weft/collective/reduction.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/exchange.h"
#include "weft/process_group/group.h"
#include "weft/process_group/memory.h"

namespace weft::process_group {
namespace {

// Already done: what is left of a call that was carried out step by step.
class Nothing final : public mpi::Operation {
 public:
  bool advance() override { return true; }
};

// What must be equal on all ranks, and the number of entries, which need not.
at::Tensor outline_of(const at::Tensor& x) {
  std::vector<std::int64_t> numbers{x._nnz(), static_cast<std::int64_t>(x.scalar_type()), x.sparse_dim(), x.dim()};
  numbers.resize(16, 0);
  std::uint64_t hash = 14695981039346656037U;
  for (const std::int64_t size : x.sizes()) hash = (hash ^ static_cast<std::uint64_t>(size)) * 1099511628211U;
  numbers[4] = static_cast<std::int64_t>(hash >> 1);
  return at::tensor(numbers, at::kLong);
}

}  // namespace

// Embeddings' gradients: the ranks' entries are brought together and added up. Step by step, in the caller's thread.
Group::WorkPtr Group::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1 && tensors.front().layout() == at::kSparse,
              "weft: a sparse all_reduce expects one tensor of layout sparse_coo");
  TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM || opts.reduceOp == c10d::ReduceOp::AVG,
              "weft: sparse tensors can be reduced by SUM and AVG only");
  TORCH_CHECK(tensors.front().device().is_cpu(), "weft: sparse tensors are reduced on the CPU only");
  const c10::AutoGradMode no_grad(false);
  const at::Tensor mine = tensors.front().detach().coalesce();
  static_cast<void>(collective::datatype_of(mine.scalar_type()));
  const auto call = manner(c10d::OpType::_ALLREDUCE_SPARSE, "weft:sparse_all_reduce", opts);
  const auto gather_from_all = [&](const Tensors& outputs, const at::Tensor& input) {
    Job job;
    {
      const std::lock_guard order(channels_->order());
      channels_->require_usable();
      job = all_gather_job(outputs, input);
    }
    complete(*job.operation, "sparse all_reduce", call.timeout);
    job.deliver();
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
      collective::travelling(at::cat(values, 0), mean ? mpi::ReduceOp::kMean : mpi::ReduceOp::kSum);
  at::Tensor sum = at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), entries, mine.sizes()).coalesce();
  if (mean) sum._values().div_(size_);
  tensors.front().copy_(
      sum.to(mine.scalar_type()));  // not of a detached one: a sparse tensor's copy_ exchanges its parts
  return launch(call, [&] {
    Job job;
    job.operation = std::make_unique<Nothing>();
    job.inputs = tensors;
    job.outputs = tensors;
    return job;
  });
}

}  // namespace weft::process_group
