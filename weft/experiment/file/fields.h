// Typed access to the entries of a mapping. Reports keys that the program never requested as unknown.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "weft/experiment/file/document.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {

struct IntegerRange {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::int64_t{1} << 40;  // no size or count is larger
};
struct NumberRange {
  double least = -std::numeric_limits<double>::max();
  double most = std::numeric_limits<double>::max();
};
constexpr IntegerRange kCount{.least = 0, .most = 1'000'000'000};
constexpr IntegerRange kSize{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kSeed{.least = 0, .most = std::int64_t{1} << 53};  // exact in a checkpoint's double
constexpr NumberRange kNonNegative{.least = 0};
constexpr NumberRange kFraction{.least = 0, .most = 1};
constexpr NumberRange kShare{.least = 1e-9, .most = 1};      // a fraction that must not be empty
constexpr NumberRange kDecay{.least = 0, .most = 0.999999};  // decay of a running mean

// Every getter returns nullopt or null if the key is absent. If the value has the wrong type or is out of range, it
// also adds a problem.
class Fields {
 public:
  // `what` names the mapping in errors, for example "a conv layer". A value that is not a mapping is a problem and has
  // no entries.
  Fields(const Value& mapping, std::string what, Problems& problems);
  // Reports the keys that no getter requested.
  ~Fields();
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& key, const IntegerRange& range = {});
  [[nodiscard]] std::optional<double> number(const std::string& key, const NumberRange& range = {});
  [[nodiscard]] std::optional<bool> boolean(const std::string& key);
  [[nodiscard]] std::optional<std::string> text(const std::string& key);
  [[nodiscard]] std::optional<std::string> choice(const std::string& key, const std::vector<std::string>& names);
  // Reads [28, 28], or 28 for all dimensions.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> sizes(const std::string& key,
                                                               const IntegerRange& range = kSize);
  // Return a value of any kind, a mapping, or a list.
  [[nodiscard]] const Value* any(const std::string& key);
  [[nodiscard]] const Value* mapping(const std::string& key);
  [[nodiscard]] const Value* list(const std::string& key);

  // Adds a problem if the key is absent.
  void require(const std::string& key);
  // Accept keys of neon files that have no effect in weft.
  void accept(const std::vector<std::string>& keys);
  void accept_ending(const std::string& end);
  // Like accept(), but adds a note for each key that is present: its value would change a run of neon.
  void ignore(const std::vector<std::string>& keys);
  [[nodiscard]] bool has(const std::string& key) const { return value_.find(key) != nullptr; }
  [[nodiscard]] const Place& place() const noexcept { return value_.place; }
  [[nodiscard]] Place place_of(const std::string& key) const;
  [[nodiscard]] Problems& problems() noexcept { return problems_; }

 private:
  const Value* take(const std::string& key);
  [[nodiscard]] std::string advice_on(const std::string& unknown) const;
  void refuse(const std::string& key, const Value& value, const std::string& expected, const std::string& advice = "");

  const Value& value_;
  std::string what_;
  Problems& problems_;
  std::vector<std::string> known_;
  std::vector<std::string> endings_;  // suffixes of accepted keys
};

// Convert an unquoted scalar. Booleans use the spellings of YAML and Python; numbers are finite and in C++ syntax.
[[nodiscard]] std::optional<std::int64_t> as_integer(const Value& value);
[[nodiscard]] std::optional<double> as_number(const Value& value);
[[nodiscard]] std::optional<bool> as_boolean(const Value& value);

}  // namespace weft::experiment
