#include "weft/aggregation/config.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "weft/aggregation/config_keys.h"
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

// Where a line is, and what is wrong with it.
class Line {
 public:
  Line(const std::string& file, int number) : where_(file + ":" + std::to_string(number)) {}
  [[noreturn]] void refuse(const std::string& what) const { throw ConfigError("weft: " + where_ + ": " + what); }

 private:
  std::string where_;
};

std::string section_of(const std::string& text, const Line& line) {
  if (text.back() != ']') line.refuse("the section '" + text + "' lacks its ']'");
  const std::string name = trimmed(text.substr(1, text.size() - 2));
  const auto sections = config_sections();
  // SwitchML's own files have it; it is read over, because no machine without the hardware can use it.
  if (name == "backend.rdma") return name;
  if (std::find(sections.begin(), sections.end(), name) == sections.end()) {
    line.refuse("there is no section [" + name + "]; allowed are " + text::listed(sections) +
                text::suggestion(name, sections));
  }
  return name;
}

const ConfigKey& key_of(const std::string& section, const std::string& name, const Line& line) {
  for (const ConfigKey& key : config_keys()) {
    if (key.section == section && key.name == name) return key;
  }
  const auto known = names_in(section);
  line.refuse("[" + section + "] has no key '" + name + "'; allowed are " + text::listed(known) +
              text::suggestion(name, known));
}

void set(Config& config, const std::string& section, const std::string& text, const Line& line,
         std::set<std::string>& seen) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) line.refuse("expected 'key = value', got '" + text + "'");
  if (section.empty()) line.refuse("'" + text + "' stands before the first section; begin with [general]");
  if (section == "backend.rdma") return;
  const ConfigKey& key = key_of(section, trimmed(text.substr(0, equals)), line);
  if (!seen.insert(section + "." + key.name).second) line.refuse("'" + key.name + "' is given a second time");
  const std::string value = trimmed(text.substr(equals + 1));
  if (key.name == "backend" && value == "rdma") {
    line.refuse("backend = rdma needs an RDMA transport, which weft does not have; allowed are " + key.allowed);
  }
  if (!key.set(config, value)) line.refuse("'" + key.name + "' must be " + key.allowed + ", got '" + value + "'");
}

// `found`: by the search order, not named by the variable.
[[noreturn]] void refuse_file(const std::string& file, const std::string& why, bool found) {
  const std::string remedy =
      found ? "it is the first found of SwitchML's places; make it readable, or name another in " +
                  std::string(kFileVariable)
            : "correct " + std::string(kFileVariable) + ", or unset it and put switchml.cfg where the program runs";
  throw ConfigError("weft: the configuration file '" + file + "' cannot be read: " + why + "; " + remedy);
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
  throw ConfigError("weft: there is no variable " + name + "; allowed are " + text::listed(known) +
                    text::suggestion(name, known));
}

// Only what both keys say together: each may come from a file or a variable.
void require_classic_packets(const Config& config) {
  const std::int64_t numel = config.general.packet_numel;
  if (config.weft.mode != "classic" || numel == 64 || numel == 256) return;
  const std::string where = config.source.empty() ? "" : config.source + ", with WEFT_SML_* over it: ";
  throw ConfigError("weft: " + where +
                    "SwitchML's packets (mode = classic) carry 64 or 256 elements, packet_numel is " +
                    std::to_string(numel) + "; set one of those (WEFT_SML_PACKET_NUMEL), or mode = extended");
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
    throw ConfigError("weft: nobody said where the switch is: there is none of " + text::listed(places) +
                      ", and no variable WEFT_SML_*; set WEFT_SML_CONTROLLER_IP to the host of weft-switch, or write "
                      "switchml.cfg with [general] and controller_ip");
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
