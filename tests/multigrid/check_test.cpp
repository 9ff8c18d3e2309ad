// check_problem() detects errors in a problem and accepts correct problems.
#include "weft/multigrid/problem/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multigrid/model.h"
#include "tests/multigrid/tanh_network.h"

namespace weft::multigrid {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TimeHierarchy hierarchy() {
  HierarchyOptions grids;
  grids.max_levels = 3;
  return {16, 1, grids};
}

CheckReport check(Problem& problem) { return check_problem(problem, hierarchy()); }

void expect_detected(Problem& problem, const std::string& property) {
  const CheckReport report = check(problem);
  EXPECT_FALSE(report.ok) << report.text;
  EXPECT_THAT(report.text, HasSubstr("FAIL  " + property));
}

TEST(CheckProblem, AcceptsCorrectProblems) {
  for (const Model& model : {pendulum(), shape_shifter(), diffusion()}) {
    ModelProblem problem(model);
    const CheckReport report = check(problem);
    EXPECT_TRUE(report.ok) << report.text;
    EXPECT_THAT(report.text, AllOf(HasSubstr("ok    level 0: unpack(pack(u)) is u"), HasSubstr("level 2: "),
                                   Not(HasSubstr("FAIL"))));
  }
  TanhNetwork network;
  EXPECT_TRUE(check(network).ok);
}

TEST(CheckProblem, DetectsStepThatIsNotReproducible) {
  Model model = pendulum();
  model.step = [inner = model.step, calls = std::make_shared<int>(0)](const Vector& u, const Step& step) {
    Vector next = inner(u, step);
    next[0] += 0.01 * ++*calls;
    return next;
  };
  ModelProblem problem(model);
  expect_detected(problem, "level 0: step() is reproducible");
}

TEST(CheckProblem, DetectsStepThatThrowsOnACoarseLevel) {
  Model model = pendulum();
  model.step = [inner = model.step](const Vector& u, const Step& step) {
    if (step.level == 1) throw std::runtime_error("no weights for a coarse step");
    return inner(u, step);
  };
  ModelProblem problem(model);
  expect_detected(problem, "level 1: step() works: it threw: no weights for a coarse step");
}

TEST(CheckProblem, DetectsStepThatDependsOnTheFinalFlag) {
  Model model = pendulum();
  model.step = [inner = model.step](const Vector& u, const Step& step) {
    return inner(step.final ? Vector{u[0] + 1, u[1]} : u, step);
  };
  ModelProblem problem(model);
  expect_detected(problem, "level 0: step() in the final sweep gives the same");
}

TEST(CheckProblem, DetectsStepThatWritesToItsArgument) {
  class Scribbler : public ModelProblem {
   public:
    using ModelProblem::ModelProblem;
    State step(const State& u, const Step& step) override {
      State next = TypedProblem::step(u, step);
      const_cast<Vector&>(u.as<Vector>())[0] += 1e-3;
      return next;
    }
  };
  const Model model = pendulum();
  Scribbler problem(model);
  expect_detected(problem, "level 0: step() does not modify its argument");
}

class Faulty : public ModelProblem {
 public:
  using ModelProblem::ModelProblem;
  enum class Defect { kCombine, kCombineInPlace, kNorm, kNormScaled, kPack, kSize, kUnpack } defect = Defect::kCombine;

  Vector combine(double a, const Vector& x, double b, const Vector& y) override {
    Vector sum = ModelProblem::combine(a, x, defect == Defect::kCombine ? std::abs(b) : b, y);
    return sum;
  }
  State combine(double a, State x, double b, State y) override {
    State sum = TypedProblem::combine(a, x, b, y);
    if (defect == Defect::kCombineInPlace) const_cast<Vector&>(x.as<Vector>()) = sum.as<Vector>();
    return sum;
  }
  double norm(const Vector& u) override {
    const double size = ModelProblem::norm(u);
    return defect == Defect::kNorm ? -size : defect == Defect::kNormScaled ? size * size : size;
  }
  Packed pack(const State& u, const Place& place) override {
    Packed packed = TypedProblem::pack(u, place);
    if (defect == Defect::kPack) packed.bytes = packed.bytes.first(8);
    return packed;
  }
  State unpack(Packed message, const Place& place) override {
    State u = TypedProblem::unpack(message, place);
    if (defect == Defect::kUnpack) const_cast<Vector&>(u.as<Vector>())[0] = 0;
    return u;
  }
  std::optional<std::int64_t> packed_bytes(const Place& /*place*/) override {
    return defect == Defect::kPack ? 8 : defect == Defect::kSize ? 17 : 16;
  }
};

TEST(CheckProblem, DetectsWrongAlgebraAndMessages) {
  const Model model = pendulum();
  using Defect = Faulty::Defect;
  const std::vector<std::pair<Defect, std::string>> planted{
      {Defect::kCombine, "level 0: combine(1, u, -1, u) is zero"},
      {Defect::kCombineInPlace, "level 0: combine() does not modify its arguments"},
      {Defect::kNorm, "level 0: norm() is a finite number of at least 0"},
      {Defect::kNormScaled, "level 0: norm() of -2 u is twice that of u"},
      {Defect::kPack, "level 0: unpack(pack(u)) is u"},
      {Defect::kSize,
       "level 0: packed_bytes() is the size of the result of pack(): it returns 17, but pack() returns 16 bytes"},
      {Defect::kUnpack, "level 0: unpack(pack(u)) is u"}};
  for (const auto& [defect, property] : planted) {
    Faulty problem(model);
    problem.defect = defect;
    expect_detected(problem, property);
  }
}

TEST(CheckProblem, DetectsCoarseningThatDoesNotMatch) {
  Model model = diffusion();
  model.refine = [](const Vector& u, const Place&) { return u; };
  ModelProblem problem(model);
  expect_detected(problem, "level 1: combine() accepts the result of refine(): it threw: multigrid: vectors to add");
  Model other = diffusion();
  other.coarsen = [](const Vector& u, const Place&) { return u; };
  ModelProblem second(other);
  expect_detected(second, "level 1: step() works: it threw: the size of the state does not match its point");
}

TEST(CheckProblem, DetectsResidualThatDoesNotMatchTheStep) {
  class Mismatched : public ModelProblem {
   public:
    using ModelProblem::ModelProblem;
    State residual(const State& before, const State& after, const Step& step) override {
      return combine(1, after, -1, TypedProblem::step(before, step));  // wrong sign
    }
    State combine(double a, State x, double b, State y) override { return TypedProblem::combine(a, x, b, y); }
  };
  const Model model = pendulum();
  Mismatched problem(model);
  expect_detected(problem, "level 0: residual() of a forced step's result is minus the right-hand side");
}

TEST(CheckProblem, DetectsInitialThatThrows) {
  class Nothing : public TanhNetwork {
   public:
    Vector initial_value() override { throw std::runtime_error("no input on this rank"); }
  };
  Nothing problem;
  expect_detected(problem, "initial() gives a state: it threw: no input on this rank");
}

}  // namespace
}  // namespace weft::multigrid
