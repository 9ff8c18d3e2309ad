#include "weft/experiment/file/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "weft/experiment/file/problems.h"
#include "weft/text/utf8.h"

namespace weft::experiment {
namespace {

Place place_of(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

// Builds the tree from parser events. Checking limits at each event bounds memory, and an alias stays a reference.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string name, const DocumentLimits& limits) : name_(std::move(name)), limits_(limits) {}

  [[nodiscard]] const ValuePtr& root() const noexcept { return root_; }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(mark, Value::Kind::kNull, ""), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    auto value = make(mark, Value::Kind::kScalar, tag);
    value->text = text;
    value->quoted = tag == "!";
    add(std::move(value), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(make(mark, Value::Kind::kSequence, tag), anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(make(mark, Value::Kind::kMapping, tag), anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(mark, "unknown anchor; an alias must refer to an earlier anchor");
    for (const Open& level : open_) {
      if (level.value == found->second) fail(mark, "a value must not contain an alias of itself");
    }
    count(mark, 1);
    put(found->second, place_of(mark));
  }

 private:
  struct Open {
    ValuePtr value;
    std::string key;
    Place key_place;
    bool has_key = false;
    std::set<std::string> keys{};
    std::vector<Entry> merged{};  // entries from <<; explicit keys override them
  };

  [[noreturn]] void fail(const Place& place, const std::string& text) const {
    throw ExperimentError(located(name_, place, text));
  }
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& text) const { fail(place_of(mark), text); }

  void count(const YAML::Mark& mark, std::size_t more) { count(place_of(mark), more); }
  void count(const Place& place, std::size_t more) {
    values_ += more;
    if (values_ > limits_.values) {
      fail(place, "the file has more than " + std::to_string(limits_.values) + " values, including aliases");
    }
  }

  ValuePtr make(const YAML::Mark& mark, Value::Kind kind, const std::string& tag) {
    count(mark, 1);
    auto value = std::make_shared<Value>();
    value->kind = kind;
    value->place = place_of(mark);
    if (tag != "?" && tag != "!") value->tag = tag;
    return value;
  }

  void remember(const ValuePtr& value, YAML::anchor_t anchor) {
    if (anchor == YAML::NullAnchor) return;
    anchors_[anchor] = value;
    anchored_.insert(value.get());
  }

  void add(ValuePtr value, YAML::anchor_t anchor) {
    remember(value, anchor);
    const Place place = value->place;
    put(std::move(value), place);
  }

  void open(ValuePtr value, YAML::anchor_t anchor) {
    if (open_.size() >= limits_.depth) {
      fail(value->place, "nested deeper than " + std::to_string(limits_.depth) + " levels");
    }
    remember(value, anchor);
    open_.push_back({std::move(value), {}, {}});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    for (Entry& entry : done.merged) {
      if (done.keys.insert(entry.key).second) done.value->entries.push_back(std::move(entry));
    }
    const Place place = done.value->place;
    if (done.keys.size() > limits_.keys) {
      fail(place, "the mapping has " + std::to_string(done.keys.size()) + " keys; at most " +
                      std::to_string(limits_.keys) + " are allowed");
    }
    put(std::move(done.value), place);
  }

  void put(ValuePtr value, const Place& place) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value->kind == Value::Kind::kSequence) {
      open_.back().value->items.push_back(std::move(value));
    } else if (!open_.back().has_key) {
      take_key(*value, place);
    } else {
      take_value(std::move(value));
    }
  }

  void take_key(const Value& key, const Place& place) {
    if (key.kind != Value::Kind::kScalar) fail(place, "a key must be text, got " + key.describe());
    Open& mapping = open_.back();
    if (key.text != "<<" && !mapping.keys.insert(key.text).second) {
      fail(place, "duplicate key '" + key.text + "'");
    }
    mapping.key = key.text;
    mapping.key_place = place;
    mapping.has_key = true;
  }

