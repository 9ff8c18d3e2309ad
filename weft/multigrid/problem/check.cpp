#include "weft/multigrid/problem/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace weft::multigrid {
namespace {

// Thrown by a check whose property does not hold; the text is the reason.
class CheckFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw CheckFailed(otherwise);
}

class Checker {
 public:
  Checker(Problem& problem, const TimeHierarchy& hierarchy, double tolerance)
      : problem_(problem), hierarchy_(hierarchy), tolerance_(tolerance) {}

  CheckReport run() {
    check("initial() gives a state", [&] { start(); });
    if (!report_.ok) return report_;
    for (int level = 0; level < hierarchy_.levels(); ++level) {
      if (!move_to(level)) break;
      check_level();
    }
    return report_;
  }

 private:
  void check(const std::string& property, const std::function<void()>& body) {
    const std::string name = level_ < 0 ? property : "level " + std::to_string(level_) + ": " + property;
    try {
      body();
      report_.text += "ok    " + name + "\n";
    } catch (const CheckFailed& failed) {
      fail(name, failed.what());
    } catch (const std::exception& error) {
      fail(name, std::string("it threw: ") + error.what());
    } catch (...) {
      fail(name, "it threw an exception of unknown type");
    }
  }
  void fail(const std::string& name, const std::string& why) {
    report_.ok = false;
    report_.text += "FAIL  " + name + ": " + why + "\n";
  }

  void start() {
    u_ = problem_.initial();
    require(static_cast<bool>(u_), "it returned an empty State");
  }
  // Sets u_ to a state at point 0 of the level and w_ to the state one step later.
  bool move_to(int level) {
    if (level > 0) {
      check("coarsen() gives the next level a state", [&] {
        finer_ = std::exchange(u_, problem_.coarsen(u_, hierarchy_.place(level - 1, 0)));
        require(static_cast<bool>(u_), "it returned an empty State");
      });
      level_ = level;
      check("combine() accepts the result of refine()", [&] {
        const State back = problem_.refine(u_, hierarchy_.place(level, 0));
        static_cast<void>(problem_.combine(1, back, -1, finer_));
      });
    }
    level_ = level;
    check("step() works", [&] { w_ = problem_.step(u_, hierarchy_.step(level, 0)); });
    return report_.ok;
  }

  void check_level() {
    check_messages();
    check_arguments();  // first: a function that writes to its arguments invalidates the other checks
    check_norm();
    check_combine();
    check_step();
    check_equation();
  }

  [[nodiscard]] double distance(const State& x, const State& y) { return problem_.norm(problem_.combine(1, x, -1, y)); }
  void require_same(const State& x, const State& y, const std::string& what, double tolerance) {
    const double apart = distance(x, y);
    const double scale = std::max(1.0, problem_.norm(y));
    require(apart <= tolerance * scale,
            what + " by " + number(apart) + ", expected at most " + number(tolerance * scale));
  }
  [[nodiscard]] std::vector<std::byte> bytes(const State& u) {
    const Packed packed = problem_.pack(u, here());
    return {packed.bytes.begin(), packed.bytes.end()};
  }
  [[nodiscard]] Place here() const { return hierarchy_.place(level_, 0); }

  void check_norm() {
    double size = 0;
    check("norm() is a finite number of at least 0", [&] {
      size = problem_.norm(u_);
      require(std::isfinite(size) && size >= 0, "it is " + number(size));
    });
    if (size == 0)
      report_.text += "note  level " + std::to_string(level_) + ": the state is zero, so these checks prove little\n";
    check("norm() of -2 u is twice that of u", [&] {
      const double twice = problem_.norm(problem_.combine(-2, u_, 0, u_));
      require(std::abs(twice - 2 * size) <= tolerance_ * std::max(1.0, size),
              "it is " + number(twice) + ", norm(u) is " + number(size));
    });
    check("norm() of a sum is at most the sum of the norms", [&] {
      const double other = problem_.norm(w_);
      const double half = problem_.norm(problem_.combine(0.5, w_, 0, w_));
      const double sum = problem_.norm(problem_.combine(1, w_, 0.5, w_));
      require(sum <= other + half + tolerance_ * std::max(1.0, other),
              "the norm of the sum is " + number(sum) + ", the norms are " + number(other) + " and " + number(half));
    });
  }

