// The tape orders communication in backward: every recorded operation depends on the one before it.
//
// Each operation's autograd node has one more input and output than its tensors: a token. The token of an operation
// is the edge to its predecessor's node, so once backward reaches an operation it performs all earlier ones in the
// reverse order, on every rank, whether or not their results were used there. anchor() hangs the last token on a
// tensor, so that backward from that tensor performs everything.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "weft/mpi/team.h"

namespace weft::collective {

class OperationNode;

// A recorded operation; owned by its node and, while it is the last one, by the tape.
struct Record {
  const char* name = "";
  std::string site;  // where it was called from; only with Options::debug
  std::shared_ptr<mpi::Team> team;
  std::weak_ptr<Record> next;  // recorded after this one on the same tape; gone when nothing can reach its node
  int task = -1;               // the last backward pass that performed it

  [[nodiscard]] std::string describe() const;
};

class Tape : public std::enable_shared_from_this<Tape> {
 public:
  // The calling thread's innermost tape.
  [[nodiscard]] static Tape& current();

  // False inside NoTape: operations are then ordered only by the data that flows between them.
  [[nodiscard]] bool on() const noexcept { return on_; }

  // The edge that the next operation depends on: the last token, or none at the beginning.
  [[nodiscard]] const torch::autograd::Edge& token() const noexcept { return last_; }
  // Lets the chain end in a leaf, and returns the edge to it: among the inputs of a backward pass that computes only
  // some gradients it keeps all communication alive. Not there from the start because every node costs time.
  [[nodiscard]] torch::autograd::Edge ground();
  [[nodiscard]] bool empty() const noexcept { return !last_.is_valid(); }
  // Operations recorded since the last reset.
  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  // The thread whose operations it records.
  [[nodiscard]] std::thread::id thread() const noexcept { return thread_; }

  void append(OperationNode& node, torch::autograd::Edge token);
  // Forgets the chain; the next operation starts a new one.
  void reset();
  // Resets if the last operation is the one given: backward has come by.
  void reset_after(const Record& record);

  // Tells the teams of all recorded operations that this rank fails.
  void raise_alarm(const std::string& cause) noexcept;

 private:
  friend class TapeScope;
  torch::autograd::Edge last_;
  std::shared_ptr<Record> last_record_;
  OperationNode* first_ = nullptr;  // alive as long as last_, which depends on it
  std::int64_t length_ = 0;
  std::thread::id thread_ = std::this_thread::get_id();
  bool on_ = true;
};

// Operations inside the scope go to a tape of their own (or to none), as long as it lives in this thread.
class TapeScope {
 public:
  explicit TapeScope(bool on = true);
  // They go to a tape of another thread, which waits meanwhile.
  explicit TapeScope(std::shared_ptr<Tape> tape);
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;
};

}  // namespace weft::collective
