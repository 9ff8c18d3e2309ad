// Transport: sends states between neighbouring ranks and reduces small values over all ranks.
//
// Ranks are numbered in the order of time. Messages between two ranks on one level arrive in the order in which they
// are sent. A message may be a *failure notice* instead of a state: a failed rank still sends every message that its
// neighbours wait for, so that no rank hangs and no message is left over for the next solve.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/multigrid/options.h"
#include "weft/multigrid/problem/problem.h"

namespace weft::multigrid {

// A pending receive.
class IncomingState {
 public:
  IncomingState() = default;
  virtual ~IncomingState() = default;
  IncomingState(const IncomingState&) = delete;
  IncomingState& operator=(const IncomingState&) = delete;
  // Blocks until the message arrives. Returns nullopt for a failure notice. Call it once.
  [[nodiscard]] virtual std::optional<Packed> wait() = 0;
};

// The result of a reduction, equal on all ranks.
struct ReductionResult {
  double value = 0;     // sum or maximum; NaN if any rank's value is NaN
  bool failed = false;  // whether any rank failed
};

class PendingReduction {
 public:
  PendingReduction() = default;
  virtual ~PendingReduction() = default;
  PendingReduction(const PendingReduction&) = delete;
  PendingReduction& operator=(const PendingReduction&) = delete;
  [[nodiscard]] virtual ReductionResult wait() = 0;
};

class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Collective; starts a solve. If signatures differ or a rank failed, all ranks throw an error with all descriptions.
  virtual void begin(std::uint64_t signature, bool failed, const std::string& description) = 0;

  // Sender and receiver pass the same level and bytes. Without bytes, the message includes its size.
  [[nodiscard]] virtual std::unique_ptr<IncomingState> receive(int source, int level,
                                                               std::optional<std::int64_t> bytes) = 0;
  // Does not block. Without a message, sends a failure notice.
  virtual void send(int dest, int level, std::optional<Packed> message, std::optional<std::int64_t> bytes) = 0;
  // Makes progress on pending messages; returns quickly.
  virtual void progress() = 0;
  // Blocks until all sends are complete.
  virtual void finish() = 0;

  // Collective. Starts the reduction of `value` by sum or maximum.
  [[nodiscard]] virtual std::unique_ptr<PendingReduction> reduce(double value, bool maximum, bool failed) = 0;
  // Collective; ends a solve. Returns whether any rank failed. Throws if a rank gave up waiting for this one.
  [[nodiscard]] virtual bool end(bool failed) = 0;
  // Collective. The texts of all ranks, in rank order.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) = 0;

  // Interrupts the waits of the other ranks when this rank leaves the solve early, e.g. after a timeout. Never throws.
  virtual void abandon(const std::string& cause) noexcept = 0;
};

}  // namespace weft::multigrid
