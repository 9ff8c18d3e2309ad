// The problem of the golden data: a small residual network, u + h tanh(u W_k^T), in double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "weft/multigrid/problem/typed_problem.h"

namespace weft::multigrid {

class TanhNetwork : public TypedProblem<std::vector<double>> {
 public:
  static constexpr int kRows = 3;
  static constexpr int kColumns = 4;
  using Vector = std::vector<double>;

  Vector initial_value() override {
    Vector u;
    for (int i = 0; i < kRows * kColumns; ++i) u.push_back(-1 + 2.0 * i / (kRows * kColumns - 1));
    return u;
  }
  Vector zero_value(const Place& /*place*/) override { return Vector(kRows * kColumns); }
  Vector step(const Vector& u, const Step& step) override {
    Vector next(u);
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < kColumns; ++i) {
        double sum = 0;
        for (int j = 0; j < kColumns; ++j) {
          sum += u[static_cast<std::size_t>(row * kColumns + j)] *
                 (1.5 * std::sin(0.7 * static_cast<double>(step.fine_start) + 1.3 * i + 2.1 * j));
        }
        next[static_cast<std::size_t>(row * kColumns + i)] += (step.t_stop - step.t_start) * std::tanh(sum);
      }
    }
    return next;
  }
  std::optional<std::int64_t> packed_bytes(const Place& /*place*/) override {
    return announce ? std::optional<std::int64_t>(kRows * kColumns * sizeof(double)) : std::nullopt;
  }

  bool announce = true;  // whether packed_bytes() returns the size
};

}  // namespace weft::multigrid
