// Boundary: exchanges states between neighbouring ranks. A rank steps from the last point of the rank before it.
#pragma once

#include <memory>

#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/level.h"
#include "weft/multigrid/problem/problem_evaluator.h"
#include "weft/multigrid/transport.h"

namespace weft::multigrid {

class Boundary {
 public:
  Boundary(const TimeHierarchy& hierarchy, Transport& transport, ProblemEvaluator& evaluator)
      : hierarchy_(hierarchy), transport_(transport), evaluator_(evaluator) {}

  // Posts the receive for the value before this rank's first point; the level must have a rank before this one.
  [[nodiscard]] std::unique_ptr<IncomingState> post_receive(const Level& level);
  // Blocks until the value arrives and returns it, or an empty State if this rank or the sender has failed.
  [[nodiscard]] State receive(const Level& level, IncomingState& incoming);
  // Sends the value at this rank's last point; the level must have a rank after this one.
  void send(const Level& level, const State& u);
  // Makes progress on messages; call it between pieces of work.
  void progress() { transport_.progress(); }

 private:
  const TimeHierarchy& hierarchy_;
  Transport& transport_;
  ProblemEvaluator& evaluator_;
};

}  // namespace weft::multigrid
