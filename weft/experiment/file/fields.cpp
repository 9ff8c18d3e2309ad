#include "weft/experiment/file/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "weft/text/spelling.h"

namespace weft::experiment {
namespace {

template <class Number>
std::optional<Number> parse_number(const std::string& text) {
  Number number{};
  const char* begin = text.data();
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') ++begin;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool plain_scalar(const Value& value) { return value.kind == Value::Kind::kScalar && !value.quoted; }

std::string bounds(const IntegerRange& range) {
  if (range.least == std::numeric_limits<std::int64_t>::min()) return "a whole number";
  return "a whole number from " + std::to_string(range.least) + " to " + std::to_string(range.most);
}

std::string bounds(const NumberRange& range) {
  std::ostringstream text;
  text << "a number";
  if (range.least != -std::numeric_limits<double>::max()) text << " of at least " << range.least;
  if (range.most != std::numeric_limits<double>::max()) text << " and at most " << range.most;
  return text.str();
}

}  // namespace

std::optional<std::int64_t> as_integer(const Value& value) {
  return plain_scalar(value) ? parse_number<std::int64_t>(value.text) : std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (!plain_scalar(value)) return std::nullopt;
  const auto number = parse_number<double>(value.text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::optional<bool> as_boolean(const Value& value) {
  if (!plain_scalar(value)) return std::nullopt;
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "on"}) {
    if (value.text == yes) return true;
  }
  for (const char* no : {"false", "False", "FALSE", "no", "No", "off"}) {
    if (value.text == no) return false;
  }
  return std::nullopt;
}

Fields::Fields(const Value& mapping, std::string what, Problems& problems)
    : value_(mapping), what_(std::move(what)), problems_(problems) {
  // `!obj:x` without entries parses as null.
  if (mapping.kind == Value::Kind::kMapping || mapping.kind == Value::Kind::kNull) return;
  problems_.add(mapping.place, what_ + " must be a mapping, got " + mapping.describe());
}

Fields::~Fields() {
  const auto is_known = [&](const std::string& key) {
    return std::find(known_.begin(), known_.end(), key) != known_.end() ||
           std::any_of(endings_.begin(), endings_.end(), [&](const std::string& end) { return key.ends_with(end); });
  };
  for (const Entry& entry : value_.entries) {
    if (problems_.full()) return;
    if (is_known(entry.key)) continue;
    problems_.add(entry.place, "unknown key '" + entry.key + "' in " + what_ + "; " + advice_on(entry.key));
  }
}

std::string Fields::advice_on(const std::string& unknown) const {
  // In a flow mapping, YAML reads `key:value` as one word.
  const std::string before = unknown.substr(0, unknown.find(':'));
  if (before != unknown && std::find(known_.begin(), known_.end(), before) != known_.end()) {
    return "YAML needs a space after the colon of '" + before + ":'";
  }
  const auto meant = text::nearest(unknown, known_);
  return meant ? "did you mean '" + *meant + "'?" : "the known keys are " + text::listed(known_);
}

const Value* Fields::take(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  const ValuePtr found = value_.find(key);
  return found == nullptr || found->kind == Value::Kind::kNull ? nullptr : found.get();
}

void Fields::refuse(const std::string& key, const Value& value, const std::string& expected,
                    const std::string& advice) {
  problems_.add(value.place,
                "'" + key + "' of " + what_ + " must be " + expected + ", got " + value.describe() + advice);
}

Place Fields::place_of(const std::string& key) const {
  const ValuePtr found = value_.find(key);
  return found ? found->place : value_.place;
}

std::optional<std::int64_t> Fields::integer(const std::string& key, const IntegerRange& range) {
  const Value* const value = take(key);
  if (value == nullptr) return std::nullopt;
  const auto number = as_integer(*value);
  if (number && *number >= range.least && *number <= range.most) return number;
  refuse(key, *value, bounds(range));
  return std::nullopt;
}

std::optional<double> Fields::number(const std::string& key, const NumberRange& range) {
  const Value* const value = take(key);
  if (value == nullptr) return std::nullopt;
  const auto number = as_number(*value);
  if (number && *number >= range.least && *number <= range.most) return number;
  refuse(key, *value, bounds(range));
  return std::nullopt;
}

std::optional<bool> Fields::boolean(const std::string& key) {
  const Value* const value = take(key);
  if (value == nullptr) return std::nullopt;
  const auto truth = as_boolean(*value);
  if (!truth) refuse(key, *value, "true or false");
  return truth;
}

std::optional<std::string> Fields::text(const std::string& key) {
  const Value* const value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind == Value::Kind::kScalar) return value->text;
  refuse(key, *value, "text");
  return std::nullopt;
}

std::optional<std::string> Fields::choice(const std::string& key, const std::vector<std::string>& names) {
  const Value* const value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind == Value::Kind::kScalar && std::find(names.begin(), names.end(), value->text) != names.end()) {
    return value->text;
  }
  const bool scalar = value->kind == Value::Kind::kScalar;
  refuse(key, *value, "one of " + text::listed(names), scalar ? text::suggestion(value->text, names) : "");
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> Fields::sizes(const std::string& key, const IntegerRange& range) {
  const Value* const value = take(key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::int64_t> result;
  const auto append = [&](const Value& item) {
    const auto number = as_integer(item);
    if (!number || *number < range.least || *number > range.most) return false;
    result.push_back(*number);
    return true;
  };
  const bool fits = value->kind == Value::Kind::kSequence
                        ? !value->items.empty() && value->items.size() <= 2 &&
                              std::all_of(value->items.begin(), value->items.end(),
                                          [&](const ValuePtr& item) { return append(*item); })
                        : append(*value);
  if (fits) return result;
  refuse(key, *value, bounds(range) + ", or a list of two");
  return std::nullopt;
}

const Value* Fields::any(const std::string& key) { return take(key); }

const Value* Fields::mapping(const std::string& key) {
  const Value* const value = take(key);
  if (value == nullptr || value->kind == Value::Kind::kMapping) return value;
  refuse(key, *value, "a mapping");
  return nullptr;
}

const Value* Fields::list(const std::string& key) {
  const Value* const value = take(key);
  if (value == nullptr || value->kind == Value::Kind::kSequence) return value;
  refuse(key, *value, "a list");
  return nullptr;
}

void Fields::require(const std::string& key) {
  if (take(key) == nullptr) problems_.add(value_.place, "missing key '" + key + "' in " + what_);
}

void Fields::accept(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) static_cast<void>(take(key));
}

void Fields::ignore(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (take(key) != nullptr) problems_.note(place_of(key), "'" + key + "' of " + what_ + " has no effect in weft");
  }
}

void Fields::accept_ending(const std::string& end) { endings_.push_back(end); }

}  // namespace weft::experiment
