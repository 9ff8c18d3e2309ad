// The floating-point environment of a thread.
#pragma once

#include <cfenv>

namespace weft::numeric {

// Sets the default environment during its lifetime: rounding to nearest, subnormals kept. A thread inherits the
// environment of its creator, in which the user may have set flush-to-zero (torch.set_flush_denormal).
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() {
    std::fegetenv(&usual_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&usual_); }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
  std::fenv_t usual_{};
};

}  // namespace weft::numeric
