// The tape orders communication in backward: every recorded operation depends on its predecessor.
//
// The autograd node of an operation has one additional input and output besides its tensors: a token. The token is the
// edge to the node of the predecessor. Once backward reaches an operation, it therefore runs all earlier ones in
// reverse order, on every rank, whether or not that rank used their results. anchor() attaches the last token to a
// tensor, so that backward from that tensor runs all recorded operations.
//
// Each transform of torch.func has its own graph and therefore its own tape, which torch.func's function opens and
// anchors (python/weft/_transforms.py).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "weft/mpi/communicator.h"

namespace weft::collective {

class OperationNode;

// A recorded operation. Its node owns it, and so does the tape while it is the last one.
struct Record {
  const char* name = "";
  std::string site;  // source location of the call; only with Options::debug
  std::shared_ptr<Communicator> communicator;
  std::weak_ptr<Record> next;  // the next operation on the tape; expires with its node
  std::weak_ptr<Record> previous;
  std::int64_t region = 0;  // equal for operations between two resets of a tape; 0 without a tape
  int task = -1;            // the last backward pass that ran it, or started its adjoint
  // The wait() of a non-blocking collective, which sends nothing in backward. Its position may differ between ranks.
  bool waits = false;
  // Starts the adjoint of a non-blocking collective before the backward pass `task` reaches the operation. Returns
  // false if its gradient is still unknown. Null for other operations.
  std::function<bool(int task)> start_adjoint;

  [[nodiscard]] std::string describe() const;
};

class Tape : public std::enable_shared_from_this<Tape> {
 public:
  // The calling thread's innermost tape for the transform of torch.func that runs; a tape that is off if it has none.
  [[nodiscard]] static Tape& current();

  // False inside TapeScope(false): only data dependencies then order the operations.
  [[nodiscard]] bool on() const noexcept { return on_; }

  // The last token, which the next operation depends on. If the tape is empty: an edge to an input of the transform, or
  // an invalid edge outside of transforms.
  [[nodiscard]] const torch::autograd::Edge& token() const noexcept { return empty() ? start_ : last_; }
  // Ends the chain in a leaf and returns the edge to it. As an input of a backward pass that computes only some
  // gradients, the leaf keeps autograd from pruning communication. Created on demand because every node costs time.
  [[nodiscard]] torch::autograd::Edge end_in_leaf();
  [[nodiscard]] bool empty() const noexcept { return !last_.is_valid(); }
  // The number of operations recorded since the last reset.
  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  // The thread whose operations the tape records.
  [[nodiscard]] std::thread::id thread() const noexcept { return thread_; }

  void append(OperationNode& node, torch::autograd::Edge token);
  // Discards the chain; the next operation starts a new one.
  void reset();
  // Resets the tape if `record` is its last operation: backward has run it.
  void reset_after(const Record& record);

  // Raises an alarm on the communicators of all recorded operations, except `informed`, because this rank fails.
  void raise_alarm(const std::string& cause, std::int64_t informed) noexcept;

 private:
  [[nodiscard]] static std::int64_t new_region() noexcept;

  friend class TapeScope;
  torch::autograd::Edge start_;
  torch::autograd::Edge last_;
  std::shared_ptr<Record> last_record_;
  OperationNode* first_ = nullptr;  // kept alive by last_, which depends on it
  std::int64_t length_ = 0;
  std::int64_t region_ = new_region();
  std::int64_t level_ = 0;  // of the transform of torch.func; 0 outside of transforms
  std::thread::id thread_ = std::this_thread::get_id();
  bool on_ = true;
};

// Makes this thread record to another tape while the scope is alive.
class TapeScope {
 public:
  // Records to a new tape, or to none if `on` is false.
  explicit TapeScope(bool on = true);
  // Records to a new tape of the current transform of torch.func, unless the enclosing tape is off. Backward passes
  // that compute the gradients of `inputs` run the recorded operations, even those that do not depend on `inputs`.
  explicit TapeScope(at::ArrayRef<at::Tensor> inputs);
  // Records to the given tape of another thread. That thread must wait until the scope ends.
  explicit TapeScope(std::shared_ptr<Tape> tape);
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;
};

}  // namespace weft::collective
