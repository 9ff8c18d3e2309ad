// Finding the folder that holds a set's files; where there is none, saying what was looked for, where, and how to get
// it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace weft::data {

struct FolderSearch {
  std::string set;                                // "MNIST"
  std::vector<std::string> files;                 // all have to be there, plain or gzipped
  std::vector<std::string> subfolders;            // where people keep them inside of a folder for data
  std::string advice;                             // how to get the files
  std::optional<std::filesystem::path> sample{};  // to fall back on, where nobody named a folder
};

// Looks in `given` and its subfolders; without it in those of the environment variable WEFT_DATA, and only without that
// in the sample. A leading ~ means the home folder. Throws DataError where the files are not all in one of them.
[[nodiscard]] std::filesystem::path find_folder(const FolderSearch& search,
                                                const std::optional<std::filesystem::path>& given);

}  // namespace weft::data
