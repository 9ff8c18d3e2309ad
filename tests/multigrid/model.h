// Test problems as plain functions, and ModelProblem, which wraps them for the solver.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "weft/multigrid/problem/typed_problem.h"

namespace weft::multigrid {

using Vector = std::vector<double>;

struct Model {
  Vector initial;
  std::function<Vector(const Vector& u, const Step& step)> step;
  // The number of values in a state; may differ between points and levels.
  std::function<std::size_t(int level, std::int64_t fine_index)> size;
  std::function<Vector(const Vector& u, const Place& place)> coarsen = nullptr;
  std::function<Vector(const Vector& u, const Place& place)> refine = nullptr;
  std::function<Vector(const Place& place)> guess = nullptr;
};

// Two values, nonlinear and time-dependent, so that steps differ.
inline Model pendulum() {
  Model model;
  model.initial = {0.8, -0.3};
  model.size = [](int, std::int64_t) { return std::size_t{2}; };
  model.step = [](const Vector& u, const Step& step) {
    const double h = step.t_stop - step.t_start;
    return Vector{u[0] + h * u[1], u[1] - h * (std::sin(u[0]) + 0.2 * u[1] - 0.5 * std::cos(3 * step.t_start))};
  };
  model.guess = [](const Place& place) {
    return Vector{0.1 * place.t, std::cos(static_cast<double>(place.fine_index))};
  };
  return model;
}

// States of 1 to 4 values, depending on the point.
inline Model shape_shifter() {
  Model model;
  model.size = [](int, std::int64_t fine_index) { return static_cast<std::size_t>(1 + fine_index * 7 % 4); };
  model.initial = {0.5};
  model.step = [size = model.size](const Vector& u, const Step& step) {
    Vector next(size(0, step.fine_stop));
    for (std::size_t i = 0; i < next.size(); ++i) {
      const double h = step.t_stop - step.t_start;
      next[i] = u[i % u.size()] +
                h * std::tanh(static_cast<double>(i) - u.back() + 0.1 * static_cast<double>(step.fine_start));
    }
    return next;
  };
  model.guess = [size = model.size](const Place& place) { return Vector(size(0, place.fine_index), 0.3); };
  return model;
}

// Diffusion of 8 values in a ring, 4 on level 1 and 2 on coarser levels: spatial coarsening by means and copies.
inline Model diffusion() {
  Model model;
  model.size = [](int level, std::int64_t) {
    return level == 0 ? std::size_t{8} : level == 1 ? std::size_t{4} : std::size_t{2};
  };
  model.initial = {1, 0.5, -0.25, 2, 0, 0.75, -1, 0.125};
  model.step = [](const Vector& u, const Step& step) {
    const double strength = 0.3 * (step.t_stop - step.t_start);
    Vector next(u);
    for (std::size_t i = 0; i < u.size(); ++i) {
      next[i] += strength * (u[(i + 1) % u.size()] - 2 * u[i] + u[(i + u.size() - 1) % u.size()]) -
                 strength * u[i] * u[i] * u[i];
    }
    return next;
  };
  model.coarsen = [](const Vector& u, const Place&) {
    if (u.size() == 2) return u;
    Vector coarse;
    for (std::size_t i = 0; i < u.size(); i += 2) coarse.push_back((u[i] + u[i + 1]) / 2);
    return coarse;
  };
  model.refine = [size = model.size](const Vector& u, const Place& place) {
    Vector fine(size(place.level - 1, 0));
    for (std::size_t i = 0; i < fine.size(); ++i) fine[i] = u[i * u.size() / fine.size()];
    return fine;
  };
  model.guess = [](const Place&) { return Vector(8, 0.2); };
  return model;
}

// One per rank. Records the arguments of access() and the final steps.
class ModelProblem : public TypedProblem<Vector> {
 public:
  explicit ModelProblem(const Model& model, bool announces_sizes = true) : model_(model), announces_(announces_sizes) {}

  Vector initial_value() override { return model_.initial; }
  Vector step(const Vector& u, const Step& step) override {
    if (u.size() != model_.size(step.level, step.fine_start))
      throw std::logic_error("the size of the state does not match its point");
    if (step.final) ++final_steps[step.index];
    return model_.step(u, step);
  }
  Vector zero_value(const Place& place) override { return Vector(model_.size(place.level, place.fine_index)); }
  Vector guess_value(const Place& place) override {
    ++guesses[place.fine_index];
    return model_.guess(place);
  }
  bool coarsens_space() const override { return model_.coarsen != nullptr; }
  Vector coarsen(const Vector& u, const Place& place) override { return model_.coarsen(u, place); }
  Vector refine(const Vector& u, const Place& place) override { return model_.refine(u, place); }
  void access(const Vector& u, const Place& place) override {
    if (place.level != 0 || !shown.emplace(place.index, u).second)
      throw std::logic_error("access() was called twice for a point");
  }
  std::optional<std::int64_t> packed_bytes(const Place& place) override {
    if (!announces_) return std::nullopt;
    return static_cast<std::int64_t>(model_.size(place.level, place.fine_index) * sizeof(double));
  }

  std::map<std::int64_t, Vector> shown;
  std::map<std::int64_t, int> guesses;
  std::map<std::int64_t, int> final_steps;

 private:
  const Model& model_;
  bool announces_;
};

}  // namespace weft::multigrid
