// A simple implementation of multigrid reduction in time: one process, full arrays, and no code of the solver.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "tests/multigrid/model.h"
#include "weft/multigrid/options.h"

namespace weft::multigrid {

struct DenseResult {
  std::vector<Vector> u;  // F-points have the values of the final sweep
  std::vector<std::optional<double>> residuals;
  std::int64_t steps = 0;
  bool converged = false;
};

class DenseReference {
 public:
  // factors[l] is the coarsening factor of level l; there is one level per factor.
  DenseReference(const Model& model, std::vector<double> times, std::vector<std::int64_t> factors,
                 const Options& options)
      : model_(model), times_(std::move(times)), factors_(std::move(factors)), options_(options) {
    std::int64_t stride = 1;
    for (const std::int64_t factor : factors_) {
      strides_.push_back(stride);
      counts_.push_back((static_cast<std::int64_t>(times_.size()) - 1) / stride);
      stride *= factor;
    }
  }

  // `start` holds the initial values if the guess is the result of an earlier solve.
  DenseResult run(const std::vector<Vector>& start = {}) {
    prepare(start);
    if (options_.initial_guess == InitialGuess::kCoarseSolve) skip_cycle(false);
    for (int i = 0; i < options_.max_iterations && !done(); ++i) {
      residual_.reset();
      if (i == 0 && options_.skip_downcycle) {
        skip_cycle(options_.cycle == CycleKind::kF);
      } else {
        descend(0, options_.cycle == CycleKind::kF);
      }
      result_.residuals.push_back(options_.compute_residual ? residual_ : std::nullopt);
    }
    result_.converged = done() || (!result_.residuals.empty() && result_.residuals.back() == 0.0);
    finish();
    result_.u = u_[0];
    return result_;
  }

