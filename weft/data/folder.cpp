#include "weft/data/folder.h"

#include <cstdlib>
#include <system_error>

#include "weft/data/file.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;

bool path_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

fs::path expand_home(const fs::path& path) {
  const std::string text = path.string();
  const char* home = std::getenv("HOME");
  if (home == nullptr || (text != "~" && !text.starts_with("~/"))) return path;
  return fs::path(home) / text.substr(text.size() > 1 ? 2 : 1);
}

std::vector<fs::path> with_subfolders(const fs::path& folder, const FolderSearch& search) {
  std::vector<fs::path> places{folder};
  for (const std::string& name : search.subfolders) places.push_back(folder / name);
  return places;
}

struct Places {
  std::string origin;  // source of the list: an argument, WEFT_DATA or make env
  std::vector<fs::path> folders;
};

Places candidates(const FolderSearch& search, const std::optional<fs::path>& given) {
  if (given && !given->empty()) return {"the given folder", with_subfolders(expand_home(*given), search)};
  const char* data = std::getenv("WEFT_DATA");
  if (data != nullptr && *data != '\0') return {"WEFT_DATA", with_subfolders(expand_home(data), search)};
  if (search.sample) return {"make env", {*search.sample}};
  return {};
}

std::vector<std::string> missing_files(const fs::path& folder, const FolderSearch& search) {
  std::vector<std::string> missing;
  for (const std::string& name : search.files) {
    if (!path_exists(plain_or_gzipped(folder / name))) missing.push_back(name);
  }
  return missing;
}

std::string describe_missing(const fs::path& folder, const FolderSearch& search) {
  if (!path_exists(folder)) return "no such folder";
  std::string text = "missing";
  for (const std::string& name : missing_files(folder, search)) text.append(" ").append(name);
  return text;
}

}  // namespace

fs::path find_folder(const FolderSearch& search, const std::optional<fs::path>& given) {
  const Places places = candidates(search, given);
  for (const fs::path& folder : places.folders) {
    if (missing_files(folder, search).empty()) return folder;
  }
  std::string text = "weft: files of " + search.set + " not found (plain, or gzipped with the suffix .gz):";
  for (const fs::path& folder : places.folders) {
    text.append("\n  ").append(quoted(folder)).append(": ").append(describe_missing(folder, search));
  }
  if (places.folders.empty()) {
    text.append(" no folder given, and WEFT_DATA is not set. Required files:");
    for (const std::string& name : search.files) text.append(" ").append(name);
  } else {
    text.append("\nThe search path comes from ").append(places.origin);
  }
  text.append(". ").append(search.advice);
  throw MissingDataError(text);
}

}  // namespace weft::data
