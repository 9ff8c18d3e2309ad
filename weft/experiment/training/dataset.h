// Opens the data set of an experiment and provides this rank's part of it in batches.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "weft/data/loader.h"
#include "weft/experiment/layers/mesh.h"

namespace weft::experiment {

struct Dataset {
  std::unique_ptr<data::Loader> train;
  std::unique_ptr<data::Loader> test;
  std::filesystem::path folder{};  // folder of the data files; empty for synthetic sets
  // Identifies the training images, to detect other data on resume. Paths are excluded because files may move. Set on
  // rank 0 only, since other hosts may store the same images differently.
  std::map<std::string, std::string> description{};
};

// Opens the training and test images of `rank`. `log` receives notes for the user, such as a rebuilt cache. Throws
// data::DataError if files are missing, if images have the wrong size, or if a set is empty.
[[nodiscard]] Dataset open_dataset(const Experiment& experiment, const RankPlan& plan, std::int64_t rank,
                                   const std::function<void(const std::string&)>& log);

}  // namespace weft::experiment
