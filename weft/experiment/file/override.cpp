#include <charconv>

#include "weft/experiment/file/document.h"
#include "weft/experiment/file/problems.h"
#include "weft/text/spelling.h"

namespace weft::experiment {
namespace {

[[noreturn]] void fail(const std::string& assignment, const std::string& text) {
  throw ExperimentError("--set " + assignment + ": " + text);
}

// "layers[2].nofm" -> layers, 2, nofm.
std::vector<std::string> steps_of(const std::string& path) {
  std::vector<std::string> steps(1);
  for (const char c : path) {
    if (c == '.' || c == '[') {
      steps.emplace_back();
    } else if (c != ']') {
      steps.back() += c;
    }
  }
  // "a[0].b" has an empty step between ']' and '.'.
  std::erase_if(steps, [](const std::string& step) { return step.empty(); });
  return steps;
}

ValuePtr* item_of(Value& list, const std::string& step) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), number);
  if (error == std::errc() && end == step.data() + step.size()) {
    return number < list.items.size() ? &list.items[number] : nullptr;
  }
  for (ValuePtr& item : list.items) {
    const ValuePtr name = item->find("name");
    if (name && name->text == step) return &item;
  }
  return nullptr;
}

ValuePtr* entry_of(Value& mapping, const std::string& step) {
  for (Entry& entry : mapping.entries) {
    if (entry.key == step) return &entry.value;
  }
  return nullptr;
}

std::string missing(const std::string& step, const Value& value) {
  if (value.kind == Value::Kind::kSequence && !value.items.empty()) {
    const std::size_t count = value.items.size();
    return "the list has no item '" + step + "'; use an index from 0 to " + std::to_string(count - 1) + " or a name";
  }
  std::vector<std::string> names;
  for (const Entry& entry : value.entries) names.push_back(entry.key);
  const bool mapping = value.kind == Value::Kind::kMapping;
  return "unknown key '" + step + "'; " +
         (mapping ? "the keys are " + text::listed(names) : "the parent is " + value.describe() + ", not a mapping");
}

void set_place(const Place& place, Value& value) {
  if (value.place.line == place.line) return;  // already visited through an alias
  value.place = place;
  for (const ValuePtr& item : value.items) set_place(place, *item);
  for (Entry& entry : value.entries) {
    entry.place = place;
    set_place(place, *entry.value);
  }
}

}  // namespace

void apply_override(Value& root, const std::string& assignment, std::int64_t number) {
  const auto equals = assignment.find('=');
  if (equals == std::string::npos) fail(assignment, "missing '='; expected key.key=value");
  const auto steps = steps_of(assignment.substr(0, equals));
  if (steps.empty()) fail(assignment, "missing key; expected key.key=value");
  const std::string written = assignment.substr(equals + 1);
  ValuePtr value = std::make_shared<Value>();
  if (!written.empty()) value = parse_document(written, "--set " + assignment);
  set_place({-number, 1}, *value);
  Value* at = &root;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool last = i + 1 == steps.size();
    ValuePtr* const found = at->kind == Value::Kind::kSequence ? item_of(*at, steps[i]) : entry_of(*at, steps[i]);
    if (found == nullptr && last && at->kind == Value::Kind::kMapping) {
      at->entries.push_back({steps[i], value->place, value});
      return;
    }
    if (found == nullptr) fail(assignment, missing(steps[i], *at));
    if (last) **found = *value;  // in place, so that aliases see the change
    at = found->get();
  }
}

}  // namespace weft::experiment
