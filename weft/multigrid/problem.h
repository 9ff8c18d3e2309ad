// What a user tells the solver: an initial value, how to step, and how to add, measure and send states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "weft/multigrid/state.h"

namespace weft::multigrid {

// A point in time. Level 0 is the finest; point `index` of a level lies on fine point `fine_index`.
struct Place {
  int level = 0;
  std::int64_t index = 0;
  std::int64_t fine_index = 0;
  double t = 0;
};

// The step from point `index` to point `index + 1` of a level, which replaces the fine steps [fine_start, fine_stop).
struct Step {
  int level = 0;
  std::int64_t index = 0;
  std::int64_t fine_start = 0;
  std::int64_t fine_stop = 0;
  double t_start = 0;
  double t_stop = 0;
  // True in the last sweep of a solve only. Each rank then takes each step into one of its own fine points exactly
  // once, in no particular order: the time to record what the result was made of.
  bool final = false;
};

// A state as contiguous bytes; `owner` keeps them alive while they travel.
struct Packed {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// Called by one thread, on whichever rank needs the value; only communicates if the user's own code does. Whatever a
// function throws reaches all ranks as a SolveError, and the next solve works.
class Problem {
 public:
  Problem() = default;
  virtual ~Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  // The value at point 0; asked once per solve, on the rank that owns that point.
  [[nodiscard]] virtual State initial() = 0;
  // One time step. The same input must give the same output within a solve, up to round-off.
  [[nodiscard]] virtual State step(const State& u, const Step& step) = 0;
  // a x + b y. May write into x or y where it holds the only reference (State::exclusive).
  [[nodiscard]] virtual State combine(double a, State x, double b, State y) = 0;
  [[nodiscard]] virtual double norm(const State& u) = 0;

  // A view of the state's bytes, or a copy of them. `place` is where the state is known.
  [[nodiscard]] virtual Packed pack(const State& u, const Place& place) = 0;
  // May keep message.owner and build the state on the received bytes, which are aligned for any type.
  [[nodiscard]] virtual State unpack(Packed message, const Place& place) = 0;
  // The exact number of bytes that pack() makes at a place, where both sender and receiver know it beforehand: saves a
  // message. All ranks must answer alike.
  [[nodiscard]] virtual std::optional<std::int64_t> packed_bytes(const Place& /*place*/) { return std::nullopt; }

  // The zero state at a place; for InitialGuess::kZero without skip_downcycle.
  [[nodiscard]] virtual State zero(const Place& /*place*/) { lacks_zero(); }
  // For InitialGuess::kCallback; asked at the C-points of the finest level.
  [[nodiscard]] virtual State guess(const Place& /*place*/) { lacks_guess(); }

  // The step with a right-hand side, as coarse levels need it: step(u) + rhs. Override together with residual() where
  // the step solves an equation, as implicit schemes do, and its residual is cheaper to have than the step.
  [[nodiscard]] virtual State forced_step(const State& u, const State& rhs, const Step& step);
  // What `after` lacks to solve the step's equation from `before`, without a right-hand side: step(before) - after.
  // Another equation must be scaled alike on all levels, so that `after` has a factor near -1 in it.
  [[nodiscard]] virtual State residual(const State& before, const State& after, const Step& step);

  // Spatial coarsening: a state of level place.level for the next coarser level at the same time, and back.
  [[nodiscard]] virtual State coarsen(const State& u, const Place& /*place*/) { return u; }
  [[nodiscard]] virtual State refine(const State& u, const Place& /*place*/) { return u; }

  // Asked of every new state where Options::check_finite is set.
  [[nodiscard]] virtual bool finite(const State& u);
  // Shows every owned fine point once, as the last sweep computes it, whatever the storage.
  virtual void access(const State& /*u*/, const Place& /*place*/) {}

 protected:
  // What zero() and guess() do unless overridden: throw and say so.
  [[noreturn]] static void lacks_zero();
  [[noreturn]] static void lacks_guess();
};

}  // namespace weft::multigrid
