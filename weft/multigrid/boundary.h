// The values that cross the borders between ranks: the last point of each rank is what the next one steps from.
#pragma once

#include <memory>

#include "weft/multigrid/evaluate.h"
#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/level.h"
#include "weft/multigrid/transport.h"

namespace weft::multigrid {

class Boundary {
 public:
  Boundary(const TimeHierarchy& hierarchy, Transport& transport, Evaluator& evaluator)
      : hierarchy_(hierarchy), transport_(transport), evaluator_(evaluator) {}

  // Posts the receive for the value before this rank's first point; the level must have a rank before this one.
  [[nodiscard]] std::unique_ptr<Incoming> expect(const Level& level);
  // Blocks. Empty where this rank or the sender has failed.
  [[nodiscard]] State take(const Level& level, Incoming& incoming);
  // Sends the value at this rank's last point; the level must have a rank after this one.
  void give(const Level& level, const State& u);
  // Lets messages move between two pieces of work.
  void progress() { transport_.progress(); }

 private:
  const TimeHierarchy& hierarchy_;
  Transport& transport_;
  Evaluator& evaluator_;
};

}  // namespace weft::multigrid
