// A setting that may differ from level to level.
#pragma once

#include <map>
#include <utility>

namespace weft::multigrid {

// One value for all levels, and others for some. Level 0 is the finest.
template <class T>
class PerLevel {
 public:
  PerLevel(T everywhere) : everywhere_(everywhere) {}  // NOLINT: `options.relaxations = 1` should read like that
  PerLevel(T everywhere, std::map<int, T> exceptions) : everywhere_(everywhere), exceptions_(std::move(exceptions)) {}

  PerLevel& set(int level, T value) {
    exceptions_[level] = value;
    return *this;
  }
  [[nodiscard]] T operator[](int level) const {
    const auto found = exceptions_.find(level);
    return found == exceptions_.end() ? everywhere_ : found->second;
  }
  [[nodiscard]] T everywhere() const { return everywhere_; }
  [[nodiscard]] const std::map<int, T>& exceptions() const { return exceptions_; }

 private:
  T everywhere_;
  std::map<int, T> exceptions_;
};

}  // namespace weft::multigrid
