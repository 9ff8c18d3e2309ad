// PerLevel: a setting that may differ between levels.
#pragma once

#include <map>
#include <utility>

namespace weft::multigrid {

// A default value for all levels and exceptions for some. Level 0 is the finest.
template <class T>
class PerLevel {
 public:
  PerLevel(T everywhere) : everywhere_(everywhere) {}  // NOLINT: implicit, for `options.relaxations = 1`
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
