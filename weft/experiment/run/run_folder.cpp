#include "weft/experiment/run/run_folder.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>

#include "weft/files/atomic_file.h"

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Replaces invalid UTF-8, which names in user files may contain.
std::string text_of(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

fs::path numbered(const fs::path& runs, const std::string& name, int number) {
  return runs / (number == 1 ? name : name + "-" + std::to_string(number));
}

}  // namespace

fs::path fresh_folder(const fs::path& runs, const std::string& name) {
  fs::create_directories(runs);
  int number = 1;
  while (!fs::create_directory(numbered(runs, name, number))) ++number;
  return numbered(runs, name, number);
}

fs::path last_folder(const fs::path& runs, const std::string& name) {
  // Numbers may be missing, since users remove folders.
  int last = 1;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(runs, ignored)) {
    const std::string found = entry.path().filename().string();
    if (!found.starts_with(name + "-") || !entry.is_directory(ignored)) continue;
    const char* const end = found.data() + found.size();
    int number = 0;
    std::from_chars(found.data() + name.size() + 1, end, number);
    if (number > last && entry.path() == numbered(runs, name, number)) last = number;
  }
  return numbered(runs, name, last);
}

void write_split(const fs::path& run, const std::vector<Row>& rows) {
  Json table = Json::array();
  for (const Row& row : rows) {
    Json object = Json::object();
    for (const auto& [column, value] : row) object[column] = value;
    table.push_back(object);
  }
  files::write_atomically(run / "split.json", text_of(table));
}

void write_pictures(const fs::path& run, const std::string& file, const std::string& title,
                    const std::vector<std::int64_t>& shape, const std::vector<Picture>& pictures) {
  Json images = Json::array();
  for (const Picture& picture : pictures) images.push_back({{"label", picture.label}, {"pixels", picture.pixels}});
  const Json json{
      {"title", title}, {"channels", shape[0]}, {"height", shape[1]}, {"width", shape[2]}, {"images", images}};
  files::write_atomically(run / "pictures" / (file + ".json"), text_of(json));
}

void write_confusion(const fs::path& run, const std::string& set,
                     const std::vector<std::vector<std::int64_t>>& counts) {
  std::vector<std::string> classes;
  for (std::size_t i = 0; i < counts.size(); ++i) classes.push_back(std::to_string(i));
  const Json json{{"title", set == "test" ? "Test set" : "Training set"}, {"classes", classes}, {"counts", counts}};
  files::write_atomically(run / "pictures" / ("confusion-" + set + ".json"), text_of(json));
}

}  // namespace weft::experiment
