// Problem: the interface that users implement: initial value, time step, and vector operations on states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "weft/multigrid/problem/state.h"

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
  // True only in the final sweep of a solve. Each rank then takes each step to one of its fine points exactly once, in
  // no particular order, so it can record how the result was computed.
  bool final = false;
};

// A step that the solver will take from state u.
struct PlannedStep {
  State u;
  Step step;
};

// A state as contiguous bytes; `owner` keeps them alive until they are sent.
struct Packed {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// The solver calls these functions from one thread, on the rank that needs the value. They need not communicate. If a
// function throws, all ranks throw SolveError, and the next solve works.
class Problem {
 public:
  Problem() = default;
  virtual ~Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  // The value at point 0. Called once per solve, on the rank that owns the point.
  [[nodiscard]] virtual State initial() = 0;
  // Takes one time step. Within a solve, equal inputs must give equal outputs up to rounding.
  [[nodiscard]] virtual State step(const State& u, const Step& step) = 0;
  // Override both if steps are cheaper together. prepare() gets independent steps of one level, which the solver takes
  // next; step() can then return their results.
  [[nodiscard]] virtual bool prepares_steps() const { return false; }
  virtual void prepare(std::span<const PlannedStep> /*steps*/) {}
  // Returns a x + b y. May write into x or y if it holds the only reference (State::exclusive).
  [[nodiscard]] virtual State combine(double a, State x, double b, State y) = 0;
  [[nodiscard]] virtual double norm(const State& u) = 0;

  // A view or a copy of the state's bytes. `place` is the point of the state.
  [[nodiscard]] virtual Packed pack(const State& u, const Place& place) = 0;
  // Returns the state. May keep message.owner and use the received bytes, which are aligned for any type.
  [[nodiscard]] virtual State unpack(Packed message, const Place& place) = 0;
  // The exact number of bytes that pack() makes at a place, if sender and receiver know it in advance; this saves a
  // message. All ranks must return the same value.
  [[nodiscard]] virtual std::optional<std::int64_t> packed_bytes(const Place& /*place*/) { return std::nullopt; }

  // The zero state at a place. Required for InitialGuess::kZero without skip_downcycle.
  [[nodiscard]] virtual State zero(const Place& /*place*/) { lacks_zero(); }
  // The guess at a C-point of the finest level. Required for InitialGuess::kCallback.
  [[nodiscard]] virtual State guess(const Place& /*place*/) { lacks_guess(); }

  // The step with a right-hand side, for coarse levels: step(u) + rhs. Override it together with residual() if the step
  // solves an equation, as in implicit schemes, and the residual is cheaper than the step.
  [[nodiscard]] virtual State forced_step(const State& u, const State& rhs, const Step& step);
  // The residual of the step's equation without a right-hand side: step(before) - after. A different equation must have
  // the same scaling on all levels, with a factor of about -1 for `after`.
  [[nodiscard]] virtual State residual(const State& before, const State& after, const Step& step);

  // Spatial coarsening: converts a state of level place.level to the next coarser (finer) level at the same time.
  [[nodiscard]] virtual State coarsen(const State& u, const Place& /*place*/) { return u; }
  [[nodiscard]] virtual State refine(const State& u, const Place& /*place*/) { return u; }

  // Called for every new state if Options::check_finite is set.
  [[nodiscard]] virtual bool finite(const State& u);
  // Called once for every owned fine point as the final sweep computes it, with any Storage.
  virtual void access(const State& /*u*/, const Place& /*place*/) {}

 protected:
  // The defaults of zero() and guess(): throw std::logic_error.
  [[noreturn]] static void lacks_zero();
  [[noreturn]] static void lacks_guess();
};

}  // namespace weft::multigrid
