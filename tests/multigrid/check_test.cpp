// The self-test finds mistakes planted in a problem, and none in problems without.
#include "weft/multigrid/check.h"

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

void expect_found(Problem& problem, const std::string& property) {
  const CheckReport report = check(problem);
  EXPECT_FALSE(report.ok) << report.text;
  EXPECT_THAT(report.text, HasSubstr("FAIL  " + property));
}

TEST(CheckProblem, FindsNothingWrongWithRightOnes) {
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

TEST(CheckProblem, StepThatDoesNotRepeat) {
  Model model = pendulum();
  model.step = [inner = model.step, calls = std::make_shared<int>(0)](const Vector& u, const Step& step) {
    Vector next = inner(u, step);
    next[0] += 0.01 * ++*calls;
    return next;
  };
  ModelProblem problem(model);
  expect_found(problem, "level 0: step() repeated gives the same");
}

TEST(CheckProblem, StepThatThrowsOnACoarseLevel) {
  Model model = pendulum();
  model.step = [inner = model.step](const Vector& u, const Step& step) {
    if (step.level == 1) throw std::runtime_error("no weights for a coarse step");
    return inner(u, step);
  };
  ModelProblem problem(model);
  expect_found(problem, "level 1: step() works: it threw: no weights for a coarse step");
}

TEST(CheckProblem, StepThatDependsOnTheFinalFlag) {
  Model model = pendulum();
  model.step = [inner = model.step](const Vector& u, const Step& step) {
    return inner(step.final ? Vector{u[0] + 1, u[1]} : u, step);
  };
  ModelProblem problem(model);
  expect_found(problem, "level 0: step() in the final sweep gives the same");
}

TEST(CheckProblem, StepThatWritesToItsArgument) {
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
  expect_found(problem, "level 0: step() leaves its argument as it was");
}

class Crooked : public ModelProblem {
 public:
  using ModelProblem::ModelProblem;
  enum class Way { kCombine, kCombineInPlace, kNorm, kNormScaled, kPack, kSize, kUnpack } way = Way::kCombine;

  Vector combine(double a, const Vector& x, double b, const Vector& y) override {
    Vector sum = ModelProblem::combine(a, x, way == Way::kCombine ? std::abs(b) : b, y);
    return sum;
  }
  State combine(double a, State x, double b, State y) override {
    State sum = TypedProblem::combine(a, x, b, y);
    if (way == Way::kCombineInPlace) const_cast<Vector&>(x.as<Vector>()) = sum.as<Vector>();
    return sum;
  }
  double norm(const Vector& u) override {
    const double size = ModelProblem::norm(u);
    return way == Way::kNorm ? -size : way == Way::kNormScaled ? size * size : size;
  }
  Packed pack(const State& u, const Place& place) override {
    Packed packed = TypedProblem::pack(u, place);
    if (way == Way::kPack) packed.bytes = packed.bytes.first(8);
    return packed;
  }
  State unpack(Packed message, const Place& place) override {
    State u = TypedProblem::unpack(message, place);
    if (way == Way::kUnpack) const_cast<Vector&>(u.as<Vector>())[0] = 0;
    return u;
  }
  std::optional<std::int64_t> packed_bytes(const Place& /*place*/) override {
    return way == Way::kPack ? 8 : way == Way::kSize ? 17 : 16;
  }
};

TEST(CheckProblem, CrookedAlgebraAndMessages) {
  const Model model = pendulum();
  using Way = Crooked::Way;
  const std::vector<std::pair<Way, std::string>> planted{
      {Way::kCombine, "level 0: combine(1, u, -1, u) is zero"},
      {Way::kCombineInPlace, "level 0: combine() leaves its arguments as they were"},
      {Way::kNorm, "level 0: norm() is a finite number of at least 0"},
      {Way::kNormScaled, "level 0: norm() of -2 u is twice that of u"},
      {Way::kPack, "level 0: unpack(pack(u)) is u"},
      {Way::kSize, "level 0: packed_bytes() is what pack() makes: it says 17, pack makes 16"},
      {Way::kUnpack, "level 0: unpack(pack(u)) is u"}};
  for (const auto& [way, property] : planted) {
    Crooked problem(model);
    problem.way = way;
    expect_found(problem, property);
  }
}

TEST(CheckProblem, CoarseningThatDoesNotFit) {
  Model model = diffusion();
  model.refine = [](const Vector& u, const Place&) { return u; };
  ModelProblem problem(model);
  expect_found(problem,
               "level 1: refine() leads back to where combine() works: it threw: multigrid: vectors to be added");
  Model other = diffusion();
  other.coarsen = [](const Vector& u, const Place&) { return u; };
  ModelProblem second(other);
  expect_found(second, "level 1: step() works: it threw: a state of another point's size");
}

TEST(CheckProblem, ResidualThatDoesNotFitTheStep) {
  class Mismatched : public ModelProblem {
   public:
    using ModelProblem::ModelProblem;
    State residual(const State& before, const State& after, const Step& step) override {
      return combine(1, after, -1, TypedProblem::step(before, step));  // the other sign
    }
    State combine(double a, State x, double b, State y) override { return TypedProblem::combine(a, x, b, y); }
  };
  const Model model = pendulum();
  Mismatched problem(model);
  expect_found(problem, "level 0: residual() of a forced step's result is minus what forced it");
}

TEST(CheckProblem, InitialThatThrows) {
  class Nothing : public TanhNetwork {
   public:
    Vector initial_value() override { throw std::runtime_error("no input here"); }
  };
  Nothing problem;
  expect_found(problem, "initial() gives a state: it threw: no input here");
}

}  // namespace
}  // namespace weft::multigrid