  void take_value(ValuePtr value) {
    Open& mapping = open_.back();
    mapping.has_key = false;
    if (mapping.key == "<<") return merge(mapping, *value);
    mapping.value->entries.push_back({mapping.key, mapping.key_place, std::move(value)});
  }

  // The merge key << inserts the entries of one mapping or of a list of mappings; earlier mappings take precedence.
  void merge(Open& mapping, const Value& from) {
    if (from.kind == Value::Kind::kSequence) {
      for (const ValuePtr& item : from.items) merge_one(mapping, *item);
    } else {
      merge_one(mapping, from);
    }
  }
  void merge_one(Open& mapping, const Value& from) {
    if (from.kind != Value::Kind::kMapping) {
      fail(mapping.key_place, "'<<' can merge only mappings, got " + from.describe());
    }
    for (const Entry& entry : from.entries) {
      mapping.merged.push_back({entry.key, entry.place, copied(entry.value, mapping.key_place)});
    }
  }
  // Copies keep an override of one mapping from changing the other. Values with their own anchor stay shared.
  ValuePtr copied(const ValuePtr& value, const Place& place) {
    count(place, 1);
    if (anchored_.contains(value.get())) return value;
    auto copy = std::make_shared<Value>(*value);
    for (ValuePtr& item : copy->items) item = copied(item, place);
    for (Entry& entry : copy->entries) entry.value = copied(entry.value, place);
    return copy;
  }

  std::string name_;
  DocumentLimits limits_;
  std::size_t values_ = 0;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, ValuePtr> anchors_;
  std::set<const Value*> anchored_;
  ValuePtr root_;
};

// yaml-cpp accepts any bytes. Reject binary files with a clear message, and text that to_yaml() could not reproduce.
void require_text(const std::string& text, const std::string& name, const DocumentLimits& limits) {
  if (text.size() > limits.bytes) {
    throw ExperimentError(located(name, {}, "the file is larger than " + std::to_string(limits.bytes) + " bytes"));
  }
  const auto control = std::find_if(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t';
  });
  if (control != text.end()) {
    throw ExperimentError(located(name, {1 + std::count(text.begin(), control, '\n'), 1},
                                  "not a text file: it contains a control character; expected YAML"));
  }
  if (!text::is_utf8(text))
    throw ExperimentError(located(name, {}, "not a text file in UTF-8; expected YAML in UTF-8"));
}

// yaml-cpp's messages often do not mention the tab.
bool is_indented_with_tab(const std::string& text, const YAML::Mark& mark) {
  std::istringstream lines(text);
  std::string line;
  for (int i = 0; i <= mark.line && std::getline(lines, line); ++i) continue;
  return line.find('\t') < line.find_first_not_of(" \t");
}

}  // namespace

ValuePtr parse_document(const std::string& text, const std::string& name, const DocumentLimits& limits) {
  require_text(text, name, limits);
  TreeBuilder tree(name, limits);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(tree) || tree.root() == nullptr) {
      throw ExperimentError(located(name, {}, "the file is empty; expected an experiment"));
    }
    const ValuePtr root = tree.root();
    if (parser.HandleNextDocument(tree)) {
      throw ExperimentError(
          located(name, tree.root()->place, "the file has a second document after '---'; expected one"));
    }
    return root;
  } catch (const YAML::Exception& error) {
    const char* const advice =
        is_indented_with_tab(text, error.mark) ? "; the indentation contains a tab, use spaces" : "";
    throw ExperimentError(located(name, place_of(error.mark), "invalid YAML: " + error.msg + advice));
  }
}

ValuePtr read_document(const std::filesystem::path& path, const DocumentLimits& limits) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) {
    throw ExperimentError(path.string() +
                          (std::filesystem::exists(path, failed) ? ": not a regular file" : ": no such file"));
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw ExperimentError(path.string() + ": permission denied");
  std::string text(limits.bytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return parse_document(text, path.string(), limits);
}

}  // namespace weft::experiment
