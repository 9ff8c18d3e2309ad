#include "weft/collective/nonblocking.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <functional>

#include "weft/collective/all_gather.h"
#include "weft/collective/all_reduce.h"
#include "weft/collective/broadcast.h"
#include "weft/collective/operator.h"
#include "weft/collective/reduce.h"
#include "weft/collective/reduce_scatter.h"
#include "weft/collective/reduction.h"
#include "weft/collective/sizes.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"

namespace weft::collective {
namespace {

using at::Tensor;

// What the forward operation's two nodes share in backward.
struct Reply {
  // Starts the adjoint on the gradient of the result, and ends it. Where the adjoint has no non-blocking form the
  // first does nothing and the second does it all.
  std::function<void(const Tensor& gradient)> start;
  std::function<Tensor()> finish;
  Blank result;  // for a result that nobody waited for
  bool started = false;
};

// Stands where the operation started: the last to run in backward.
struct StartAdjoint {
  std::shared_ptr<Reply> reply;
  variable_list operator()(OperationNode& /*node*/, variable_list&& /*none*/) const {
    if (!reply->started) reply->start(reply->result.zeros());
    reply->started = false;
    return {reply->finish()};
  }
};

// Stands where wait() was called: the first to run in backward.
struct WaitAdjoint {
  std::shared_ptr<Reply> reply;
  variable_list operator()(OperationNode& /*node*/, variable_list&& g) const {
    reply->start(g[0]);
    reply->started = true;
    return {};
  }
};

class PendingCollective final : public Pending {
 public:
  PendingCollective(const char* name, Comm team) : Pending(name, std::move(team)) {}
  bool ready() override { return request.test(); }

  mpi::Request request;
  std::function<Tensor()> result;  // makes the tensor out of what arrived
  std::shared_ptr<Reply> reply;    // null where no gradient is wanted
  torch::autograd::Edge started;   // the start node, so that backward reaches it without a tape too

