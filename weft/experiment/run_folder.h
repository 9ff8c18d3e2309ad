// The folder that a run leaves behind: what is in which file. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace weft::experiment {

// runs/<name>, or the first of runs/<name>-2, -3, ... that was not there yet: it is made, so that nobody else gets it.
[[nodiscard]] std::filesystem::path fresh_folder(const std::filesystem::path& runs, const std::string& name);
// The one with the largest number; runs/<name> where there is none.
[[nodiscard]] std::filesystem::path last_folder(const std::filesystem::path& runs, const std::string& name);

// One row of split.json, in the order of its columns.
using Row = std::vector<std::pair<std::string, std::string>>;
void write_split(const std::filesystem::path& run, const std::vector<Row>& rows);

struct Picture {
  std::string label;
  std::vector<double> pixels;  // channel, row, column
};

// pictures/<file>.json; the beginning of `file` tells the kind: filters, reconstructions, stimuli.
void write_pictures(const std::filesystem::path& run, const std::string& file, const std::string& title,
                    const std::vector<std::int64_t>& shape, const std::vector<Picture>& pictures);
// pictures/confusion-<set>.json.
void write_confusion(const std::filesystem::path& run, const std::string& set,
                     const std::vector<std::vector<std::int64_t>>& counts);

}  // namespace weft::experiment
