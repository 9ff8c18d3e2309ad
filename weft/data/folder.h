// Finds the folder with the files of a data set.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace weft::data {

struct FolderSearch {
  std::string set;                                // "MNIST"
  std::vector<std::string> files;                 // required files, plain or gzipped
  std::vector<std::string> subfolders;            // also searched inside each candidate folder
  std::string advice;                             // how to obtain the files; part of the error message
  std::optional<std::filesystem::path> sample{};  // used if neither a folder nor WEFT_DATA is given
};

// Searches `given` and its subfolders if set, otherwise the folder in the environment variable WEFT_DATA, otherwise the
// sample. Expands a leading ~. Throws MissingDataError if no searched folder contains all files; the message lists the
// searched folders, the missing files, and the advice.
[[nodiscard]] std::filesystem::path find_folder(const FolderSearch& search,
                                                const std::optional<std::filesystem::path>& given);

}  // namespace weft::data