 protected:
  Tensor finish() override {
    request.wait({.operation = name(), .team = team().get()});
    Tensor y = result();
    result = nullptr;
    if (reply) {
      auto node = record(name(), team(), {}, {y}, WaitAdjoint{reply});
      node->add_next_edge(started);
    }
    return y;
  }
};

using PendingPtr = c10::intrusive_ptr<PendingCollective>;

void record_start(const PendingPtr& pending, const Tensor& x, at::IntArrayRef result_sizes,
                  std::shared_ptr<Reply> reply) {
  reply->result = Blank(result_sizes, x.options());
  auto node = record(pending->name(), pending->team(), {x}, {}, StartAdjoint{reply});
  pending->started = {node, node->add_input_metadata(torch::autograd::Node::undefined_input())};
  pending->reply = std::move(reply);
}

// A reply that is the non-blocking operation itself, as for all_reduce.
template <class Start>
std::shared_ptr<Reply> overlapping_reply(Start start) {
  auto reply = std::make_shared<Reply>();
  auto under_way = std::make_shared<c10::intrusive_ptr<Pending>>();
  reply->start = [under_way, start](const Tensor& g) { *under_way = start(g); };
  reply->finish = [under_way] { return wait(std::exchange(*under_way, nullptr)); };
  return reply;
}

// A reply by a blocking operation.
template <class Run>
std::shared_ptr<Reply> blocking_reply(Run run) {
  auto reply = std::make_shared<Reply>();
  auto gradient = std::make_shared<Tensor>();
  reply->start = [gradient](const Tensor& g) { *gradient = g; };
  reply->finish = [gradient, run] { return run(std::exchange(*gradient, Tensor())); };
  return reply;
}

}  // namespace

c10::intrusive_ptr<Pending> iall_reduce(const Tensor& x, const Comm& comm, ReduceOp op, std::source_location where) {
  const mpi::OperationScope scope("iall_reduce", comm.get(), where);
  GradientCall call(x);
  Negotiation talk("iall_reduce", comm->id());
  talk.check([&] {
    require_reducible(x, op);
    TORCH_CHECK(is_linear(op) || !x.requires_grad(), "weft: iall_reduce differentiates sum and mean only, got '",
                mpi::name_of(op), "'; use all_reduce");
  });
  talk.agree(Signature("iall_reduce").add(x).add(static_cast<std::int64_t>(op)), 0,
             [&] { return "iall_reduce(" + describe(x) + ", '" + std::string(mpi::name_of(op)) + "')"; });
  const Tensor in = readable(travelling(x.detach(), op));
  Tensor out = writable(x.sizes(), in);
  auto pending = c10::make_intrusive<PendingCollective>("iall_reduce", comm);
  pending->request = mpi::Request(keep_alive(in, out));
  mpi::all_reduce_start(in.const_data_ptr(), out.mutable_data_ptr(), out.numel(), datatype_of(in.scalar_type()), op,
                        talk.channel(), pending->request);
  pending->result = [out, op, like = x.options(), size = talk.size()] { return finished(out, op, size, like); };
  if (call.recording()) {
    record_start(pending, x, x.sizes(),
                 overlapping_reply([comm, op](const Tensor& g) { return iall_reduce(g, comm, op); }));
  }
  return pending;
}

c10::intrusive_ptr<Pending> iall_gather(const Tensor& x, const Comm& comm, std::int64_t dim,
                                        std::source_location where) {
  const mpi::OperationScope scope("iall_gather", comm.get(), where);
  GradientCall call(x);
  Negotiation talk("iall_gather", comm->id());
  std::int64_t mine = 0;
  talk.check([&] {
    require_communicable(x);
    dim = wrap_dim(x, dim);
    mine = x.dim() == 0 ? 1 : x.size(dim);
  });
  const auto outcome = talk.agree(Signature("iall_gather").add(x, dim).add(dim), mine,
                                  [&] { return "iall_gather(" + describe(x) + ", dim=" + std::to_string(dim) + ")"; });
  const Sizes sizes = gather_sizes(talk, outcome, mine);
  const Tensor in = readable(to_front(x.detach(), dim));
  auto shape = in.sizes().vec();
  shape[0] = total_of(sizes);
  Tensor out = writable(shape, x);
  auto pending = c10::make_intrusive<PendingCollective>("iall_gather", comm);
  pending->request = mpi::Request(keep_alive(in, out));
  mpi::all_gather_start(in.const_data_ptr(), out.mutable_data_ptr(), element_counts(sizes, in),
                        datatype_of(x.scalar_type()), talk.channel(), pending->request);
  pending->result = [out, dim, device = x.device()] { return from_front(out, dim).to(device); };
  if (call.recording()) {
    const bool scalar = x.dim() == 0;
    auto result_sizes = scalar ? shape : x.sizes().vec();
    result_sizes[static_cast<std::size_t>(dim)] = total_of(sizes);
    record_start(pending, x, result_sizes, blocking_reply([comm, dim, sizes, scalar](const Tensor& g) {
                   const Tensor piece = reduce_scatter(g, comm, ReduceOp::kSum, dim, sizes);
                   return scalar ? piece.squeeze(0) : piece;
                 }));
  }
  return pending;
}

c10::intrusive_ptr<Pending> ibroadcast(const Tensor& x, const Comm& comm, std::int64_t root,
                                       std::source_location where) {
  const mpi::OperationScope scope("ibroadcast", comm.get(), where);
  GradientCall call(x);
  Negotiation talk("ibroadcast", comm->id());
  talk.check([&] {
    require_communicable(x);
    require_rank(root, talk.size(), "root");
  });
  talk.agree(Signature("ibroadcast").add(x).add(root), 0,
             [&] { return "ibroadcast(" + describe(x) + ", root=" + std::to_string(root) + ")"; });
  Tensor out = writable(x.sizes(), x);
  if (talk.rank() == root) out.copy_(x.detach());
  auto pending = c10::make_intrusive<PendingCollective>("ibroadcast", comm);
  pending->request = mpi::Request(keep_alive(out));
  mpi::broadcast_start(out.mutable_data_ptr(), out.numel(), datatype_of(x.scalar_type()), static_cast<int>(root),
                       talk.channel(), pending->request);
  pending->result = [out, device = x.device()] { return out.to(device); };
  if (call.recording()) {
    record_start(pending, x, x.sizes(),
                 blocking_reply([comm, root](const Tensor& g) { return reduce(g, comm, ReduceOp::kSum, root); }));
  }
  return pending;
}

}  // namespace weft::collective
