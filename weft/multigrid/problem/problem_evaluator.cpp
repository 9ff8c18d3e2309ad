#include "weft/multigrid/problem/problem_evaluator.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "weft/mpi/options.h"

namespace weft::multigrid {

ProblemEvaluator::ProblemEvaluator(Problem& problem, const Options& options, int rank, int levels)
    : problem_(problem),
      recorder_(options.recorder),
      rank_(rank),
      check_finite_(options.check_finite || mpi::options().debug) {
  statistics_.steps.assign(static_cast<std::size_t>(levels), 0);
}

void ProblemEvaluator::record_fault(const char* activity, int level, std::int64_t index, const char* text) noexcept {
  failed_ = true;
  cause_ = std::current_exception();
  fault_ = Fault{rank_, level, index, activity, text};
}

template <class Work>
auto ProblemEvaluator::attempt(const char* activity, int level, std::int64_t index, Work&& work) -> decltype(work()) {
  if (failed_) return {};
  try {
    return work();
  } catch (const std::exception& error) {
    record_fault(activity, level, index, error.what());
  } catch (...) {
    record_fault(activity, level, index, "an exception of unknown type");
  }
  return {};
}

template <class Work>
State ProblemEvaluator::make(const char* activity, int level, std::int64_t index, Work&& work) {
  return attempt(activity, level, index, [&] {
    State made = work();
    if (!made) throw std::logic_error("it returned an empty State");
    if (check_finite_ && !problem_.finite(made)) throw std::domain_error("the result is not finite (NaN or Inf)");
    return made;
  });
}

template <class Work>
State ProblemEvaluator::record(TaskKind kind, int level, std::int64_t index, const Needs& needs, Work&& work) {
  if (recorder_ == nullptr) return work();
  Task task{.kind = kind, .level = level, .index = index};
  for (const std::int64_t need : needs) {
    if (need >= 0) task.needs.push_back(need);
  }
  const auto start = Recorder::Clock::now();
  State made = work();
  made.set_producer(recorder_->add(std::move(task), start, Recorder::Clock::now()));
  return made;
}

void ProblemEvaluator::prepare(std::span<const PlannedStep> steps) {
  if (steps.empty()) return;
  attempt("step", steps.front().step.level, steps.front().step.index, [&] {
    problem_.prepare(steps);
    return true;
  });
}

State ProblemEvaluator::step(const State& u, const State& rhs, const Step& step) {
  if (failed_) return {};
  ++statistics_.steps[static_cast<std::size_t>(step.level)];
  return record(TaskKind::kStep, step.level, step.index, {u.producer(), rhs.producer(), -1}, [&] {
    return make("step", step.level, step.index,
                [&] { return rhs ? problem_.forced_step(u, rhs, step) : problem_.step(u, step); });
  });
}

State ProblemEvaluator::residual(const State& before, const State& after, const State& rhs, const Step& step) {
  if (failed_) return {};
  ++statistics_.steps[static_cast<std::size_t>(step.level)];
  const Needs needs{before.producer(), after.producer(), rhs.producer()};
  return record(TaskKind::kStep, step.level, step.index, needs, [&] {
    return make("residual", step.level, step.index, [&] {
      State missing = problem_.residual(before, after, step);
      return rhs && missing ? problem_.combine(1, std::move(missing), 1, rhs) : missing;
    });
  });
}

State ProblemEvaluator::combine(double a, State x, double b, State y, const Place& place) {
  if (failed_) return {};
  return record(TaskKind::kCombine, place.level, place.index, {x.producer(), y.producer(), -1}, [&] {
    return make("combine", place.level, place.index,
                [&] { return problem_.combine(a, std::move(x), b, std::move(y)); });
  });
}

double ProblemEvaluator::norm(const State& u, const Place& place) {
  return attempt("norm", place.level, place.index, [&] { return problem_.norm(u); });
}

State ProblemEvaluator::initial(const Place& place) {
  return make("initial", place.level, place.index, [&] { return problem_.initial(); });
}

State ProblemEvaluator::zero(const Place& place) {
  return make("zero", place.level, place.index, [&] { return problem_.zero(place); });
}

State ProblemEvaluator::guess(const Place& place) {
  return make("guess", place.level, place.index, [&] { return problem_.guess(place); });
}

State ProblemEvaluator::coarsen(const State& u, const Place& place) {
  if (!u) return {};
  State coarse = make("coarsen", place.level, place.index, [&] { return problem_.coarsen(u, place); });
  coarse.set_producer(u.producer());
  return coarse;
}

State ProblemEvaluator::refine(const State& u, const Place& place) {
  if (!u) return {};
  State fine = make("refine", place.level, place.index, [&] { return problem_.refine(u, place); });
  fine.set_producer(u.producer());
  return fine;
}

void ProblemEvaluator::access(const State& u, const Place& place) {
  attempt("access", place.level, place.index, [&] {
    problem_.access(u, place);
    return true;
  });
}

std::optional<Packed> ProblemEvaluator::pack(const State& u, const Place& place) {
  return attempt("pack", place.level, place.index, [&]() -> std::optional<Packed> {
    Packed packed = problem_.pack(u, place);
    const auto announced = problem_.packed_bytes(place);
    if (announced && *announced != static_cast<std::int64_t>(packed.bytes.size())) {
      throw std::logic_error("packed_bytes() announced " + std::to_string(*announced) + " bytes, pack() made " +
                             std::to_string(packed.bytes.size()));
    }
    return packed;
  });
}

State ProblemEvaluator::unpack(std::optional<Packed> message, const Place& place) {
  if (!message) mark_failed();
  return make("unpack", place.level, place.index, [&] { return problem_.unpack(*std::move(message), place); });
}

std::optional<std::int64_t> ProblemEvaluator::packed_bytes(const Place& place) { return problem_.packed_bytes(place); }

}  // namespace weft::multigrid
