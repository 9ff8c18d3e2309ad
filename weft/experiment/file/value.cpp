#include <algorithm>

#include "weft/experiment/file/document.h"

namespace weft::experiment {

ValuePtr Value::find(const std::string& key) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  return found == entries.end() ? nullptr : found->value;
}

std::string Value::describe() const {
  constexpr std::size_t kLongest = 40;
  switch (kind) {
    case Kind::kNull:
      return "no value";
    case Kind::kSequence:
      return "a list of " + std::to_string(items.size()) + (items.size() == 1 ? " item" : " items");
    case Kind::kMapping:
      return tag.empty() ? "a mapping" : "an object " + tag.substr(0, 2 * kLongest);
    case Kind::kScalar:
      break;
  }
  return "'" + (text.size() > kLongest ? text.substr(0, kLongest) + "..." : text) + "'";
}

}  // namespace weft::experiment
