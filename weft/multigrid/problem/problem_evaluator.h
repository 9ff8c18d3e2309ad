// ProblemEvaluator: calls the user's Problem, counts and records the calls, and turns exceptions into a Fault.
//
// After a fault on this or another rank, every function returns an empty State without computing. The solve continues
// through its remaining messages, so that no rank waits for a message that never comes.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>

#include "weft/multigrid/error.h"
#include "weft/multigrid/options.h"
#include "weft/multigrid/problem/problem.h"
#include "weft/multigrid/problem/recorder.h"
#include "weft/multigrid/statistics.h"

namespace weft::multigrid {

class ProblemEvaluator {
 public:
  ProblemEvaluator(Problem& problem, const Options& options, int rank, int levels);

  // Announces steps, which need not be taken if the solve fails.
  [[nodiscard]] bool prepares_steps() const { return problem_.prepares_steps(); }
  void prepare(std::span<const PlannedStep> steps);
  // Calls Problem::forced_step, or Problem::step if `rhs` is empty.
  [[nodiscard]] State step(const State& u, const State& rhs, const Step& step);
  // Returns step(before) + rhs - after. Counts as a step.
  [[nodiscard]] State residual(const State& before, const State& after, const State& rhs, const Step& step);
  // Returns a x + b y.
  [[nodiscard]] State combine(double a, State x, double b, State y, const Place& place);
  [[nodiscard]] double norm(const State& u, const Place& place);

  [[nodiscard]] State initial(const Place& place);
  [[nodiscard]] State zero(const Place& place);
  [[nodiscard]] State guess(const Place& place);
  [[nodiscard]] State coarsen(const State& u, const Place& place);
  [[nodiscard]] State refine(const State& u, const Place& place);
  void access(const State& u, const Place& place);

  // Returns nullopt if this rank has failed.
  [[nodiscard]] std::optional<Packed> pack(const State& u, const Place& place);
  [[nodiscard]] State unpack(std::optional<Packed> message, const Place& place);
  // Returns the same value on both ends of a message, even if one of them has failed.
  [[nodiscard]] std::optional<std::int64_t> packed_bytes(const Place& place);

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  // Called when another rank reports a failure.
  void mark_failed() noexcept { failed_ = true; }
  // The fault of this rank; empty if only other ranks failed.
  [[nodiscard]] const std::optional<Fault>& fault() const noexcept { return fault_; }
  [[nodiscard]] const std::exception_ptr& cause() const noexcept { return cause_; }

  [[nodiscard]] Statistics& statistics() noexcept { return statistics_; }
  [[nodiscard]] Recorder* recorder() const noexcept { return recorder_; }

 private:
  using Needs = std::array<std::int64_t, 3>;
  template <class Work>
  auto attempt(const char* activity, int level, std::int64_t index, Work&& work) -> decltype(work());
  template <class Work>
  State make(const char* activity, int level, std::int64_t index, Work&& work);
  template <class Work>
  State record(TaskKind kind, int level, std::int64_t index, const Needs& needs, Work&& work);
  void record_fault(const char* activity, int level, std::int64_t index, const char* text) noexcept;

  Problem& problem_;
  Recorder* recorder_;
  Statistics statistics_;
  std::optional<Fault> fault_;
  std::exception_ptr cause_;
  int rank_;
  bool check_finite_;
  bool failed_ = false;
};

}  // namespace weft::multigrid
