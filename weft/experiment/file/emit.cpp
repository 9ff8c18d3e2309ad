#include "weft/experiment/file/emit.h"

#include <yaml-cpp/emitter.h>

#include <algorithm>
#include <map>

#include "weft/experiment/file/problems.h"

namespace weft::experiment {
namespace {

// Writes the tree to a YAML::Emitter. Two passes: the first finds the values that need an anchor.
class TreeWriter {
 public:
  std::string text(const Value& root) {
    count(root);
    write(root);
    if (!out_.good()) throw ExperimentError("cannot write the experiment as YAML: " + out_.GetLastError());
    return std::string(out_.c_str()) + "\n";
  }

 private:
  struct Use {
    int count = 0;
    std::string anchor{};  // empty until the value is written
  };

  void count(const Value& value) {
    if (++uses_[&value].count > 1) return;
    for (const ValuePtr& item : value.items) count(*item);
    for (const Entry& entry : value.entries) count(*entry.value);
  }

  void write(const Value& value) {
    Use& use = uses_[&value];
    if (!use.anchor.empty()) {
      out_ << YAML::Alias(use.anchor);
      return;
    }
    if (use.count > 1) {
      use.anchor = "v" + std::to_string(++anchors_);
      out_ << YAML::Anchor(use.anchor);
    }
    if (!value.tag.empty()) write_tag(value.tag);
    switch (value.kind) {
      case Value::Kind::kNull:
        out_ << YAML::Null;
        break;
      case Value::Kind::kScalar:
        if (value.quoted) out_ << YAML::DoubleQuoted;
        out_ << value.text;
        break;
      case Value::Kind::kSequence:
        write_items(value);
        break;
      case Value::Kind::kMapping:
        write_entries(value);
        break;
    }
  }

  // A local tag keeps its short form, `!obj:a.B`. The parser expands `!!str` to `tag:yaml.org,2002:str`, which only the
  // verbatim form `!<...>` can express, like punctuation that short tags exclude.
  void write_tag(const std::string& tag) {
    const bool is_local = tag[0] == '!' && tag.size() > 1 && tag.find_first_of("!,[]", 1) == std::string::npos;
    out_ << (is_local ? YAML::LocalTag(tag.substr(1)) : YAML::VerbatimTag(tag));
  }

  void write_items(const Value& list) {
    const bool only_scalars = std::all_of(list.items.begin(), list.items.end(), [](const ValuePtr& item) {
      return item->items.empty() && item->entries.empty();
    });
    out_ << (only_scalars ? YAML::Flow : YAML::Block) << YAML::BeginSeq;
    for (const ValuePtr& item : list.items) write(*item);
    out_ << YAML::EndSeq;
  }

  void write_entries(const Value& mapping) {
    out_ << YAML::Block << YAML::BeginMap;
    for (const Entry& entry : mapping.entries) {
      out_ << YAML::Key << entry.key << YAML::Value;
      write(*entry.value);
    }
    out_ << YAML::EndMap;
  }

  YAML::Emitter out_;
  std::map<const Value*, Use> uses_;
  int anchors_ = 0;
};

}  // namespace

std::string to_yaml(const Value& root) { return TreeWriter().text(root); }

}  // namespace weft::experiment