 private:
  [[nodiscard]] int coarsest() const { return static_cast<int>(factors_.size()) - 1; }
  [[nodiscard]] std::int64_t stride(int l) const { return strides_[static_cast<std::size_t>(l)]; }
  [[nodiscard]] std::int64_t count(int l) const { return counts_[static_cast<std::size_t>(l)]; }
  [[nodiscard]] std::int64_t factor(int l) const { return factors_[static_cast<std::size_t>(l)]; }
  [[nodiscard]] Place place(int l, std::int64_t i) const {
    return {l, i, i * stride(l), times_[static_cast<std::size_t>(i * stride(l))]};
  }
  Vector& u(int l, std::int64_t i) { return u_[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)]; }
  Vector& v(int l, std::int64_t i) { return v_[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)]; }
  Vector& f(int l, std::int64_t i) { return f_[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)]; }

  static Vector sum(double a, const Vector& x, double b, const Vector& y) {
    Vector z(x.size());
    for (std::size_t i = 0; i < z.size(); ++i) z[i] = a * x[i] + b * y.at(i);
    return z;
  }
  // The step to point i, with its right-hand side.
  Vector phi(int l, std::int64_t i, const Vector& before) {
    ++result_.steps;
    const Place from = place(l, i - 1), to = place(l, i);
    Vector next = model_.step(before, {l, i - 1, from.fine_index, to.fine_index, from.t, to.t, false});
    return f(l, i).empty() ? next : sum(1, next, 1, f(l, i));
  }
  Vector coarsen(const Vector& x, const Place& p) { return model_.coarsen ? model_.coarsen(x, p) : x; }
  Vector refine(const Vector& x, const Place& p) { return model_.refine ? model_.refine(x, p) : x; }

  void prepare(const std::vector<Vector>& start) {
    for (int l = 0; l <= coarsest(); ++l) {
      for (auto* states : {&u_, &v_, &f_}) states->emplace_back(static_cast<std::size_t>(count(l)) + 1);
    }
    for (std::int64_t i = 0; i <= count(0); i += factor(0)) {
      const Place p = place(0, i);
      u(0, i) = Vector(model_.size(0, p.fine_index));
      if (options_.initial_guess == InitialGuess::kConstant) u(0, i) = model_.initial;
      if (options_.initial_guess == InitialGuess::kCallback) u(0, i) = model_.guess(p);
      if (!start.empty()) u(0, i) = start[static_cast<std::size_t>(i)];
    }
    u(0, 0) = model_.initial;
  }

  void f_relax(int l) {
    for (std::int64_t i = 1; i <= count(l); ++i) {
      if (i % factor(l) != 0) u(l, i) = phi(l, i, u(l, i - 1));
    }
  }
  void c_relax(int l, double weight) {
    for (std::int64_t i = factor(l); i <= count(l); i += factor(l)) {
      const Vector next = phi(l, i, u(l, i - 1));
      u(l, i) = weight == 1 ? next : sum(weight, next, 1 - weight, u(l, i));
    }
  }
  void relax(int l) {
    for (int n = 0; n < options_.relaxations[l]; ++n) {
      f_relax(l);
      c_relax(l, options_.c_weight[l]);
    }
    f_relax(l);
  }

  void restrict_from(int l) {
    double total = 0;
    for (std::int64_t j = 0; j <= count(l + 1); ++j) {
      const std::int64_t i = j * factor(l);
      v(l + 1, j) = u(l + 1, j) = coarsen(u(l, i), place(l, i));
      f(l + 1, j).clear();
    }
    for (std::int64_t j = 1; j <= count(l + 1); ++j) {
      const std::int64_t i = j * factor(l);
      const Vector r = sum(1, phi(l, i, u(l, i - 1)), -1, u(l, i));
      double square = 0;
      for (const double x : r) square += x * x;
      add_norm(total, std::sqrt(square));
      const Vector tau = sum(1, v(l + 1, j), -1, phi(l + 1, j, v(l + 1, j - 1)));
      f(l + 1, j) = sum(1, coarsen(r, place(l, i)), 1, tau);
    }
    if (l == 0) residual_ = options_.temporal_norm == TemporalNorm::kTwo ? std::sqrt(total) : total;
  }
  void add_norm(double& total, double norm) const {
    if (options_.temporal_norm == TemporalNorm::kOne) total += norm;
    if (options_.temporal_norm == TemporalNorm::kTwo) total += norm * norm;
    if (options_.temporal_norm == TemporalNorm::kInfinity) total = norm != norm ? norm : std::max(total, norm);
  }

  void solve_coarsest() {
    const int l = coarsest();
    if (options_.relax_coarsest_only) {
      relax(l);
      return;
    }
    for (std::int64_t i = 1; i <= count(l); ++i) u(l, i) = phi(l, i, u(l, i - 1));
  }
  void correct_from(int l) {
    if (l < coarsest()) f_relax(l);
    for (std::int64_t j = 1; j <= count(l); ++j) {
      Vector& target = u(l - 1, j * factor(l - 1));
      target = sum(1, target, 1, refine(sum(1, u(l, j), -1, v(l, j)), place(l, j)));
    }
  }
  // A V- or F-cycle from level l down and back up.
  void descend(int l, bool f_cycle) {
    if (l == coarsest()) {
      solve_coarsest();
      return;
    }
    relax(l);
    restrict_from(l);
    descend(l + 1, f_cycle);
    correct_from(l + 1);
    if (f_cycle && l > 0) descend(l, false);
  }
  void skip_cycle(bool f_cycle) {
    for (int l = 0; l < coarsest(); ++l) {
      for (std::int64_t j = 0; j <= count(l + 1); ++j) {
        const Vector& from = u(l, j * factor(l));
        v(l + 1, j) = u(l + 1, j) = from.empty() ? from : coarsen(from, place(l, j * factor(l)));
        f(l + 1, j).clear();
      }
    }
    solve_coarsest();
    for (int l = coarsest(); l > 0; --l) {
      correct_from(l);
      if (f_cycle && l - 1 > 0) descend(l - 1, false);
    }
  }

  [[nodiscard]] bool done() const {
    if (result_.residuals.empty() || !result_.residuals.back()) return false;
    double first = 0;
    for (auto it = result_.residuals.rbegin(); it != result_.residuals.rend(); ++it) first = it->value_or(first);
    const double now = *result_.residuals.back();
    return now < options_.absolute_tolerance || now < options_.relative_tolerance * first;
  }

  void finish() {
    if (options_.final_sweep == FinalSweep::kNone) return;
    f_relax(0);
    if (options_.final_sweep == FinalSweep::kFC) c_relax(0, 1);
  }

  const Model& model_;
  std::vector<double> times_;
  std::vector<std::int64_t> factors_, strides_, counts_;
  Options options_;
  std::vector<std::vector<Vector>> u_, v_, f_;
  std::optional<double> residual_;
  DenseResult result_;
};

}  // namespace weft::multigrid
