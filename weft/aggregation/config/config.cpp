#include "weft/aggregation/config/config.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "weft/aggregation/config/config_keys.h"
#include "weft/text/spelling.h"

extern "C" char** environ;

namespace weft::aggregation {
namespace {

constexpr const char* kFileVariable = "WEFT_SML_CONFIG";

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string> names_in(const std::string& section) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    if (key.section == section) names.push_back(key.name);
  }
  return names;
}

// Position of a line, for error messages.
class Line {
 public:
  Line(const std::string& file, int number) : where_(file + ":" + std::to_string(number)) {}
  [[noreturn]] void refuse(const std::string& what) const { throw ConfigError("weft: " + where_ + ": " + what); }

 private:
  std::string where_;
};

std::string section_of(const std::string& text, const Line& line) {
  if (text.back() != ']') line.refuse("section '" + text + "' has no ']'");
  const std::string name = trimmed(text.substr(1, text.size() - 2));
  const auto sections = config_sections();
  // SwitchML's files contain this section. weft ignores it, because it has no RDMA transport.
  if (name == "backend.rdma") return name;
  if (std::find(sections.begin(), sections.end(), name) == sections.end()) {
    line.refuse("unknown section [" + name + "]; known sections: " + text::listed(sections) +
                text::suggestion(name, sections));
  }
  return name;
}

const ConfigKey& key_of(const std::string& section, const std::string& name, const Line& line) {
  for (const ConfigKey& key : config_keys()) {
    if (key.section == section && key.name == name) return key;
  }
  const auto known = names_in(section);
  line.refuse("[" + section + "] has no key '" + name + "'; known keys: " + text::listed(known) +
              text::suggestion(name, known));
}

void set(Config& config, const std::string& section, const std::string& text, const Line& line,
         std::set<std::string>& seen) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) line.refuse("expected 'key = value', got '" + text + "'");
  if (section.empty()) line.refuse("'" + text + "' precedes the first section; start with [general]");
  if (section == "backend.rdma") return;
  const ConfigKey& key = key_of(section, trimmed(text.substr(0, equals)), line);
  if (!seen.insert(section + "." + key.name).second) line.refuse("duplicate key '" + key.name + "'");
  const std::string value = trimmed(text.substr(equals + 1));
  if (key.name == "backend" && value == "rdma") {
    line.refuse("backend = rdma is not supported; use " + key.allowed);
  }
  if (!key.set(config, value)) line.refuse("'" + key.name + "' must be " + key.allowed + ", got '" + value + "'");
}

// `found`: the file comes from the search order, not from WEFT_SML_CONFIG.
[[noreturn]] void refuse_file(const std::string& file, const std::string& why, bool found) {
  const std::string remedy =
      found ? "it is the first file in SwitchML's search order; make it readable, or name another file in " +
                  std::string(kFileVariable)
            : "correct " + std::string(kFileVariable) + ", or unset it and put switchml.cfg into the working directory";
  throw ConfigError("weft: cannot read the configuration file '" + file + "': " + why + "; " + remedy);
}

std::string content_of(const std::string& file, bool found) {
  std::error_code unknown;
  if (std::filesystem::is_directory(file, unknown)) refuse_file(file, "it is a folder", found);
  std::ifstream stream(file);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (stream.bad() || !stream.is_open()) refuse_file(file, std::strerror(errno), found);
  return text;
}

std::vector<std::string> known_variables() {
  std::vector<std::string> names{kFileVariable};
  for (const ConfigKey& key : config_keys()) names.push_back(key.variable());
  return names;
}

void apply_variable(Config& config, const std::string& name, const std::string& value) {
  for (const ConfigKey& key : config_keys()) {
    if (key.variable() != name) continue;
    if (!key.set(config, value)) {
      throw ConfigError("weft: " + name + " must be " + key.allowed + ", got '" + value + "'");
    }
    return;
  }
  const auto known = known_variables();
  throw ConfigError("weft: unknown environment variable " + name + "; known variables: " + text::listed(known) +
                    text::suggestion(name, known));
}

// Checks the combination of two keys, each of which may come from the file or a variable.
void require_classic_packets(const Config& config) {
  const std::int64_t numel = config.general.packet_numel;
  if (config.weft.mode != "classic" || numel == 0 || numel == 64 || numel == 256) return;
  const std::string where = config.source.empty() ? "" : config.source + " with WEFT_SML_*: ";
  throw ConfigError("weft: " + where + "mode = classic requires packet_numel 64 or 256, got " + std::to_string(numel) +
                    "; set WEFT_SML_PACKET_NUMEL to one of them, or mode = extended");
}

std::string first_found(const std::vector<std::string>& places) {
  const auto found = std::find_if(places.begin(), places.end(),
                                  [](const std::string& place) { return access(place.c_str(), F_OK) == 0; });
  return found == places.end() ? "" : *found;
}

}  // namespace

std::vector<std::string> config_search_order() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return {"/etc/switchml.cfg", "switchml.cfg", std::string("switchml-") + host + ".cfg"};
}

Config parse_config(const std::string& text, const std::string& file) {
  Config config;
  config.source = file;
  std::istringstream lines(text);
  std::string raw;
  std::string section;
  std::set<std::string> seen;
  for (int number = 1; std::getline(lines, raw); ++number) {
    const Line line(file, number);
    const std::string content = trimmed(raw.substr(0, raw.find_first_of("#;")));
    if (content.empty()) continue;
    if (content.front() == '[') {
      section = section_of(content, line);
    } else {
      set(config, section, content, line, seen);
    }
  }
  return config;
}

Config load_config(const std::vector<std::string>& places, const std::vector<std::string>& environment) {
  std::string file;
  std::vector<std::pair<std::string, std::string>> overrides;
  for (const std::string& entry : environment) {
    const auto equals = entry.find('=');
    if (!entry.starts_with("WEFT_SML_") || equals == std::string::npos) continue;
    const std::string name = entry.substr(0, equals);
    const std::string value = entry.substr(equals + 1);
    if (name == kFileVariable) {
      file = value;
    } else {
      overrides.emplace_back(name, value);
    }
  }
  const bool searched = file.empty();
  if (searched) file = first_found(places);
  if (file.empty() && overrides.empty()) {
    throw ConfigError("weft: no switch configured: none of " + text::listed(places) +
                      " exists and no variable WEFT_SML_* is set; set WEFT_SML_CONTROLLER_IP to the host of "
                      "weft-switch, or write switchml.cfg with [general] and controller_ip");
  }
  Config config = file.empty() ? Config{} : parse_config(content_of(file, searched), file);
  for (const auto& [name, value] : overrides) apply_variable(config, name, value);
  require_classic_packets(config);
  return config;
}

Config load_config() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return load_config(config_search_order(), variables);
}

}  // namespace weft::aggregation
