// Names and files of a run folder. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace weft::experiment {

// Creates and returns runs/<name>, or the first of runs/<name>-2, -3, ... that does not exist.
[[nodiscard]] std::filesystem::path fresh_folder(const std::filesystem::path& runs, const std::string& name);
// Returns the existing folder with the largest number; runs/<name> if no folder exists.
[[nodiscard]] std::filesystem::path last_folder(const std::filesystem::path& runs, const std::string& name);

// A row of split.json: column names and values, in order.
using Row = std::vector<std::pair<std::string, std::string>>;
void write_split(const std::filesystem::path& run, const std::vector<Row>& rows);

struct Picture {
  std::string label;
  std::vector<double> pixels;  // channel, row, column
};

// Writes pictures/<file>.json. `file` starts with the kind of picture: filters, reconstructions or stimuli.
void write_pictures(const std::filesystem::path& run, const std::string& file, const std::string& title,
                    const std::vector<std::int64_t>& shape, const std::vector<Picture>& pictures);
// Writes pictures/confusion-<set>.json.
void write_confusion(const std::filesystem::path& run, const std::string& set,
                     const std::vector<std::vector<std::int64_t>>& counts);

}  // namespace weft::experiment
