#include "weft/experiment/emit.h"

#include <cstdio>
#include <map>
#include <sstream>

namespace weft::experiment {
namespace {

class Emitter {
 public:
  std::string text(const Value& root) {
    count(root);
    emit(root, 0);
    out_ << "\n";
    return out_.str();
  }

 private:
  struct Use {
    int times = 0;
    int anchor = 0;  // 0: not written yet
  };

  // Each shared value is entered once, however often it is used.
  void count(const Value& value) {
    if (++uses_[&value].times > 1) return;
    for (const ValuePtr& item : value.items) count(*item);
    for (const Entry& entry : value.entries) count(*entry.value);
  }

  void emit(const Value& value, int depth) {
    Use& use = uses_[&value];
    if (use.anchor > 0) {
      out_ << "*v" << use.anchor << " ";  // a space: the alias's name would go on to the comma
      return;
    }
    if (use.times > 1) {
      use.anchor = ++anchors_;
      out_ << "&v" << use.anchor << " ";
    }
    if (!value.tag.empty() && value.tag != "!") out_ << written(value.tag) << " ";
    switch (value.kind) {
      case Value::Kind::kNull:
        out_ << "~";
        break;
      case Value::Kind::kScalar:
        scalar(value);
        break;
      case Value::Kind::kSequence:
        emit_items(value, depth);
        break;
      case Value::Kind::kMapping:
        emit_entries(value, depth);
        break;
    }
  }

  void emit_items(const Value& list, int depth) {
    out_ << "[";
    for (const ValuePtr& item : list.items) {
      newline(*item, depth);
      emit(*item, depth + 1);
      out_ << ", ";
    }
    out_ << "]";
  }

  void emit_entries(const Value& mapping, int depth) {
    out_ << "{";
    for (const Entry& entry : mapping.entries) {
      out_ << "\n" << std::string(static_cast<std::size_t>(2 * depth + 2), ' ') << quoted(entry.key) << ": ";
      emit(*entry.value, depth + 1);
      out_ << ",";
    }
    out_ << "}";
  }

  // Mappings in lists begin a line.
  void newline(const Value& item, int depth) {
    if (item.kind == Value::Kind::kMapping) out_ << "\n" << std::string(static_cast<std::size_t>(2 * depth + 2), ' ');
  }

  void scalar(const Value& value) {
    out_ << (value.quoted || !plain(value.text) ? quoted_text(value.text) : value.text);
  }

  static bool plain(const std::string& text) {
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return false;
    for (const char c : text) {
      const bool safe = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                        c == '.' || c == '+' || c == '/' || c == '-';
      if (!safe) return false;
    }
    return text[0] != '-' || text.size() > 1;
  }

  // `!!str` is read as `tag:yaml.org,2002:str`.
  static std::string written(const std::string& tag) { return tag[0] == '!' ? tag : "!<" + tag + ">"; }

  static std::string quoted(const std::string& key) { return plain(key) ? key : quoted_text(key); }

  static std::string quoted_text(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') result += '\\';
      if (c == '\n') {
        result += "\\n";
      } else if (c == '\t') {
        result += "\\t";
      } else if (c == '\r') {
        result += "\\r";
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        char code[8];
        std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned char>(c));
        result += code;
      } else {
        result += c;
      }
    }
    return result + "\"";
  }

  std::ostringstream out_;
  std::map<const Value*, Use> uses_;
  int anchors_ = 0;
};

}  // namespace

std::string to_yaml(const Value& root) { return Emitter().text(root); }

}  // namespace weft::experiment
