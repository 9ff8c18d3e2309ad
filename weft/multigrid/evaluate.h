// Calls the user's problem: counts, records, checks, and turns exceptions into a fault that the solve carries to its
// end.
//
// After a fault, here or on another rank, nothing is computed any more: every function returns an empty State at once,
// while the solve goes through its remaining messages, so that no rank waits for one that does not come.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <optional>

#include "weft/multigrid/error.h"
#include "weft/multigrid/options.h"
#include "weft/multigrid/problem.h"
#include "weft/multigrid/recorder.h"
#include "weft/multigrid/statistics.h"

namespace weft::multigrid {

class Evaluator {
 public:
  Evaluator(Problem& problem, const Options& options, int rank, int levels);

  // With a right-hand side unless that is empty.
  [[nodiscard]] State step(const State& u, const State& rhs, const Step& step);
  // step(before) + rhs - after; counts as a step.
  [[nodiscard]] State residual(const State& before, const State& after, const State& rhs, const Step& step);
  // a x + b y at a place.
  [[nodiscard]] State combine(double a, State x, double b, State y, const Place& place);
  [[nodiscard]] double norm(const State& u, const Place& place);

  [[nodiscard]] State initial(const Place& place);
  [[nodiscard]] State zero(const Place& place);
  [[nodiscard]] State guess(const Place& place);
  [[nodiscard]] State coarsen(const State& u, const Place& place);
  [[nodiscard]] State refine(const State& u, const Place& place);
  void access(const State& u, const Place& place);

  // Nothing where this rank has failed, and what it would have packed otherwise.
  [[nodiscard]] std::optional<Packed> pack(const State& u, const Place& place);
  [[nodiscard]] State unpack(std::optional<Packed> message, const Place& place);
  // The same on both ends of a message even where one of them has failed.
  [[nodiscard]] std::optional<std::int64_t> packed_bytes(const Place& place);

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  // Another rank failed and says so.
  void poison() noexcept { failed_ = true; }
  // What happened on this rank; none where only others failed.
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
  void keep_fault(const char* activity, int level, std::int64_t index, const char* text) noexcept;

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
