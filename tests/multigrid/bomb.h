// BombProblem: a problem that throws in a chosen call.
#pragma once

#include <map>
#include <stdexcept>
#include <string>

#include "tests/multigrid/model.h"

namespace weft::multigrid {

class BombError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws in the n-th call of a function and counts all calls.
class BombProblem : public ModelProblem {
 private:
  template <class Work>
  auto after(const std::string& name, Work&& work) {
    if (++calls[name] == call && name == target) throw BombError("boom in " + name);
    return work();
  }

 public:
  using ModelProblem::ModelProblem;

  std::string target;  // "step", "pack", ...; empty: never
  int call = 1;
  std::map<std::string, int> calls;

  // Overrides the functions on State, not those on values, so that it counts every call of the solver.
  State initial() override {
    return after("initial", [&] { return TypedProblem::initial(); });
  }
  State step(const State& u, const Step& step) override {
    return after(step.final ? "final step" : "step", [&] { return TypedProblem::step(u, step); });
  }
  State residual(const State& before, const State& now, const Step& step) override {
    return after("residual", [&] { return TypedProblem::residual(before, now, step); });
  }
  State combine(double a, State x, double b, State y) override {
    return after("combine", [&] { return TypedProblem::combine(a, x, b, y); });
  }
  double norm(const State& u) override {
    return after("norm", [&] { return TypedProblem::norm(u); });
  }
  State zero(const Place& place) override {
    return after("zero", [&] { return TypedProblem::zero(place); });
  }
  State coarsen(const State& u, const Place& place) override {
    return after("coarsen", [&] { return TypedProblem::coarsen(u, place); });
  }
  State refine(const State& u, const Place& place) override {
    return after("refine", [&] { return TypedProblem::refine(u, place); });
  }
  void access(const State& u, const Place& place) override {
    after("access", [&] {
      TypedProblem::access(u, place);
      return 0;
    });
  }
  Packed pack(const State& u, const Place& place) override {
    return after("pack", [&] { return TypedProblem::pack(u, place); });
  }
  State unpack(Packed message, const Place& place) override {
    return after("unpack", [&] { return TypedProblem::unpack(message, place); });
  }

  static const std::vector<std::string>& targets() {
    static const std::vector<std::string> all{"initial", "step",   "final step", "residual", "combine", "norm",
                                              "zero",    "refine", "coarsen",    "access",   "pack",    "unpack"};
    return all;
  }
};

}  // namespace weft::multigrid
