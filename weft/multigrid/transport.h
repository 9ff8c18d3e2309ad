// How states travel between ranks: a few messages with a neighbour, and two small agreements of all.
//
// Ranks count in the order of time. Messages between two ranks on one level arrive in the order they were sent. A
// message may be a *failure notice* instead of a state: a rank that cannot go on computing still sends everything its
// neighbours wait for, so that nobody hangs and no message is left over for the next solve.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/multigrid/options.h"
#include "weft/multigrid/problem.h"

namespace weft::multigrid {

// A receive under way.
class Incoming {
 public:
  Incoming() = default;
  virtual ~Incoming() = default;
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;
  // Blocks until the message is here; empty for a failure notice. Once.
  [[nodiscard]] virtual std::optional<Packed> wait() = 0;
};

// What all ranks learn from a reduction.
struct Agreement {
  double value = 0;     // sum or maximum; NaN if any rank's was
  bool failed = false;  // any rank
};

class PendingAgreement {
 public:
  PendingAgreement() = default;
  virtual ~PendingAgreement() = default;
  PendingAgreement(const PendingAgreement&) = delete;
  PendingAgreement& operator=(const PendingAgreement&) = delete;
  [[nodiscard]] virtual Agreement wait() = 0;
};

class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Collective, at the start of a solve. Throws on all ranks, with each rank's `description`, unless all signatures are
  // equal and nobody has failed.
  virtual void begin(std::uint64_t signature, bool failed, const std::string& description) = 0;

  // Both sides name the same level and bytes; without bytes the message says its own size.
  [[nodiscard]] virtual std::unique_ptr<Incoming> receive(int source, int level, std::optional<std::int64_t> bytes) = 0;
  // Does not block. No message: a failure notice.
  virtual void send(int dest, int level, std::optional<Packed> message, std::optional<std::int64_t> bytes) = 0;
  // Lets messages under way move; brief.
  virtual void progress() = 0;
  // Blocks until everything sent is out.
  virtual void finish() = 0;

  // Collective.
  [[nodiscard]] virtual std::unique_ptr<PendingAgreement> agree(double value, bool maximum, bool failed) = 0;
  // Collective, the last of a solve: whether any rank failed. A rank that gave up waiting for this one is noticed here.
  [[nodiscard]] virtual bool end(bool failed) = 0;
  // Collective: everybody's text, in rank order.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) = 0;

  // This rank leaves the solve out of order, say after a timeout: ends the others' waits. Never throws.
  virtual void abandon(const std::string& cause) noexcept = 0;
};

}  // namespace weft::multigrid
