// The entries of one mapping, taken out by name and type; what nobody takes is an unknown key.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "weft/experiment/document.h"
#include "weft/experiment/problems.h"

namespace weft::experiment {

struct IntegerRange {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::int64_t{1} << 40;  // beyond, no size or count is meant
};
struct NumberRange {
  double least = -std::numeric_limits<double>::max();
  double most = std::numeric_limits<double>::max();
};
constexpr IntegerRange kCount{.least = 0, .most = 1'000'000'000};
constexpr IntegerRange kSize{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kSeed{.least = 0, .most = std::int64_t{1} << 53};  // which checkpoints keep exactly
constexpr NumberRange kNonNegative{.least = 0};
constexpr NumberRange kFraction{.least = 0, .most = 1};
constexpr NumberRange kShare{.least = 1e-9, .most = 1};      // of something that must not be empty
constexpr NumberRange kDecay{.least = 0, .most = 0.999999};  // of a mean that must forget

// Every getter gives nothing where the key is absent, and nothing plus a problem where its value does not fit.
class Fields {
 public:
  // `what` names the mapping in errors: "a conv layer". A value that is no mapping is a problem, and has no entries.
  Fields(const Value& mapping, std::string what, Problems& problems);
  // Reports the keys that were not asked for.
  ~Fields();
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& key, const IntegerRange& range = {});
  [[nodiscard]] std::optional<double> number(const std::string& key, const NumberRange& range = {});
  [[nodiscard]] std::optional<bool> boolean(const std::string& key);
  [[nodiscard]] std::optional<std::string> text(const std::string& key);
  [[nodiscard]] std::optional<std::string> choice(const std::string& key, const std::vector<std::string>& names);
  // [28, 28], or 28 for all dimensions.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> sizes(const std::string& key,
                                                               const IntegerRange& range = kSize);
  // Of any kind; of a kind (a problem otherwise).
  [[nodiscard]] const Value* any(const std::string& key);
  [[nodiscard]] const Value* mapping(const std::string& key);
  [[nodiscard]] const Value* list(const std::string& key);

  // A problem where the key is absent.
  void require(const std::string& key);
  // Keys that neon's files have and that change nothing here.
  void accept(const std::vector<std::string>& keys);
  void accept_ending(const std::string& end);
  [[nodiscard]] bool has(const std::string& key) const { return value_.find(key) != nullptr; }
  [[nodiscard]] const Place& place() const noexcept { return value_.place; }
  [[nodiscard]] Place place_of(const std::string& key) const;
  [[nodiscard]] Problems& problems() noexcept { return problems_; }

 private:
  const Value* take(const std::string& key);
  void refuse(const std::string& key, const Value& value, const std::string& expected);

  const Value& value_;
  std::string what_;
  Problems& problems_;
  std::vector<std::string> known_;
  std::vector<std::string> endings_;  // of further keys
};

// A scalar's value. YAML's and Python's spellings of true and false; numbers as C++ writes them, finite.
[[nodiscard]] std::optional<std::int64_t> as_integer(const Value& value);
[[nodiscard]] std::optional<double> as_number(const Value& value);
[[nodiscard]] std::optional<bool> as_boolean(const Value& value);

}  // namespace weft::experiment