  void check_combine() {
    check("combine(1, u, -1, u) is zero", [&] {
      const double left = problem_.norm(problem_.combine(1, u_, -1, u_));
      require(left == 0, "its norm is " + number(left));
    });
    check("combine() is linear", [&] {
      const State twice = problem_.combine(2, u_, 0, u_);
      const State five = problem_.combine(5, u_, 0, u_);
      require_same(problem_.combine(1.5, twice, -0.5, five), problem_.combine(0.5, u_, 0, u_),
                   "1.5 (2u) - 0.5 (5u) differs from 0.5 u", tolerance_);
    });
  }

  void check_messages() {
    check("unpack(pack(u)) is u", [&] {
      const auto sent = bytes(u_);
      const State copy = problem_.unpack(problem_.pack(u_, here()), here());
      require(static_cast<bool>(copy), "unpack returned an empty State");
      require(bytes(copy) == sent, "packing it again gives different bytes");
      require_same(copy, u_, "it differs", 0);
    });
    check("packed_bytes() is the size of the result of pack()", [&] {
      const auto announced = problem_.packed_bytes(here());
      const auto made = static_cast<std::int64_t>(problem_.pack(u_, here()).bytes.size());
      require(!announced || *announced == made, "it returns " + std::to_string(announced.value_or(0)) +
                                                    ", but pack() returns " + std::to_string(made) + " bytes");
    });
  }

  void check_arguments() {
    check("combine() does not modify its arguments", [&] {
      const auto before = bytes(u_);
      const State other = problem_.combine(3, u_, 0, u_);
      const auto other_before = bytes(other);
      static_cast<void>(problem_.combine(2, u_, 7, other));
      require(bytes(u_) == before && bytes(other) == other_before, "it wrote to a state that has other owners");
    });
    check("step() does not modify its argument", [&] {
      const auto before = bytes(u_);
      static_cast<void>(problem_.step(u_, hierarchy_.step(level_, 0)));
      require(bytes(u_) == before, "it wrote to its argument");
    });
  }

  void check_step() {
    const Step first = hierarchy_.step(level_, 0);
    check("step() is reproducible",
          [&] { require_same(problem_.step(u_, first), w_, "the second result differs from the first", tolerance_); });
    check("step() of an equal state gives the same result", [&] {
      const State copy = problem_.unpack(problem_.pack(u_, here()), here());
      require_same(problem_.step(copy, first), w_, "the result differs", tolerance_);
    });
    check("step() in the final sweep gives the same result", [&] {
      require_same(problem_.step(u_, hierarchy_.step(level_, 0, true)), w_, "the result differs", tolerance_);
    });
  }

  void check_equation() {
    const Step first = hierarchy_.step(level_, 0);
    check("residual() of a step's result is zero", [&] {
      const double left = problem_.norm(problem_.residual(u_, w_, first));
      require(left <= tolerance_ * std::max(1.0, problem_.norm(w_)), "its norm is " + number(left));
    });
    check("residual() of a forced step's result is minus the right-hand side", [&] {
      const State rhs = problem_.combine(0.125, w_, 0, w_);
      const State forced = problem_.forced_step(u_, rhs, first);
      const State left = problem_.combine(1, problem_.residual(u_, forced, first), 1, rhs);
      const double size = problem_.norm(left);
      require(size <= tolerance_ * std::max(1.0, problem_.norm(w_)), "the norm of their sum is " + number(size));
    });
  }

  Problem& problem_;
  const TimeHierarchy& hierarchy_;
  double tolerance_;
  CheckReport report_;
  State u_, w_, finer_;
  int level_ = -1;
};

}  // namespace

CheckReport check_problem(Problem& problem, const TimeHierarchy& hierarchy, double tolerance) {
  return Checker(problem, hierarchy, tolerance).run();
}

}  // namespace weft::multigrid
